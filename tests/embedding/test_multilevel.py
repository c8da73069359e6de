"""The smoothest functions on a graph, against ARPACK's eigenvectors and closed forms."""

import numpy as np
import pytest
import scipy.sparse as sparse
from scipy.sparse.linalg import eigsh

from cartograd.embedding.multilevel import gathered, smoothest


def graph(rows, columns, weights, n):
    W = sparse.coo_array((weights, (rows, columns)), shape=(n, n)).tocsr()
    W = ((W + W.T) / 2).tocsr()
    W.sum_duplicates()
    return W


def neighbours_of_points(n=6000, seed=0, k=12):
    """A kNN graph of points in a few blobs that touch each other."""
    from sklearn.neighbors import kneighbors_graph

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 4))[rng.integers(0, 12, n)] * 2 + rng.normal(size=(n, 4))
    W = sparse.csr_array(kneighbors_graph(X, k, mode="distance"))
    W.data = np.exp(-W.data)
    return ((W + W.T) / 2).tocsr()


def normalised(W):
    scale = sparse.diags_array(1 / np.sqrt(np.asarray(W.sum(axis=1)).ravel()))
    return scale @ W @ scale


def degrees_apart(U, V):
    cosines = np.linalg.svd(np.linalg.qr(U)[0].T @ np.linalg.qr(V)[0])[1]
    return float(np.degrees(np.arccos(cosines.clip(-1, 1))).max())


@pytest.mark.parametrize("n", [300, 2000, 6000])
def test_the_eigenvectors_of_arpack(n):
    W = neighbours_of_points(n)
    values, vectors = eigsh(normalised(W), 4, which="LA", tol=1e-9, v0=np.ones(n))
    found = smoothest(W, 2, 0)
    assert degrees_apart(found, vectors[:, ::-1][:, 1:3]) < 1.5
    quotients = 1 - (found * (normalised(W) @ found)).sum(0) / np.square(found).sum(0)
    np.testing.assert_allclose(quotients, 1 - values[::-1][1:3], rtol=5e-3)
    np.testing.assert_allclose(found.T @ np.sqrt(np.asarray(W.sum(axis=1)).ravel()), 0, atol=1e-6)


def test_a_grid_whose_eigenvalues_reach_minus_one():
    """Bipartite, and the first two eigenvalues are equal: 1 - cos(pi / side) about, whatever the pair of vectors."""
    side = 60
    at = np.arange(side * side).reshape(side, side)
    pairs = np.r_[at[:, :-1].ravel(), at[:-1].ravel()], np.r_[at[:, 1:].ravel(), at[1:].ravel()]
    W = graph(*pairs, np.ones(len(pairs[0])), side * side)
    A, found = normalised(W), smoothest(W, 2, 0)
    quotients = 1 - (found * (A @ found)).sum(0) / np.square(found).sum(0)
    wanted = 1 - eigsh(A, 3, which="LA", v0=np.ones(side * side) + np.arange(side * side) / 1000)[0][:2]
    np.testing.assert_allclose(quotients, wanted, rtol=0.15)


def test_a_long_chain_is_followed_from_end_to_end():
    """Eigenvalues of 1e-7, which an iteration on the whole graph does not tell from zero."""
    n = 5000
    ids = np.arange(n)
    W = graph(np.r_[ids[:-1], ids[:-2]], np.r_[ids[1:], ids[2:]], np.ones(2 * n - 3), n)
    first = smoothest(W, 1, 0)[:, 0]
    first *= np.sign(first[-1])
    assert np.corrcoef(first, -np.cos(np.pi * ids / n))[0, 1] > 0.999


@pytest.mark.parametrize("leaves", [500, 5000])
def test_a_star(leaves):
    W = graph(np.zeros(leaves, int), np.arange(1, leaves + 1), np.ones(leaves), leaves + 1)
    found = smoothest(W, 2, 0)
    assert found.shape == (leaves + 1, 2)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.T @ np.sqrt(np.asarray(W.sum(axis=1)).ravel()), 0, atol=1e-5)


def test_groups_are_a_seed_and_rows_beside_it():
    W = neighbours_of_points(2000)
    group = gathered(W, 5)
    count = group.max() + 1
    assert 2000 / 30 < count < 2000 / 3
    assert (np.bincount(group) > 0).all()
    beside = (W + sparse.eye_array(2000)).tocsr()
    for number in range(0, count, 17):
        ids = np.flatnonzero(group == number)
        assert (beside[ids][:, ids] > 0).sum(axis=1).max() == len(ids)


def test_the_seed_decides_and_nothing_else():
    W = neighbours_of_points(1500)
    np.testing.assert_array_equal(smoothest(W, 2, 3), smoothest(W, 2, 3))
    assert (smoothest(W, 2, 3) != smoothest(W, 2, 4)).any()
