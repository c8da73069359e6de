"""EntropicAffinity: perplexities, scikit-learn's values, odd data, gradients."""

import math

import numpy
import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import _t_sne
from sklearn.neighbors import NearestNeighbors

import cartograd
from cartograd.affinity import EntropicAffinity, LogGraph, UMAPAffinity, entropic_rows, joint_probabilities
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors import Graph, search

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}


def points(n=200, d=5, dtype=torch.float64, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def perplexities(P):
    """Of rows (n, m) that sum to one."""
    return torch.exp(torch.special.entr(P.to(torch.float64)).sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("perplexity", [1.5, 5, 10.9, 30, 150])
@pytest.mark.parametrize("sparsity", [True, False])
def test_every_row_has_the_perplexity(dtype, perplexity, sparsity):
    P = EntropicAffinity(perplexity, sparsity=sparsity)(points(dtype=dtype))
    P = P.to_dense() if sparsity else P
    assert P.dtype == dtype
    assert bool((P.diagonal() == 0).all())
    torch.testing.assert_close(200 * P.sum(1), torch.ones(200, dtype=dtype), atol=TOLERANCE[dtype], rtol=0)
    wanted = torch.full((200,), float(perplexity), dtype=torch.float64)
    torch.testing.assert_close(perplexities(200 * P), wanted, atol=0, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_scale_and_shift_do_not_matter(scale):
    X = points()
    one = EntropicAffinity(20, sparsity=False)(X)
    other = EntropicAffinity(20, sparsity=False)(X * scale + 3 * scale)
    torch.testing.assert_close(other, one, atol=1e-12, rtol=1e-6)


@pytest.mark.parametrize("perplexity", [5.0, 30.0])
def test_dense_equals_scikit_learn(perplexity):
    X = points(150, 4).numpy()
    theirs = _t_sne._joint_probabilities(squareform(pdist(X, "sqeuclidean")), perplexity, 0)
    ours = joint_probabilities(EntropicAffinity(perplexity, sparsity=False)(X))
    numpy.testing.assert_allclose(ours.numpy(), squareform(theirs), atol=2e-8, rtol=1e-4)


@pytest.mark.parametrize("perplexity", [5.0, 12.5])
def test_sparse_equals_scikit_learn(perplexity):
    X = points(300, 4).numpy().astype(numpy.float32)
    k = math.ceil(3 * perplexity)
    distances = NearestNeighbors(n_neighbors=k).fit(X).kneighbors_graph(mode="distance")
    distances.data **= 2
    theirs = _t_sne._joint_probabilities_nn(distances, perplexity, 0)
    ours = joint_probabilities(EntropicAffinity(perplexity)(X))
    numpy.testing.assert_allclose(ours.to_dense().numpy(), theirs.toarray(), atol=1e-7, rtol=2e-4)


def test_sparse_and_dense_are_the_same_where_all_rows_are_neighbours():
    X = points(40)
    sparse, dense = (EntropicAffinity(15, sparsity=flag)(X) for flag in (True, False))
    torch.testing.assert_close(sparse.to_dense(), dense, atol=1e-12, rtol=1e-9)
    assert sparse.degrees().tolist() == [39] * 40


@pytest.mark.parametrize("sparsity", [True, False])
def test_log(sparsity):
    affinity = EntropicAffinity(4, sparsity=sparsity)
    log_P, P = affinity(points(30), log=True), affinity(points(30))
    assert isinstance(log_P, LogGraph if sparsity else torch.Tensor)
    assert isinstance(log_P.exp(), Graph if sparsity else torch.Tensor)
    full, plain = (log_P.to_dense(), P.to_dense()) if sparsity else (log_P, P)
    torch.testing.assert_close(full.exp(), plain)
    assert bool((full.diagonal() == -torch.inf).all())


def test_without_normalisation_rows_sum_to_one():
    P = EntropicAffinity(5, normalized=False)(points(50))
    torch.testing.assert_close(P.row_sums(), torch.ones(50, dtype=torch.float64))


def test_the_total_of_joint_probabilities_is_one():
    P = joint_probabilities(EntropicAffinity(5)(points(50)))
    assert float(P.weights.sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(P.to_dense(), P.to_dense().T)


def test_given_neighbours_with_and_without_self():
    X = points(60)
    indices, distances = search(X, 15, metric="sqeuclidean")
    own = torch.arange(60)[:, None]
    expected = EntropicAffinity(5)(X)
    for knn in [
        (indices, distances),
        (torch.cat([own, indices], 1), torch.cat([torch.zeros(60, 1), distances], 1)),
        (indices.flip(1).numpy(), distances.flip(1).numpy()),
    ]:
        given = EntropicAffinity(5)(None, knn=knn)
        assert torch.equal(given.indices, expected.indices)
        torch.testing.assert_close(given.weights, expected.weights)


def test_precomputed_distances():
    X = points(60)
    C = torch.cdist(X, X).square()
    for sparsity in (True, False):
        one = EntropicAffinity(5, sparsity=sparsity)(X)
        two = EntropicAffinity(5, sparsity=sparsity, metric="precomputed")(C)
        one, two = (P.to_dense() if sparsity else P for P in (one, two))
        torch.testing.assert_close(two, one, atol=1e-12, rtol=1e-6)


@pytest.mark.parametrize("kind", [numpy.asarray, lambda X: X.tolist(), cartograd.Tensor, lambda X: X.float().half()])
def test_kinds_of_input(kind):
    X = points(60).half().double()
    expected = EntropicAffinity(5, sparsity=False)(X)
    P = EntropicAffinity(5, sparsity=False)(kind(X))
    values = P.data if isinstance(P, cartograd.Tensor) else P
    assert isinstance(P, cartograd.Tensor) == (kind is cartograd.Tensor)
    torch.testing.assert_close(values.double(), expected, atol=1e-8, rtol=1e-4)


def test_a_loader_is_read_once():
    X = points(60, dtype=torch.float32)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=7)
    for sparsity in (True, False):
        one, two = (EntropicAffinity(5, sparsity=sparsity)(data) for data in (X, loader))
        one, two = (P.to_dense() if sparsity else P for P in (one, two))
        torch.testing.assert_close(two, one)


def test_the_same_bits_for_any_number_of_threads():
    indices, distances = search(points(4000, 3), 30)
    bits, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            graphs = [
                EntropicAffinity(10)(None, knn=(indices, distances)),
                UMAPAffinity(15)(None, knn=(indices, distances)),
            ]
            bits.append(torch.cat([graph.weights for graph in graphs]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(bits[0], bits[1])
    assert torch.equal(bits[0], bits[2])


class TestOddData:
    @pytest.mark.parametrize("sparsity", [True, False])
    def test_constant_rows_are_evenly_alike(self, sparsity):
        P = EntropicAffinity(3, sparsity=sparsity)(torch.ones(12, 3))
        P = P.to_dense() if sparsity else P
        assert bool(torch.isfinite(P).all())
        values = P[P > 0]
        torch.testing.assert_close(values, torch.full_like(values, 1 / (12 * (9 if sparsity else 11))))

    @pytest.mark.parametrize("sparsity", [True, False])
    def test_more_duplicates_than_the_perplexity(self, sparsity):
        X = torch.cat([torch.zeros(10, 2), points(30, 2, torch.float32)])
        P = EntropicAffinity(3, sparsity=sparsity)(X)
        P = (P.to_dense() if sparsity else P) * 40
        assert bool(torch.isfinite(P).all())
        # nine equals share all of the mass: no bandwidth has a smaller perplexity
        torch.testing.assert_close(P[:10, :10].sum(1), torch.ones(10), atol=1e-5, rtol=0)
        torch.testing.assert_close(perplexities(P)[10:], torch.full((30,), 3.0, dtype=torch.float64), atol=1e-3, rtol=0)

    def test_an_outlier_and_a_huge_offset(self):
        X = points(100)
        X[0] = 1e8
        P = EntropicAffinity(10, sparsity=False)(X + 1e6) * 100
        torch.testing.assert_close(perplexities(P)[1:], torch.full((99,), 10.0, dtype=torch.float64), atol=1e-5, rtol=0)
        assert bool(torch.isfinite(P).all())

    @pytest.mark.parametrize("n", [2, 3, 4])
    def test_the_largest_perplexity_is_the_even_distribution(self, n):
        P = EntropicAffinity(n - 1, sparsity=False)(points(n))
        torch.testing.assert_close(P, (1 - torch.eye(n).double()) / (n * (n - 1)), atol=1e-8, rtol=0)

    def test_perplexity_one_is_the_nearest_neighbour(self):
        X = points(20)
        P = EntropicAffinity(1, sparsity=False)(X) * 20
        assert torch.equal(P.argmax(1), search(X, 1)[0][:, 0])
        torch.testing.assert_close(P.amax(1), torch.ones(20, dtype=torch.float64), atol=1e-8, rtol=0)


class TestGradient:
    @pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "manhattan", "cosine"])
    @pytest.mark.parametrize("log", [False, True])
    def test_gradcheck(self, metric, log):
        X = cartograd.Tensor(points(7, 3), requires_grad=True)
        affinity = EntropicAffinity(2.7, metric=metric)
        keep = ~torch.eye(7, dtype=torch.bool)
        assert cartograd.gradcheck(lambda x: affinity(x, log=log)[keep], X)

    def test_precomputed(self):
        C = cartograd.Tensor(torch.cdist(points(6), points(6)) + 1, requires_grad=True)
        assert cartograd.gradcheck(lambda c: EntropicAffinity(2.5, metric="precomputed")(c), C)

    def test_a_function_of_two_tensors(self):
        X = cartograd.Tensor(points(6, 2), requires_grad=True)
        affinity = EntropicAffinity(2.5, metric=lambda a, b: ((a - b) ** 4).sum(-1))
        assert cartograd.gradcheck(lambda x: affinity(x), X)

    def test_second_derivatives(self):
        X = cartograd.Tensor(points(5, 2), requires_grad=True)
        weights = points(5, 5, seed=1)
        assert cartograd.gradgradcheck(lambda x: (EntropicAffinity(2.2)(x) * weights).sum(), X)

    def test_rows_alone(self):
        C = cartograd.Tensor(points(4, 9).square(), requires_grad=True)
        assert cartograd.gradcheck(lambda c: entropic_rows(c, 3.3), C)
        assert cartograd.gradgradcheck(lambda c: entropic_rows(c, 3.3), C)

    def test_the_perplexity_stays(self):
        """Moving along any gradient of P leaves every entropy where it is, to first order: sum_j g_j dlogp_j = 0."""
        C = cartograd.Tensor(points(4, 9).square(), requires_grad=True)
        log_p = entropic_rows(C, 3.3)
        (-(log_p.exp() * log_p).sum()).backward()
        torch.testing.assert_close(C.grad.data, torch.zeros(4, 9, dtype=torch.float64), atol=1e-10, rtol=0)

    def test_value_is_that_without_gradient(self):
        X = points(30)
        recorded = EntropicAffinity(5)(cartograd.Tensor(X, requires_grad=True))
        torch.testing.assert_close(recorded.data, EntropicAffinity(5, sparsity=False)(X), atol=1e-14, rtol=1e-9)

    def test_equal_rows(self):
        X = points(8, 2)
        X[1] = X[0]
        x = cartograd.Tensor(X, requires_grad=True)
        (EntropicAffinity(3)(x) ** 2).sum().backward()
        assert bool(torch.isfinite(x.grad.data).all())

    def test_the_kind_of_answer_does_not_depend_on_the_mode(self):
        x = cartograd.Tensor(points(30), requires_grad=True)
        with cartograd.no_grad():
            still = EntropicAffinity(5)(x)
            assert isinstance(EntropicAffinity(5, sparsity=True)(x), Graph)
        assert isinstance(still, cartograd.Tensor)
        torch.testing.assert_close(still.data, EntropicAffinity(5)(x).data, atol=1e-14, rtol=1e-9)

    def test_a_graph_has_none(self):
        x = cartograd.Tensor(points(30), requires_grad=True)
        with pytest.raises(UnsupportedError, match=r"use sparsity=False, or entropic_rows"):
            EntropicAffinity(5, sparsity=True)(x)
        with pytest.raises(OptionError, match=r"'jaccard' has no gradient here: .* use sqeuclidean, euclidean"):
            EntropicAffinity(5, metric="jaccard")(x)


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"perplexity": 0.5}, OptionError, "perplexity must be at least 1 and finite, got 0.5"),
            ({"perplexity": math.nan}, OptionError, "perplexity must be at least 1 and finite, got nan"),
            ({"perplexity": math.inf}, OptionError, "perplexity must be at least 1 and finite, got inf"),
            ({"perplexity": "30"}, UnsupportedError, "perplexity must be a number, got '30' of type str"),
            ({"perplexity": True}, UnsupportedError, "perplexity must be a number, got True of type bool"),
            ({"sparsity": "yes"}, OptionError, "sparsity must be one of True, False, None, got 'yes'"),
            ({"metric": "sine"}, OptionError, "unknown metric 'sine': known are angular"),
            ({"backend": "fast"}, OptionError, "unknown backend 'fast'"),
        ],
    )
    def test_parameters(self, options, error, message):
        with pytest.raises(error, match=message):
            EntropicAffinity(**options)

    def test_unknown_keywords(self):
        with pytest.raises(TypeError, match="perplexty"):
            EntropicAffinity(perplexty=30)

    @pytest.mark.parametrize("sparsity", [True, False])
    def test_too_large_a_perplexity_names_the_largest(self, sparsity):
        with pytest.raises(
            OptionError, match=r"perplexity=30 is too large for 20 rows: .* the largest that fits is 19"
        ):
            EntropicAffinity(30, sparsity=sparsity)(points(20))
        with pytest.raises(OptionError, match="the largest that fits is 0; give at least 2 rows"):
            EntropicAffinity(2, sparsity=sparsity)(points(1))

    def test_recorded_too(self):
        with pytest.raises(OptionError, match="the largest that fits is 19"):
            EntropicAffinity(19.5)(cartograd.Tensor(points(20), requires_grad=True))

    @pytest.mark.parametrize(
        ("knn", "error", "message"),
        [
            (torch.zeros(3, 2), UnsupportedError, r"knn must be the pair \(indices, distances\), .*got an array"),
            ((torch.zeros(3, 2).long(), torch.zeros(3, 1)), InputError, r"got shapes \(3, 2\) and \(3, 1\)"),
            ((torch.zeros(3, 2), torch.zeros(3, 2)), UnsupportedError, "must be whole numbers, got torch.float32"),
            ((torch.full((3, 2), 3), torch.zeros(3, 2)), InputError, "knn names row 3, but there are 3 rows"),
            ((torch.zeros(3, 2).long(), -torch.ones(3, 2)), InputError, "got -1 at row 0, column 0"),
        ],
    )
    def test_neighbours(self, knn, error, message):
        with pytest.raises(error, match=message):
            EntropicAffinity(2)(None, knn=knn)

    def test_too_few_neighbours(self):
        with pytest.raises(OptionError, match="the 4 neighbours of each row in knn: the largest that fits is 4"):
            EntropicAffinity(5)(None, knn=search(points(30), 4))

    def test_bad_data(self):
        X = points(30)
        X[3, 1] = torch.nan
        for sparsity in (True, False):
            with pytest.raises(InputError, match="NaN: first at row 3, column 1"):
                EntropicAffinity(5, sparsity=sparsity)(X)
        with pytest.raises(InputError, match="takes the square matrix"):
            EntropicAffinity(5, metric="precomputed")(points(30))
        with pytest.raises(UnsupportedError, match="X is None"):
            EntropicAffinity(5)(None)
