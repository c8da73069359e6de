import numpy
import pytest
import torch
from sklearn.metrics import pairwise_distances
from sklearn.metrics import silhouette_samples as reference_samples
from sklearn.metrics import silhouette_score as reference_score

from cartograd.metrics import silhouette_samples, silhouette_score

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "sqeuclidean"])
def test_equals_scikit_learn(table, metric):
    X, _, labels = table
    assert abs(silhouette_score(X, labels, metric=metric) - reference_score(X, labels, metric=metric)) < 1e-10
    ours = silhouette_samples(X, labels, metric=metric)
    assert numpy.abs(ours - reference_samples(X, labels, metric=metric)).max() < 1e-10


def test_float32(table):
    X, Z, labels = table
    for data in (X, Z):
        narrow = data.astype(numpy.float32)
        expected = reference_samples(narrow.astype(numpy.float64), labels)
        assert numpy.abs(silhouette_samples(narrow, labels) - expected).max() < 1e-6


def test_precomputed(table):
    X, _, labels = table
    D = pairwise_distances(X, metric="manhattan")
    ours = silhouette_samples(D, labels, metric="precomputed")
    assert numpy.abs(ours - reference_samples(D, labels, metric="precomputed")).max() < 1e-10


def test_hyperbolic():
    Z = 0.6 * numpy.tanh(numpy.random.default_rng(1).normal(size=(80, 2)))
    labels = numpy.arange(80) % 3
    room = 1 - (Z**2).sum(1)
    D = numpy.arccosh(1 + 2 * pairwise_distances(Z, metric="sqeuclidean") / (room[:, None] * room)) ** 2
    numpy.fill_diagonal(D, 0)
    ours = silhouette_samples(Z, labels, metric="sqhyperbolic")
    assert numpy.abs(ours - reference_samples(D, labels, metric="precomputed")).max() < 1e-10


@pytest.mark.parametrize("sizes", [[1, 1, 5], [1, 50, 200, 3], [2] * 150])
def test_uneven_classes_and_loners(sizes):
    labels = numpy.random.default_rng(2).permutation(numpy.repeat(numpy.arange(len(sizes)), sizes))
    X = numpy.random.default_rng(3).normal(size=(len(labels), 3))
    assert numpy.abs(silhouette_samples(X, labels) - reference_samples(X, labels)).max() < 1e-10


def test_duplicates_of_one_point_have_0():
    X = numpy.zeros((6, 2))
    assert silhouette_samples(X, [0, 0, 0, 1, 1, 1]).tolist() == [0] * 6
    X[3:] = 1
    assert silhouette_samples(X, [0, 0, 0, 1, 1, 1]).tolist() == [1] * 6


def test_labels_of_every_kind(table):
    _, Z, labels = table
    expected = reference_score(Z, labels)
    names = numpy.array(["a", "c", "b", "zz", "e", "f"])[labels]
    for kind in (labels.tolist(), torch.from_numpy(labels), labels - 1, labels.astype(float), names, names.tolist()):
        assert abs(silhouette_score(Z, kind) - expected) < 1e-10
    assert abs(silhouette_score(torch.from_numpy(Z), labels) - expected) < 1e-10
    assert isinstance(silhouette_samples(torch.from_numpy(Z), labels), torch.Tensor)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_sample_is_that_of_scikit_learn(table, seed):
    X, _, labels = table
    ours = silhouette_score(X, labels, sample_size=300, random_state=seed)
    assert abs(ours - reference_score(X, labels, sample_size=300, random_state=seed)) < 1e-10
    D = pairwise_distances(X)
    of_matrix = silhouette_score(D, labels, metric="precomputed", sample_size=300, random_state=seed)
    assert abs(ours - of_matrix) < 1e-10
    assert silhouette_score(X, labels, sample_size=300, random_state=numpy.random.RandomState(seed)) == ours


