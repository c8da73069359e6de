"""Neighbours read off distances that were computed elsewhere."""

import numpy as np
import oracle
import pytest
import torch
from scipy import sparse
from sklearn.neighbors import NearestNeighbors, kneighbors_graph

from cartograd.neighbors import search, tiles

X = np.random.default_rng(0).normal(size=(150, 4))
D = oracle.all_distances(X, X, "euclidean")


@pytest.mark.parametrize("tile", [64, 4096])
def test_equals_the_search_that_the_distances_came_from(tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_ROWS", tile)
    indices, distances = search(D, 6, metric="precomputed")
    wanted, apart = oracle.neighbours(X, 6)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(distances, apart)
    assert isinstance(search(torch.from_numpy(D), 6, metric="precomputed")[0], torch.Tensor)


def test_equals_scikit_learn():
    apart, wanted = NearestNeighbors(n_neighbors=6, metric="precomputed").fit(D).kneighbors()
    indices, distances = search(D, 6, metric="precomputed")
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(distances, apart)


def test_ties_by_index():
    ties = np.round(D)
    np.fill_diagonal(ties, 0)
    wanted = ties.copy()
    np.fill_diagonal(wanted, np.inf)
    indices, _ = search(ties, 20, metric="precomputed")
    np.testing.assert_array_equal(indices, np.argsort(wanted, axis=1, kind="stable")[:, :20])


def test_self_and_queries():
    assert search(D, 3, metric="precomputed", exclude_self=False)[0][:, 0].tolist() == list(range(150))
    indices, _ = search(D, 3, metric="precomputed", queries=D[:5])
    assert indices[:, 0].tolist() == [0, 1, 2, 3, 4]
    everything, _ = search(D, 149, metric="precomputed")
    assert all(len(set(row)) == 149 for row in everything.tolist())


def test_a_sparse_matrix_of_some_pairs():
    graph = kneighbors_graph(X, 12, mode="distance")
    indices, distances = search(graph, 6, metric="precomputed")
    wanted, apart = oracle.neighbours(X, 6)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-12)
    with_self = graph + sparse.diags_array(np.zeros(150))
    np.testing.assert_array_equal(search(with_self, 6, metric="precomputed")[0], wanted)


def test_a_memmap_of_distances(tmp_path):
    np.save(tmp_path / "d.npy", D)
    indices, _ = search(np.load(tmp_path / "d.npy", mmap_mode="r"), 6, metric="precomputed")
    np.testing.assert_array_equal(indices, oracle.neighbours(X, 6)[0])
