import numpy
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score as reference

from cartograd.metrics import adjusted_rand_score, kmeans_ari
from cartograd.metrics.kmeans import kmeans

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("seed", range(20))
def test_rand_index_equals_scikit_learn_exactly(seed):
    draw = numpy.random.default_rng(seed)
    n = int(draw.integers(2, 3000))
    a, b = (draw.integers(0, draw.integers(1, 30), n) for _ in range(2))
    b = numpy.where(draw.random(n) < draw.random(), a, b)
    assert adjusted_rand_score(a, b) == reference(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0]),
        ([0, 0, 0], [0, 1, 2]),
        ([0, 0], [5, 5]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 0, 1, 1], [0, 1, 0, 1]),
    ],
)
def test_rand_index_of_special_cases(a, b):
    assert adjusted_rand_score(a, b) == reference(a, b)
    assert adjusted_rand_score(torch.tensor(a), ["abcdef"[i] for i in b]) == reference(a, b)


def test_rand_index_of_many_rows_does_not_overflow():
    a = numpy.arange(3_000_000) % 2
    assert adjusted_rand_score(a, a[::-1]) == 1.0
    assert adjusted_rand_score(a, numpy.arange(3_000_000) // 1_500_000) == reference(
        a, numpy.arange(3_000_000) // 1_500_000
    )


def test_lloyd_ends_where_scikit_learn_does():
    X, _ = make_blobs(600, n_features=5, centers=6, cluster_std=3.0, random_state=4)
    start = X[:6] + 0.1
    theirs = KMeans(6, init=start, n_init=1, tol=0, algorithm="lloyd").fit(X)
    ours = kmeans(torch.from_numpy(X), 6, tol=0.0, start=torch.from_numpy(start))
    assert (ours.labels.numpy() == theirs.labels_).all()
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-9)
    assert numpy.abs(ours.centres.numpy() - theirs.cluster_centers_).max() < 1e-9


def test_digits_are_clustered_as_well_as_by_scikit_learn():
    X, y = load_digits(return_X_y=True)
    theirs = KMeans(10, n_init=10, random_state=0).fit(X)
    ours = kmeans(torch.from_numpy(X), 10)
    assert ours.inertia <= 1.001 * theirs.inertia_
    assert kmeans_ari(X, y) == reference(y, ours.labels.numpy())
    assert abs(kmeans_ari(X, y) - reference(y, theirs.labels_)) < 0.03


def test_blobs_far_from_the_origin_very_large_and_very_small():
    X, y = make_blobs(500, centers=5, cluster_std=0.1, random_state=1)
    assert kmeans_ari(X + 1e6, y) == 1.0
    assert kmeans_ari(1e200 * X, y) == kmeans_ari(1e-200 * X, y) == 1.0
    assert kmeans_ari(torch.from_numpy(X), [str(label) for label in y]) == 1.0
    assert kmeans_ari(X, numpy.where(numpy.arange(500) % 3 == 0, -1, y)) == 1.0


def test_fewer_distinct_points_than_clusters_and_empty_clusters():
    X = numpy.repeat([[0.0, 0.0], [1.0, 1.0]], 5, axis=0)
    assert kmeans_ari(X, numpy.repeat([0, 1], 5), n_clusters=4) == 1.0
    start = torch.tensor([[0.0, 0.0], [100.0, 100.0]], dtype=torch.float64)  # nobody is near the second
    assert kmeans(torch.from_numpy(X), 2, start=start).inertia == 0


def test_the_same_bits_and_no_global_draws(table):
    X, _, labels = table
    state = torch.random.get_rng_state(), numpy.random.get_state()[1].copy()
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found = kmeans(torch.from_numpy(X), 6, n_init=2)
            answers.append((found.labels.tolist(), found.centres.tolist(), found.inertia))
            torch.rand(3, generator=torch.Generator().manual_seed(threads))
    finally:
        torch.set_num_threads(before)
    assert answers[0] == answers[1] == answers[2]
    assert kmeans_ari(X, labels) == kmeans_ari(X, labels)
    assert torch.equal(state[0], torch.random.get_rng_state())
    assert (state[1] == numpy.random.get_state()[1]).all()


@pytest.mark.gpu
@gpu
def test_cuda_equals_cpu():
    X, y = make_blobs(500, centers=5, cluster_std=1.0, random_state=1)
    assert kmeans_ari(torch.from_numpy(X).cuda(), y) == kmeans_ari(X, y)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 0], {}, "labels have 1 class only"),
        ([0, 1, -1], {"n_clusters": 3}, "n_clusters=3 is more than the 2 labelled rows"),
        ([0, 1], {}, "labels has 2 entries and the data have 3 rows"),
        ([0, 1, 1], {"n_init": 0}, "n_init must be at least 1, got 0"),
        ([0, 1, 1], {"random_state": -1}, "random_state must not be negative"),
    ],
)
def test_refusals(labels, options, message):
    with pytest.raises(ValueError, match=message):
        kmeans_ari([[0.0], [1.0], [2.0]], labels, **options)


def test_bad_data():
    with pytest.raises(ValueError, match="Input Z contains infinity: first at row 2, column 0"):
        kmeans_ari([[0.0], [1.0], [numpy.inf]], [0, 1, 1])
    with pytest.raises(TypeError, match=r"max_iter must be a whole number, got 2\.5"):
        kmeans_ari([[0.0], [1.0], [3.0]], [0, 1, 1], max_iter=2.5)
    with pytest.raises(ValueError, match="labels_pred has 3 entries and the data have 2 rows"):
        adjusted_rand_score([0, 1], [0, 1, 2])
