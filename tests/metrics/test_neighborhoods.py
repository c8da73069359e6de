import numpy
import pytest
import torch
from sklearn.manifold import trustworthiness as reference
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

import cartograd
from cartograd.errors import CartogradError
from cartograd.metrics import continuity, neighborhood_preservation, trustworthiness

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def small(seed=0, n=120, d=6):
    draw = numpy.random.default_rng(seed)
    X = draw.normal(size=(n, d))
    return X, X[:, :2] + 0.5 * draw.normal(size=(n, 2))


def recall(X, Z, k):
    near = [NearestNeighbors(n_neighbors=k).fit(data).kneighbors(return_distance=False) for data in (X, Z)]
    return numpy.mean([len(set(a) & set(b)) / k for a, b in zip(*near, strict=True)])


@pytest.mark.parametrize("k", [1, 5, 15, 200])
def test_equals_scikit_learn_on_2000(table, k):
    X, Z, _ = table
    assert abs(trustworthiness(X, Z, k) - reference(X, Z, n_neighbors=k)) < 1e-10
    assert abs(continuity(X, Z, k=k) - reference(Z, X, n_neighbors=k)) < 1e-10


def test_float32_data_have_the_ranks_of_float64(table):
    X, Z, _ = (numpy.asarray(part, dtype=numpy.float32) for part in table)
    wide = X.astype(numpy.float64), Z.astype(numpy.float64)
    assert abs(trustworthiness(X, Z) - reference(*wide, n_neighbors=15)) < 1e-10
    assert abs(continuity(X, Z) - reference(*wide[::-1], n_neighbors=15)) < 1e-10


@pytest.mark.parametrize("metric", ["manhattan", "cosine", "sqeuclidean"])
def test_metrics_of_the_data(table, metric):
    X, Z, _ = table
    assert abs(trustworthiness(X, Z, metric=metric) - reference(X, Z, n_neighbors=15, metric=metric)) < 1e-10


def test_precomputed_distances_and_a_function():
    X, Z = small()
    D = pairwise_distances(X)
    expected = reference(X, Z, n_neighbors=7)
    assert abs(trustworthiness(D, Z, 7, metric="precomputed") - expected) < 1e-12
    assert abs(trustworthiness(X, pairwise_distances(Z), 7, embedding_metric="precomputed") - expected) < 1e-12
    assert abs(trustworthiness(X, Z, 7, metric=lambda a, b: (a - b).square().sum(-1)) - expected) < 1e-12


def test_a_matrix_that_is_not_symmetric_is_read_by_rows():
    D = numpy.abs(numpy.random.default_rng(3).normal(size=(60, 60)))
    _, Z = small(n=60)
    assert (
        abs(trustworthiness(D, Z, 5, metric="precomputed") - reference(D, Z, n_neighbors=5, metric="precomputed"))
        < 1e-12
    )


def test_hyperbolic_map():
    X, _ = small()
    Z = 0.9 * numpy.tanh(X[:, :2]) / 1.5
    apart = pairwise_distances(Z, metric="sqeuclidean")
    room = 1 - (Z**2).sum(1)
    D = numpy.arccosh(1 + 2 * apart / (room[:, None] * room[None, :])) ** 2
    ours = trustworthiness(X, Z, 7, embedding_metric="sqhyperbolic")
    numpy.fill_diagonal(D, 0)
    assert abs(ours - trustworthiness(X, D, 7, embedding_metric="precomputed")) < 1e-12
    assert ours != trustworthiness(X, Z, 7)


def brute_trustworthiness(X, Z, k):
    """Ranks by a stable sort of exact (integer) distances: of equals the smaller id first."""

    def order(data):
        apart = ((data[:, None, :] - data[None, :, :]) ** 2).sum(-1)
        apart[numpy.arange(len(data)), numpy.arange(len(data))] = -1
        return numpy.argsort(apart, axis=1, kind="stable")[:, 1:]

    n, penalty = len(X), 0
    ranks = numpy.zeros((n, n), dtype=int)
    numpy.put_along_axis(ranks, order(X), numpy.arange(1, n)[None, :], axis=1)
    for i, near in enumerate(order(Z)[:, :k]):
        penalty += numpy.maximum(ranks[i, near] - k, 0).sum()
    return 1 - penalty * 2 / (n * k * (2 * n - 3 * k - 1))


