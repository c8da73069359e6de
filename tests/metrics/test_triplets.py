import itertools

import numpy
import pytest
import torch
from sklearn.metrics import pairwise_distances

from cartograd.metrics import random_triplet_accuracy
from cartograd.metrics.sampling import triplets

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def over_all_triplets(X, Z):
    D, E = pairwise_distances(X), pairwise_distances(Z)
    same = [
        numpy.sign(D[i, j] - D[i, m]) == numpy.sign(E[i, j] - E[i, m])
        for i, j, m in itertools.permutations(range(len(X)), 3)
    ]
    return numpy.mean(same)


def test_estimates_the_share_over_all_triplets():
    draw = numpy.random.default_rng(0)
    X = draw.normal(size=(40, 5))
    Z = X[:, :2]
    exact = over_all_triplets(X, Z)
    assert 0.55 < exact < 0.95
    assert abs(random_triplet_accuracy(X, Z, 400_000) - exact) < 0.003  # four standard errors


def test_equals_a_direct_count_over_the_drawn_triplets(table):
    X, Z, _ = table
    i, j, m = (ids.numpy() for ids in triplets(2000, 10_000, 3))
    D, E = pairwise_distances(X), pairwise_distances(Z)
    expected = numpy.mean((D[i, j] < D[i, m]) == (E[i, j] < E[i, m]))
    assert random_triplet_accuracy(X, Z, random_state=3) == pytest.approx(expected, abs=1e-12)
    assert random_triplet_accuracy(D, Z, metric="precomputed", random_state=3) == pytest.approx(expected, abs=1e-12)
    assert random_triplet_accuracy(X, torch.from_numpy(Z), random_state=3) == pytest.approx(expected, abs=1e-12)


def test_triplets_are_different_points_and_all_equally_likely():
    first, second, third = triplets(4, 240_000, 0)
    assert bool(((first != second) & (second != third) & (first != third)).all())
    counts = torch.bincount(first * 16 + second * 4 + third, minlength=64)
    assert int((counts > 0).sum()) == 24
    assert float((counts[counts > 0] - 10_000).abs().max()) < 500  # five standard deviations


def test_perfect_reversed_and_tied_maps():
    X = 2.0 ** numpy.arange(20)[:, None]  # no two distances from one point are equal
    assert random_triplet_accuracy(X, -3 * X) == 1.0
    assert random_triplet_accuracy(X, numpy.zeros((20, 2))) == 0.5
    assert random_triplet_accuracy(numpy.zeros((20, 2)), numpy.zeros((20, 2))) == 1.0
    D = pairwise_distances(X)
    E = D.max() - D
    assert random_triplet_accuracy(D, E, metric="precomputed", embedding_metric="precomputed") == 0.0


def test_seeds(table):
    X, Z, _ = table
    assert random_triplet_accuracy(X, Z, random_state=1) == random_triplet_accuracy(X, Z, random_state=1)
    assert random_triplet_accuracy(X, Z, random_state=1) != random_triplet_accuracy(X, Z, random_state=2)


@pytest.mark.gpu
@gpu
def test_cuda_equals_cpu(table):
    X, Z, _ = (torch.as_tensor(part, dtype=torch.float64) for part in table)
    assert random_triplet_accuracy(X.cuda(), Z.cuda()) == pytest.approx(random_triplet_accuracy(X, Z), abs=1e-9)


def test_refusals():
    with pytest.raises(ValueError, match="X has 2 rows, and a triplet needs 3"):
        random_triplet_accuracy([[0.0], [1.0]], [[0.0], [1.0]])
    with pytest.raises(ValueError, match="n_triplets must be at least 1, got 0"):
        random_triplet_accuracy(numpy.eye(3), numpy.eye(3), 0)
    with pytest.raises(ValueError, match="X has 3 rows and Z has 4"):
        random_triplet_accuracy(numpy.eye(3), numpy.eye(4))
    with pytest.raises(ValueError, match="Input Z contains NaN: first at row 0, column 0"):
        random_triplet_accuracy(numpy.eye(3), numpy.full((3, 2), numpy.nan))
