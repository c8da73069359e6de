import numpy
import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, spearmanr

from cartograd.metrics import distance_correlation
from cartograd.metrics.sampling import pairs

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
REFERENCE = {"pearson": pearsonr, "spearman": spearmanr}


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "sqeuclidean"])
def test_exact_for_few_points(table, kind, metric):
    X, Z, _ = table
    X, Z = X[:1000], Z[:1000]
    theirs = {"manhattan": "cityblock"}.get(metric, metric)
    expected = REFERENCE[kind](pdist(X, theirs), pdist(Z)).statistic
    assert abs(distance_correlation(X, Z, kind=kind, metric=metric) - expected) < 1e-12
    D = squareform(pdist(X, theirs))
    assert abs(distance_correlation(D, Z, kind=kind, metric="precomputed") - expected) < 1e-12


def test_ties_share_their_mean_rank():
    draw = numpy.random.default_rng(1)
    X, Z = draw.integers(0, 3, (100, 3)), draw.integers(0, 3, (100, 2))
    expected = spearmanr(pdist(X, "sqeuclidean"), pdist(Z, "sqeuclidean")).statistic
    assert abs(distance_correlation(X, Z) - expected) < 1e-12


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_sampled_for_many(table, kind):
    X, Z, _ = table
    left, right = (ids.numpy() for ids in pairs(2000, 50_000, 5))
    assert len(left) == 50_000
    assert (left != right).all()
    D, E = squareform(pdist(X)), squareform(pdist(Z))
    ours = distance_correlation(X, Z, kind=kind, n_pairs=50_000, random_state=5)
    assert abs(ours - REFERENCE[kind](D[left, right], E[left, right]).statistic) < 1e-12
    assert abs(ours - REFERENCE[kind](pdist(X), pdist(Z)).statistic) < 0.02
    assert ours == distance_correlation(X, Z, kind=kind, n_pairs=50_000, random_state=5)


def test_the_default_is_spearman_and_scales_do_not_matter():
    X = numpy.random.default_rng(2).normal(size=(50, 3))
    assert distance_correlation(X, 1e-30 * X**3) == pytest.approx(
        distance_correlation(X, X**3, kind="spearman"), abs=1e-12
    )
    assert distance_correlation(X, -7 * X, kind="pearson") == pytest.approx(1.0, abs=1e-12)


def test_the_same_bits_at_any_thread_count(table):
    X, Z, _ = table
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            answers.append([distance_correlation(X, Z, kind=kind, n_pairs=200_000) for kind in REFERENCE])
    finally:
        torch.set_num_threads(before)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.gpu
@gpu
def test_cuda_equals_cpu(table):
    X, Z, _ = (torch.as_tensor(part, dtype=torch.float64) for part in table)
    for kind in REFERENCE:
        assert distance_correlation(X.cuda(), Z.cuda(), kind=kind) == pytest.approx(
            distance_correlation(X, Z, kind=kind), abs=1e-9
        )


def test_refusals():
    X = numpy.eye(4)[:, :2]
    with pytest.raises(ValueError, match="unknown kind 'kendall': known are spearman, pearson"):
        distance_correlation(X, X, kind="kendall")
    with pytest.raises(ValueError, match="all distances in Z are equal"):
        distance_correlation(X, numpy.zeros((4, 2)))
    with pytest.raises(ValueError, match="X has 4 rows and Z has 3"):
        distance_correlation(X, X[1:])
    with pytest.raises(ValueError, match="X has 2 rows; distances of at least 3 points"):
        distance_correlation(X[:2], X[:2])
    with pytest.raises(ValueError, match="n_pairs must be at least 2, got 1"):
        distance_correlation(X, X, n_pairs=1)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        distance_correlation(X * numpy.nan, X)
