"""Bad arguments, each with the message it gets before any work is done."""

import re

import numpy as np
import pytest
import torch
from scipy import sparse

import cartograd
from cartograd.neighbors import FaissConfig, search

X = np.random.default_rng(0).normal(size=(10, 3))


def refused(kind, message, *args, **kwargs):
    with pytest.raises(kind, match=re.escape(message)) as caught:
        search(*args, **kwargs)
    assert isinstance(caught.value, cartograd.errors.CartogradError)


def test_k():
    refused(ValueError, "k=10 is too large for 10 rows (a row is not its own neighbour): use k <= 9", X, 10)
    refused(ValueError, "k=11 is too large for 10 rows: use k <= 10", X, 11, exclude_self=False)
    refused(ValueError, "k=1 is too large for 1 rows (a row is not its own neighbour): give more rows", X[:1], 1)
    refused(ValueError, "k must be at least 1, got 0", X, 0)
    refused(ValueError, "k must be at least 1, got -3", X, -3)
    refused(TypeError, "k must be a whole number, got 2.0 of type float", X, 2.0)
    refused(TypeError, "k must be a whole number, got True of type bool", X, True)
    refused(TypeError, "k must be a whole number, got '3' of type str", X, "3")
    refused(TypeError, "k must be a whole number, got None", X, None)
    refused(TypeError, "k must be a whole number", X, torch.tensor(2.5))
    for k in (np.int64(2), torch.tensor(2)):
        assert search(X, k)[0].shape == (10, 2)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_not_finite(value, word):
    bad = X.copy()
    bad[7, 2] = bad[8, 0] = value
    for data in (bad, torch.from_numpy(bad), bad.tolist(), sparse.csr_array(bad)):
        refused(ValueError, f"Input X contains {word}: first at row 7, column 2", data, 3)
    refused(ValueError, f"Input queries contains {word}: first at row 7, column 2", X, 3, queries=bad)
    refused(ValueError, f"Input X contains {word}: first at row 7, column 2", bad, 3, metric="cosine", backend="cells")


def test_masked_cells_are_missing():
    masked = np.ma.MaskedArray(X, mask=np.zeros_like(X, bool))
    masked[4, 1] = np.ma.masked
    refused(ValueError, "contains NaN: first at row 4, column 1", masked, 3)


def test_shapes():
    refused(
        ValueError, "X must have two dimensions (rows, columns), got one, of length 10. Reshape your data", X[:, 0], 3
    )
    refused(ValueError, "got shape (10, 3, 1); flatten each row first", X[:, :, None], 3)
    refused(ValueError, "found 0 sample(s) (shape=(0, 3)) while a minimum of 1 is required.", X[:0], 3)
    refused(ValueError, "0 feature(s) (shape=(10, 0)) while a minimum of 1 is required.", X[:, :0], 3)
    refused(ValueError, "X must have two dimensions", [], 3)
    refused(ValueError, "X must have two dimensions", 5.0, 3)
    refused(ValueError, "X must have two dimensions", torch.zeros(4), 3)
    refused(ValueError, "0 sample(s)", sparse.csr_array((0, 3)), 1)
    refused(ValueError, "the DataLoader gave no batch", torch.utils.data.DataLoader([]), 1)
    images = torch.utils.data.DataLoader(torch.zeros(4, 3, 2), batch_size=2)
    refused(ValueError, "a batch of X must have two dimensions", images, 1)


def test_kinds_of_numbers():
    refused(ValueError, "X must hold numbers, got dtype object", np.array([["a", 1], [None, 2]], dtype=object), 1)
    refused(ValueError, "X must hold numbers, got dtype <U1", np.array([["a", "b"]]), 1)
    refused(ValueError, "Complex data not supported", X + 1j, 1)
    refused(ValueError, "Complex data not supported", torch.zeros(3, 2, dtype=torch.complex64), 1)
    refused(ValueError, "X must hold numbers, got dtype datetime64", np.zeros((3, 2), "datetime64[s]"), 1)
    refused(ValueError, "its rows may differ in length", [[1.0, 2.0], [3.0]], 1)
    refused(TypeError, "X is None", None, 1)
    refused(TypeError, "X is a string", "data.csv", 1)


