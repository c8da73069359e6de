"""knn: its values against torch's dense way, its gradients, ties, odd data, memory, the same bits."""

import subprocess
import sys
import textwrap

import numpy
import pytest
import torch
import torch.nn.functional as F
from parity import randn
from torch import nn

import cartograd
from cartograd.ops import nearest as searching

METRICS = ["euclidean", "sqeuclidean", "manhattan", "cosine"]
EXACT = "donot_use_mm_for_euclid_dist"


def dense(queries, X, metric):
    """All distances, by torch alone."""
    if metric == "manhattan":
        return torch.cdist(queries, X, p=1.0)
    if metric == "cosine":
        return 1 - F.normalize(queries) @ F.normalize(X).T
    if metric == "sqeuclidean":
        return (queries[:, None] - X[None]).pow(2).sum(-1)
    return torch.cdist(queries, X, compute_mode=EXACT)


def dense_knn(X, k, queries=None, metric="euclidean"):
    """torch's topk of the dense matrix, the diagonal put out of reach where X is asked about itself."""
    D = dense(X if queries is None else queries, X, metric)
    if queries is None:
        D = D + torch.diag(torch.full((len(X),), torch.inf, dtype=X.dtype))
    values, indices = D.topk(k, largest=False)
    return indices, values


def by_hand(x, k, metric="euclidean"):
    """Neighbours by float64 NumPy, ties by index."""
    a = numpy.asarray(x, dtype=numpy.float64)
    difference = a[:, None] - a[None]
    D = numpy.abs(difference).sum(-1) if metric == "manhattan" else (difference**2).sum(-1)
    numpy.fill_diagonal(D, numpy.inf)
    return torch.from_numpy(numpy.argsort(D, axis=1, kind="stable")[:, :k].copy())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("tile", [None, 40, 5, 1])
