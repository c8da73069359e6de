"""Whole distance matrices and their tiles against scipy."""

import numpy as np
import oracle
import pytest
import torch
from neighbor_cases import METRICS, data_for

from cartograd.neighbors import distance_tiles, pairwise_distances


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_the_definition(metric, dtype):
    X, Y = data_for(metric).astype(dtype), data_for(metric, n=50, seed=1).astype(dtype)
    loose = {"rtol": 1e-6, "atol": 1e-6 if metric in ("angular", "cosine") else 1e-9}
    np.testing.assert_allclose(pairwise_distances(X, Y, metric=metric), oracle.all_distances(X, Y, metric), **loose)
    square = pairwise_distances(X, metric=metric)
    np.testing.assert_allclose(square, oracle.all_distances(X, X, metric), **loose)
    assert square.dtype == dtype
    assert (np.diag(square) == 0).all()


def test_near_duplicates_keep_their_digits():
    X = np.random.default_rng(0).normal(size=(40, 6)) + 1e5
    X = np.concatenate([X, X, X + 1e-6])
    np.testing.assert_allclose(pairwise_distances(X), oracle.all_distances(X, X, "euclidean"), rtol=1e-9, atol=0)


def test_tiles_are_the_matrix():
    X, Y = torch.randn(100, 4), torch.randn(30, 4)
    whole = pairwise_distances(X, Y)
    assert isinstance(whole, torch.Tensor)
    seen = list(distance_tiles(X, Y, rows=32))
    assert [start for start, _ in seen] == [0, 32, 64, 96]
    assert torch.equal(torch.cat([tile for _, tile in seen]), whole)


def test_functions_and_refusals():
    X = np.random.default_rng(1).normal(size=(20, 3))
    ours = pairwise_distances(X, metric=lambda a, b: (a - b).abs().amax(-1))
    np.testing.assert_allclose(ours, np.abs(X[:, None] - X[None]).max(-1))
    with pytest.raises(ValueError, match="unknown metric 'precomputed'"):
        pairwise_distances(X, metric="precomputed")
    with pytest.raises(ValueError, match="Y has 2 columns, but X has 3"):
        pairwise_distances(X, X[:, :2])