def test_names():
    refused(
        ValueError,
        "unknown metric 'euclid': known are angular, cosine, euclidean, hamming, jaccard, manhattan, precomputed, "
        "sqeuclidean, sqhyperbolic, or a function of two Tensors",
        X, 3, metric="euclid",
    )  # fmt: skip
    refused(TypeError, "metric must be a name or a function of two Tensors, got 2 of type int", X, 3, metric=2)
    refused(
        ValueError, "unknown backend 'annoy': known are auto, exact, cells, faiss, nndescent", X, 3, backend="annoy"
    )
    refused(TypeError, "backend must be a name or a FaissConfig, got 3", X, 3, backend=3)
    refused(
        ValueError,
        "backend 'cells' does not serve metric 'manhattan', only angular, cosine, euclidean, sqeuclidean",
        X, 3, backend="cells", metric="manhattan",
    )  # fmt: skip
    refused(
        ValueError, "does not serve metric 'a function'", X, 3, backend="nndescent", metric=lambda a, b: (a - b).sum(-1)
    )
    refused(TypeError, "backend 'cells' takes dense data", sparse.csr_array(X), 3, backend="cells")
    refused(
        ValueError,
        "backend 'faiss' does not serve metric 'precomputed'",
        np.zeros((4, 4)),
        3,
        backend="faiss",
        metric="precomputed",
    )


def test_queries():
    refused(ValueError, "queries has 2 columns, but X has 3", X, 3, queries=X[:, :2])
    refused(ValueError, "there are 10 queries and 5 rows", X[:5], 3, queries=X, exclude_self=True)
    refused(ValueError, "queries must have two dimensions", X, 3, queries=X[0])


def test_precomputed():
    D = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    refused(ValueError, "takes the square matrix of all distances, got shape (5, 4)", D[:, :4], 2, metric="precomputed")
    negative = D.copy()
    negative[3, 1] = -0.5
    refused(ValueError, "precomputed distances cannot be negative, got -0.5", negative, 2, metric="precomputed")
    negative[3, 1] = np.nan
    refused(ValueError, "Input X contains NaN: first at row 3, column 1", negative, 2, metric="precomputed")
    stored = sparse.csr_array(np.triu(D))
    refused(
        ValueError, "row 3 of the sparse distance matrix stores 1 neighbours, and k=2", stored, 2, metric="precomputed"
    )
    refused(
        ValueError, "finite and not negative, got -1 at row 0, column 1", sparse.csr_array(-D), 2, metric="precomputed"
    )
    refused(ValueError, "queries has 4 columns, but X has 5", D, 2, metric="precomputed", queries=D[:2, :4])


def test_hyperbolic_rows_lie_inside_the_ball():
    ball = X / 10
    ball[6] = [0.9, 0.9, 0.9]
    refused(
        ValueError, "takes points inside the unit ball, and row 6 of X has length 1.558", ball, 3, metric="sqhyperbolic"
    )


def test_other_options():
    refused(ValueError, "recall must be above 0 and at most 1 and finite, got 1.5", X, 3, recall=1.5)
    refused(ValueError, "random_state must not be negative, got -1", X, 3, random_state=-1)
    refused(TypeError, "random_state must be a whole number", X, 3, random_state="x")
    with pytest.raises(ValueError, match="index_type must be one of 'Flat', 'IVF', 'IVFPQ', 'HNSW', got 'LSH'"):
        FaissConfig(index_type="LSH")
    with pytest.raises(ValueError, match="nprobe must be at least 1 and at most 1048576, got 0"):
        FaissConfig(nprobe=0)


def test_functions_that_are_no_metric():
    refused(TypeError, "gives no distances", X, 3, metric=lambda a, b: "far")
    refused(ValueError, "distances must be finite", X, 3, metric=lambda a, b: (a - b).sum(-1) / 0.0)