def test_equal_to_topk_of_torchs_dense_matrix(metric, tile):
    ours, theirs = cartograd.tensor(randn(90, 6), requires_grad=True), randn(90, 6).requires_grad_()
    indices, distances = cartograd.knn(ours, 7, metric=metric, tile=tile)
    expected_indices, expected = dense_knn(theirs, 7, metric=metric)
    assert indices.dtype == torch.int64
    assert torch.equal(indices.data, expected_indices)
    torch.testing.assert_close(distances.data, expected.detach(), rtol=0, atol=1e-10)
    weight = randn(90, 7, seed=1)
    (distances * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(ours.grad.data, theirs.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_queries_get_a_gradient_of_their_own(metric, needs):
    tables = [randn(40, 5), randn(13, 5, seed=1)]
    ours = [cartograd.tensor(table, requires_grad=need) for table, need in zip(tables, needs, strict=True)]
    theirs = [table.clone().requires_grad_(need) for table, need in zip(tables, needs, strict=True)]
    indices, distances = cartograd.knn(ours[0], 4, queries=ours[1], metric=metric)
    expected_indices, expected = dense_knn(theirs[0], 4, theirs[1], metric)
    assert torch.equal(indices.data, expected_indices)
    weight = randn(13, 4, seed=2)
    (distances * weight).sum().backward()
    (expected * weight).sum().backward()
    for mine, other, need in zip(ours, theirs, needs, strict=True):
        assert (mine.grad is not None) == need
        if need:
            torch.testing.assert_close(mine.grad.data, other.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
def test_both_derivatives_against_differences(metric):
    X, Q = (cartograd.tensor(randn(count, 3, seed=count), requires_grad=True) for count in (7, 4))

    def both(X, Q):
        return cartograd.knn(X, 3, metric=metric)[1], cartograd.knn(X, 2, queries=Q, metric=metric)[1]

    assert cartograd.gradcheck(both, (X, Q))
    assert cartograd.gradgradcheck(both, (X, Q))


@pytest.mark.parametrize("metric", METRICS)
def test_as_torch(metric):
    function = cartograd.knn.as_torch()
    X = randn(8, 3).requires_grad_()
    indices, distances = function(X, 3, metric=metric)
    assert type(indices) is type(distances) is torch.Tensor
    assert not indices.requires_grad
    assert torch.equal(indices, dense_knn(X, 3, metric=metric)[0])
    assert torch.autograd.gradcheck(lambda X: function(X, 3, metric=metric)[1], X)
    assert torch.autograd.gradgradcheck(lambda X: function(X, 3, metric=metric)[1], X)
    D = torch.rand(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda D: function(distances=D, k=2)[1], D)
    assert torch.autograd.gradgradcheck(lambda D: function(distances=D, k=2)[1], D)


def test_near_pairs_are_pulled_with_strength_one():
    """The gradient of a distance is a unit vector, however short the distance: 1, not 1 / d (or 1 / d^2)."""
    for d in (1e-1, 1e-4, 1e-9, 1e-30):
        X = cartograd.tensor(torch.tensor([[0.0, 0.0], [0.6 * d, 0.8 * d], [5.0, 5.0]]), requires_grad=True)
        cartograd.knn(X, 1)[1][0].sum().backward()
        torch.testing.assert_close(X.grad.data, torch.tensor([[-0.6, -0.8], [0.6, 0.8], [0.0, 0.0]]))


def test_of_a_matrix_of_distances():
    given = torch.rand(20, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    D = cartograd.tensor(given, requires_grad=True)
    indices, distances = cartograd.knn(distances=D, k=4)
    values, places = given.topk(4, largest=False)
    assert torch.equal(indices.data, places)
    assert torch.equal(distances.data, values)
    g = randn(20, 4)
    distances.backward(g)
    assert torch.equal(D.grad.data, torch.zeros_like(given).scatter(1, places, g))  # g, not g / d


def test_a_matrix_without_its_diagonal():
    D = torch.tensor([[0.0, torch.inf, torch.inf], [1.0, 0.0, 1.0], [2.0, torch.inf, 0.0]])
    indices, distances = cartograd.knn(distances=D, k=2, exclude_self=True)
    assert indices.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert distances.tolist() == [[torch.inf, torch.inf], [1.0, 1.0], [2.0, torch.inf]]
    assert cartograd.knn(distances=D, k=1)[0].tolist() == [[0], [1], [2]]


def test_the_matrix_way_after_cdist_is_the_points_way():
    X = cartograd.tensor(randn(30, 4), requires_grad=True)
    weight = randn(30, 5, seed=1)
    (first,) = cartograd.grad((cartograd.knn(X, 5)[1] * weight).sum(), X)
    chosen = cartograd.knn(distances=torch.cdist(X, X), k=5, exclude_self=True)[1]
    (second,) = cartograd.grad((chosen * weight).sum(), X)
    torch.testing.assert_close(first.data, second.data, rtol=0, atol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_have_gradient_zero_and_are_told_apart_by_index(metric, dtype):
    X = cartograd.tensor(torch.ones(12, 3, dtype=dtype), requires_grad=True)
    indices, distances = cartograd.knn(X, 3, metric=metric)
    assert indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], *[[0, 1, 2]] * 9]
    assert (distances.data == 0).all()
    (gradient,) = cartograd.grad(distances.sum(), X, create_graph=True)
    assert (gradient.data == 0).all()
    (plain,) = cartograd.grad(cartograd.knn(X, 3, metric=metric)[1].sum(), X)
    assert (plain.data == 0).all()
    (second,) = cartograd.grad(gradient.pow(2).sum(), X, allow_unused=True)
    assert second is None or second.data.isfinite().all()


@pytest.mark.parametrize("tile", [None, 16, 3])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_go_to_the_lower_index(metric, tile, dtype):
    generator = torch.Generator().manual_seed(5)
    X = torch.randint(0, 3, (150, 3), generator=generator).to(dtype)  # 27 places: many ties and duplicates
    assert torch.equal(cartograd.knn(X, 9, metric=metric, tile=tile)[0].data, by_hand(X, 9, metric))
    D = torch.randint(0, 4, (60, 50), generator=generator).to(dtype)
    expected = torch.sort(D, dim=1, stable=True).indices[:, :6]
    assert torch.equal(cartograd.knn(distances=D, k=6, tile=tile)[0].data, expected)


def test_data_far_from_the_origin_and_of_any_size():
    x = randn(400, 8, dtype=torch.float32)
    for scale, offset in ((1.0, 1e4), (1.0, -3e6), (1e25, 0.0), (1e-25, 0.0), (1e-30, 0.0), (1e3, 1e8)):
        moved = x * scale + offset
        indices, distances = cartograd.knn(cartograd.tensor(moved, requires_grad=True), 6)
        apart = torch.cdist(moved.double(), moved.double(), compute_mode=EXACT)
        exact = by_hand(moved, 6)
        assert torch.equal(indices.data, exact), (scale, offset)
        torch.testing.assert_close(distances.data.detach().double(), apart.gather(1, exact), rtol=1e-6, atol=0)
        distances.sum().backward()


def test_rows_that_rounding_would_mislead_are_searched_again(monkeypatch):
    """A tight cloud far from the median: in float32 products all of it looks the same."""
    x = randn(600, 8, dtype=torch.float32)
    x[:200] = 50 + 1e-4 * x[:200]
    again, old = [], searching._by_differences

    def counted(space, data, queries, names, *rest):
        again.append(len(names))
        return old(space, data, queries, names, *rest)

    monkeypatch.setattr(searching, "_by_differences", counted)
    assert torch.equal(cartograd.knn(x, 5)[0].data, by_hand(x, 5))
    assert sum(again) >= 150
    again.clear()
    cartograd.knn(x[200:], 5)
    assert sum(again) == 0


def test_coarse_products_are_not_trusted():
    x = randn(300, 16, dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert searching.Scores(searching.Space("euclidean", 1.0), x).dtype is torch.float64
        assert torch.equal(cartograd.knn(x, 5)[0].data, by_hand(x, 5))
    finally:
        torch.set_float32_matmul_precision(before)


def test_rows_of_zeros_under_cosine():
    X = cartograd.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    indices, distances = cartograd.knn(X, 2, metric="cosine")
    assert indices.tolist() == [[2, 1], [3, 0], [0, 1], [1, 0]]
    torch.testing.assert_close(distances.data[0].detach(), torch.tensor([0.0, 1.0]))
    distances.sum().backward()
    assert (X.grad.data[::2] == 0).all()
    assert X.grad.data.isfinite().all()


def test_neighbours_found_elsewhere():
    X, Y = (cartograd.tensor(randn(20, 3), requires_grad=True) for _ in range(2))
    indices, distances = cartograd.knn(X, 4)
    same, again = cartograd.knn(Y, indices=indices.data.to(torch.int32))
    assert torch.equal(same.data, indices.data)
    assert torch.equal(again.data, distances.data)
    distances.sum().backward()
    again.sum().backward()
    assert torch.equal(X.grad.data, Y.grad.data)
    hub = cartograd.tensor(randn(20, 3), requires_grad=True)  # one row that all others name, some twice
    named = torch.zeros(20, 3, dtype=torch.int64)
    cartograd.knn(hub, indices=named, tile=2)[1].sum().backward()
    theirs = randn(20, 3).requires_grad_()
    (3 * torch.linalg.vector_norm(theirs[1:] - theirs[0], dim=1)).sum().backward()
    torch.testing.assert_close(hub.grad.data, theirs.grad)


def test_query_i_may_be_row_i():
    x = randn(12, 3)
    found = cartograd.knn(x, 3, queries=x[:5], exclude_self=True)[0]
    assert torch.equal(found.data, cartograd.knn(x, 3)[0].data[:5])
    assert (cartograd.knn(x, 3, queries=x[:5])[0].data[:, 0] == torch.arange(5)).all()
    assert cartograd.knn(x, 12, exclude_self=False)[0].shape == (12, 12)


def test_arrays_parameters_and_odd_layouts():
    x = randn(30, 4)
    indices = cartograd.knn(x, 3)[0].data
    assert torch.equal(cartograd.knn(x.numpy(), 3)[0].data, indices)
    assert torch.equal(cartograd.knn(x.tolist(), 3)[0].data, indices)
    parameter, strided = nn.Parameter(x.clone()), cartograd.tensor(x.T.contiguous().T, requires_grad=True)
    cartograd.knn(parameter, 3)[1].sum().backward()
    cartograd.knn(strided, 3)[1].sum().backward()
    torch.testing.assert_close(parameter.grad, strided.grad.data)
    with cartograd.no_grad():
        assert not cartograd.knn(parameter, 3)[1].requires_grad


def test_what_is_kept_for_the_backward_pass():
    X = cartograd.tensor(randn(50, 3), requires_grad=True)
    indices, distances = cartograd.knn(X, 4)
    kept = {id(one): one for one in distances.node.saved if isinstance(one, torch.Tensor)}.values()
    assert sorted(tuple(one.shape) for one in kept) == [(50, 3), (50, 4), (50, 4)]
    assert {one.data_ptr() for one in kept} == {X.data.data_ptr(), indices.data.data_ptr(), distances.data.data_ptr()}
    D = cartograd.tensor(torch.rand(50, 50), requires_grad=True)
    saved = cartograd.knn(distances=D, k=4)[1].node.saved
    assert [tuple(one.shape) for one in saved if isinstance(one, torch.Tensor)] == [(50, 4)]


def test_gradients_reach_an_encoder():
    def encoder():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 3)).double()

    with torch.random.fork_rng():
        ours, theirs = encoder(), encoder()
    data = randn(60, 10)
    loss = cartograd.knn(ours(cartograd.tensor(data)), 5)[1].log1p().mean()
    expected = dense_knn(theirs(data), 5)[1].log1p().mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    loss.backward()
    expected.backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert other.grad.abs().max() > 1e-4 or other is theirs[2].bias  # moves all points alike
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
def test_the_same_bits_with_any_number_of_threads_and_tile(metric):
    x, weight = randn(1500, 24, dtype=torch.float32), randn(1500, 10, seed=1, dtype=torch.float32)
    before, runs = torch.get_num_threads(), []
    try:
        for threads, tile in ((1, None), (1, None), (2, None), (4, None), (2, 300)):
            torch.set_num_threads(threads)
            X = cartograd.tensor(x, requires_grad=True)
            indices, distances = cartograd.knn(X, 10, metric=metric, tile=tile)
            (distances * weight).sum().backward()
            runs.append((indices.data, distances.data.detach(), X.grad.data))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            assert torch.equal(one, other)


MEASURE = """
    import torch, cartograd
    def peak():  # in MiB; ru_maxrss would remember the parent's peak
        return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
    torch.set_num_threads(1)
    cartograd.knn(cartograd.tensor(torch.randn(64, 16), requires_grad=True), 3)[1].sum().backward()
    X = cartograd.tensor(torch.randn(20_000, 16), requires_grad=True)
    start = peak()
    distances = cartograd.knn(X, 15)[1]
    distances.sum().backward()
    print(peak() - start)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_no_matrix_of_all_pairs_exists():
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE)], capture_output=True, text=True, check=True, timeout=200
    )
    assert float(run.stdout) < 200  # MiB; 20,000^2 float32 are 1,526, their float64 differences far more


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("metric", METRICS)
def test_on_a_gpu(metric):
    x, weight = randn(5000, 24, dtype=torch.float32), randn(5000, 10, seed=1, dtype=torch.float32)
    runs = []
    for device, tile, strict in (("cpu", None, False), ("cuda", None, False), ("cuda", 700, True)):
        torch.use_deterministic_algorithms(strict)
        try:
            X = cartograd.tensor(x.to(device), requires_grad=True)
            indices, distances = cartograd.knn(X, 10, metric=metric, tile=tile)
            (distances * weight.to(device)).sum().backward()
        finally:
            torch.use_deterministic_algorithms(False)
        runs.append([one.cpu() for one in (indices.data, distances.data.detach(), X.grad.data)])
    assert torch.equal(runs[0][0], runs[1][0])
    for one, other in zip(runs[0][1:], runs[1][1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for one, other in zip(runs[1], runs[2], strict=True):
        assert torch.equal(one, other)
    D = cartograd.tensor(torch.cdist(x, x).cuda(), requires_grad=True)
    indices, distances = cartograd.knn(distances=D, k=10, exclude_self=True)
    distances.sum().backward()
    assert torch.equal(D.grad.data.sum(1).cpu(), torch.full((5000,), 10.0))