@pytest.mark.parametrize("levels", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
def test_ties_go_to_the_smaller_index(levels, dtype):
    draw = numpy.random.default_rng(5)
    X, Z = draw.integers(0, levels, (1300, 5)), draw.integers(0, levels + 1, (1300, 2))  # across tiles of 1,024
    expected = brute_trustworthiness(X, Z, 9)
    assert abs(trustworthiness(X.astype(dtype), Z.astype(dtype), 9) - expected) < 1e-12
    assert abs(continuity(Z.astype(dtype), X.astype(dtype), 9) - expected) < 1e-12


@pytest.mark.parametrize("metric", ["hamming", "jaccard", "manhattan"])
def test_ties_of_metrics_with_few_values(metric):
    draw = numpy.random.default_rng(6)
    X, Z = draw.integers(0, 2, (200, 12)), draw.normal(size=(200, 2))
    D = cartograd.neighbors.pairwise_distances(X.astype(numpy.float64), metric=metric)
    expected = trustworthiness(D, Z, 9, metric="precomputed")
    assert trustworthiness(X, Z, 9, metric=metric) == expected
    assert trustworthiness(X.astype(numpy.float32), Z, 9, metric=metric) == expected


def test_near_duplicates_far_from_the_median_are_told_apart():
    draw = numpy.random.default_rng(7)
    fine = draw.normal(size=(200, 3))
    X = numpy.concatenate([fine[:110], 1e8 + 2.0**-20 * numpy.round(2.0**10 * fine[110:])])
    Z = numpy.concatenate([fine[:110, :2], 100 + fine[110:, :2]])
    D = numpy.sqrt(((X[:, None].astype(numpy.longdouble) - X[None].astype(numpy.longdouble)) ** 2).sum(-1))
    expected = reference(D.astype(numpy.float64), Z, n_neighbors=9, metric="precomputed")
    assert abs(trustworthiness(X, Z, 9) - expected) < 1e-12


def test_shifted_data_have_the_same_score(table):
    X, Z, _ = table
    assert trustworthiness(X + 1e4, Z) == pytest.approx(trustworthiness(X, Z), abs=1e-7)


def test_a_perfect_map_and_the_per_sample_terms(table):
    X, Z, _ = table
    assert trustworthiness(X, X) == 1.0
    assert continuity(X, X) == 1.0
    assert neighborhood_preservation(X, X, 15) == 1.0
    for score in (trustworthiness, continuity, neighborhood_preservation):
        each = score(X, Z, 15, per_sample=True)
        assert isinstance(each, numpy.ndarray)
        assert each.dtype == numpy.float64
        assert each.mean() == pytest.approx(score(X, Z, 15), abs=1e-12)
        assert each.std() > 0


@pytest.mark.parametrize("k", [1, 15, 100])
def test_preservation_is_recall(table, k):
    X, Z, _ = table
    assert abs(neighborhood_preservation(X, Z, k) - recall(X, Z, k)) < 1e-12


def test_preservation_is_not_jaccard():
    X, Z = [[0.0], [1.0], [3.0], [7.0]], [[0.0], [1.0], [7.0], [3.0]]
    assert neighborhood_preservation(X, Z, 1, per_sample=True).tolist() == [1, 1, 0, 0]
    Z = [[0.0], [1.0], [9.0], [1.5]]
    assert neighborhood_preservation(X, Z, 2, per_sample=True).tolist() == [0.5, 0.5, 0.5, 0.5]  # Jaccard: a third


def test_every_kind_of_input_has_the_same_score(tmp_path):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    X, Z = small()
    expected = trustworthiness(X, Z, 7)
    mapped = numpy.memmap(tmp_path / "x", dtype=numpy.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    loader = torch.utils.data.DataLoader(torch.from_numpy(X), batch_size=50)
    kinds = [X.tolist(), torch.from_numpy(X), cartograd.Tensor(torch.from_numpy(X)), mapped, loader]
    for kind in (*kinds, scipy_sparse.csr_array(X), numpy.asfortranarray(X)):
        assert trustworthiness(kind, Z, 7) == pytest.approx(expected, abs=1e-12)
        assert continuity(kind, torch.from_numpy(Z), 7) == pytest.approx(continuity(X, Z, 7), abs=1e-12)
    each = trustworthiness(torch.from_numpy(X), Z, 7, per_sample=True)
    assert isinstance(each, torch.Tensor)
    assert isinstance(trustworthiness(X, Z, 7), float)


@pytest.mark.gpu
@gpu
def test_cuda_equals_cpu(table):
    X, Z, _ = (torch.as_tensor(part, dtype=torch.float32) for part in table)
    for score in (trustworthiness, continuity, neighborhood_preservation):
        assert score(X.cuda(), Z.cuda(), 15) == score(X, Z, 15)
        assert score(X, Z.cuda(), 15) == score(X, Z, 15)
        assert score(X.cuda(), Z, 15, per_sample=True).is_cuda


def test_the_same_bits_at_any_thread_count(table):
    X, Z, _ = table
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            answers.append([f(X, Z, 15) for f in (trustworthiness, continuity, neighborhood_preservation)])
    finally:
        torch.set_num_threads(before)
    assert answers[0] == answers[1] == answers[2]


def test_another_name_of_k():
    X, Z = small()
    assert trustworthiness(X, Z, n_neighbors=4) == trustworthiness(X, Z, k=4)
    with pytest.raises(ValueError, match="another name of k: give one of them, got k=3, n_neighbors=4"):
        continuity(X, Z, k=3, n_neighbors=4)


@pytest.mark.parametrize("score", [trustworthiness, continuity, neighborhood_preservation])
class TestRefusals:
    def refused(self, message, call, *arguments, **options):
        with pytest.raises(CartogradError, match=message):
            call(*arguments, **options)

    def test_rows_that_do_not_match(self, score):
        X, Z = small()
        self.refused("X has 120 rows and Z has 119: row i of Z must be the place of row i of X", score, X, Z[1:])

    def test_nan_is_named_with_its_argument(self, score):
        X, Z = small()
        Z[3, 1] = numpy.nan
        self.refused("Input Z contains NaN: first at row 3, column 1", score, X, Z)
        self.refused("Input X contains NaN: first at row 3, column 1", score, Z, X)

    def test_shape(self, score):
        X, Z = small()
        self.refused("Z must have two dimensions", score, X, Z[:, 0])
        self.refused("square matrix of all distances, got shape", score, X, Z, metric="precomputed")

    def test_k(self, score):
        X, Z = small()
        self.refused("k must be at least 1, got 0", score, X, Z, 0)
        self.refused("k must be a whole number, got 2.5", score, X, Z, 2.5)
        self.refused("k=120 is too large for 120 rows", score, X, Z, 120)

    def test_metric(self, score):
        X, Z = small()
        self.refused("unknown metric 'nonsense': known are", score, X, Z, metric="nonsense")
        self.refused("unknown metric 'nonsense': known are", score, X, Z, embedding_metric="nonsense")


@pytest.mark.parametrize("score", [trustworthiness, continuity])
def test_k_beyond_the_formula_is_refused(score):
    X, Z = small()
    assert 0 <= score(X, Z, 59) <= 1
    with pytest.raises(ValueError, match=r"k=60 is too large for 120 rows: .* k < n / 2 only; use k <= 59"):
        score(X, Z, 60)
    with pytest.raises(ValueError, match="X has 2 rows, and ranks of neighbours need at least 3"):
        score(X[:2], Z[:2], 1)


def test_sparse_precomputed_distances_are_refused():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    X, Z = small()
    with pytest.raises(TypeError, match="X is a sparse matrix of some distances, and this score needs all of them"):
        trustworthiness(scipy_sparse.csr_array(pairwise_distances(X)), Z, 7, metric="precomputed")


def test_unknown_backend():
    X, Z = small()
    with pytest.raises(ValueError, match="unknown backend 'guess'"):
        neighborhood_preservation(X, Z, 7, backend="guess")


def test_progress_is_shown_only_where_asked_for(capsys):
    X, Z = small()
    trustworthiness(X, Z, 7)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    trustworthiness(X, Z, 7, verbose=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "ranks" in captured.err