class TestWeights:
    def weighted(self, X, labels, weights):
        D, result = pairwise_distances(X), []
        for i in range(len(X)):
            means = {}
            for c in set(labels.tolist()):
                members = [j for j in range(len(X)) if labels[j] == c and j != i]
                mass = sum(weights[j] for j in members)
                means[c] = sum(weights[j] * D[i, j] for j in members) / mass if mass else None
            own = means.pop(labels[i])
            b = min(value for value in means.values() if value is not None)
            result.append(0.0 if own is None else (b - own) / max(own, b))
        return numpy.array(result)

    def test_uneven_classes(self):
        draw = numpy.random.default_rng(4)
        X, labels = draw.normal(size=(90, 3)), numpy.repeat([0, 1, 2, 3], [50, 30, 9, 1])
        weights = draw.uniform(0.1, 3, 90)
        expected = self.weighted(X, labels, weights)
        assert numpy.abs(silhouette_samples(X, labels, weights=weights) - expected).max() < 1e-12
        score = silhouette_score(X, labels, weights=weights)
        assert score == pytest.approx(numpy.average(expected, weights=weights), abs=1e-12)
        assert silhouette_score(X, labels, weights=1000 * weights) == pytest.approx(score, abs=1e-12)

    def test_equal_weights_are_none(self, table):
        X, _, labels = table
        ours = silhouette_samples(X, labels, weights=numpy.full(2000, 1 / 2000))
        assert numpy.abs(ours - reference_samples(X, labels)).max() < 1e-10

    def test_rows_without_weight_are_as_good_as_absent(self, table):
        X, _, labels = table
        weights = (numpy.arange(2000) % 3 > 0).astype(float)
        kept = weights > 0
        assert silhouette_score(X, labels, weights=weights) == pytest.approx(
            reference_score(X[kept], labels[kept]), abs=1e-10
        )

    def test_a_class_without_weight_is_no_neighbour(self):
        X = numpy.array([[0.0], [1.0], [1.1], [9.0], [10.0]])
        labels, weights = [0, 0, 1, 2, 2], [1, 1, 0, 1, 1]
        ours = silhouette_samples(X, labels, weights=weights)
        assert ours[[0, 1, 3, 4]] == pytest.approx(reference_samples(X[[0, 1, 3, 4]], [0, 0, 2, 2]), abs=1e-12)
        assert ours[2] == 0

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1.0, -2.0, 1.0], "weights must not be negative, got -2 at row 1"),
            ([0, 0, 0], "weights are all 0"),
            ([1, 1], "weights has 2 entries and the data have 3 rows"),
            (["a", "b", "c"], "weights must be numbers, got dtype <U1"),
            ([1.0, numpy.nan, 1.0], "weights contains nan at row 1"),
        ],
    )
    def test_refusals(self, weights, message):
        with pytest.raises(ValueError, match=message):
            silhouette_score([[0.0], [1.0], [2.0]], [0, 0, 1], weights=weights)


@pytest.mark.gpu
@gpu
def test_cuda_equals_cpu(table):
    X, _, labels = table
    for metric in ("euclidean", "manhattan", "cosine"):
        ours = silhouette_samples(torch.from_numpy(X).cuda(), labels, metric=metric)
        assert ours.is_cuda
        assert (ours.cpu() - torch.from_numpy(silhouette_samples(X, labels, metric=metric))).abs().max() < 1e-10


def test_the_same_bits_at_any_thread_count(table):
    X, _, labels = table
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            answers.append(silhouette_score(X, labels))
    finally:
        torch.set_num_threads(before)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0], "labels has 1 class for 3 rows: a silhouette needs at least 2"),
        ([0, 1, 2], "labels has 3 classes for 3 rows: a silhouette needs at least 2 and fewer than rows"),
        ([0, 1], "labels has 2 entries and the data have 3 rows; give one label for each row"),
        ([[0], [1], [1]], "labels must have one dimension"),
        ([0.0, numpy.nan, 1.0], "labels contains nan at row 1; mark rows of unknown class with -1"),
        (numpy.array(["a", None, "b"], dtype=object), "labels mixes kinds that cannot be compared"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        silhouette_samples([[0.0], [1.0], [2.0]], labels)


def test_bad_data():
    with pytest.raises(ValueError, match="Input X contains NaN: first at row 1, column 0"):
        silhouette_score([[0.0], [numpy.nan], [2.0]], [0, 0, 1])
    with pytest.raises(ValueError, match="must be 0 on the diagonal, got 2 at row 1"):
        silhouette_score([[0.0, 1, 1], [1, 2, 1], [1, 1, 0]], [0, 0, 1], metric="precomputed")
    with pytest.raises(ValueError, match="the sample has 1 class for 3 rows"):
        silhouette_score(numpy.eye(100), [0] * 99 + [1], sample_size=3, random_state=1)
    with pytest.raises(ValueError, match="sample_size must be at least 2, got 1"):
        silhouette_score(numpy.eye(3), [0, 0, 1], sample_size=1)
