"""Sparse rows give what the same dense rows give."""

import numpy as np
import oracle
import pytest
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from cartograd.neighbors import search

METRICS = ["euclidean", "sqeuclidean", "cosine", "angular", "jaccard", "manhattan", "hamming"]


def matrix(n=200, d=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.3)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "csc_array", "coo_array"])
def test_equals_dense(metric, form):
    dense = matrix()
    indices, distances = search(getattr(sparse, form)(dense), 8, metric=metric)
    wanted, apart = oracle.neighbours(dense, 8, metric)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_equals_scikit_learn(metric):
    rows = sparse.csr_array(matrix())
    apart, wanted = NearestNeighbors(n_neighbors=8, algorithm="brute", metric=metric).fit(rows).kneighbors()
    indices, distances = search(rows, 8, metric=metric)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-7)


@pytest.mark.parametrize("metric", METRICS)
def test_queries_sparse_and_dense(metric):
    X, Q = matrix(), matrix(30, seed=1)
    wanted = oracle.neighbours(X, 5, metric, Q)[0]
    for queries in (sparse.csr_array(Q), Q):
        np.testing.assert_array_equal(search(sparse.csr_array(X), 5, metric=metric, queries=queries)[0], wanted)
    np.testing.assert_array_equal(search(X, 5, metric=metric, queries=sparse.csr_array(Q))[0], wanted)


def test_tiles_and_float32(monkeypatch):
    from cartograd.neighbors import sparse as ours

    monkeypatch.setattr(ours, "TILE_ELEMENTS", 1)
    rows = sparse.csr_array(matrix().astype(np.float32))
    indices, distances = search(rows, 8)
    assert distances.dtype == np.float32
    np.testing.assert_array_equal(indices, oracle.neighbours(rows.toarray(), 8)[0])


def test_duplicates_and_empty_rows():
    dense = np.repeat(matrix(20), 5, axis=0)
    dense[10:15] = 0
    rows = sparse.csr_array(dense)
    indices, distances = search(rows, 4)
    assert (distances == 0).all()
    assert indices[0].tolist() == [1, 2, 3, 4]
    _, cosine = search(rows, 5, metric="cosine")
    np.testing.assert_allclose(cosine[10], [0, 0, 0, 0, 1], atol=1e-12)
    assert (cosine[:10, :4] < 1e-12).all()


def test_the_matrix_is_not_written_to():
    rows = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 2, 0]), np.array([0, 2, 3, 3])), shape=(3, 3))
    assert not rows.has_canonical_format
    before = rows.data.copy(), rows.indices.copy()
    for metric in METRICS:
        search(rows, 1, metric=metric)
    assert np.array_equal(rows.data, before[0])
    assert np.array_equal(rows.indices, before[1])
    assert search(rows, 2)[1][2].tolist() == [3.0, 4.0]
