"""The search with compiled kernels: recall, same bits, awkward rows; and when it is not taken."""

import logging

import numpy as np
import oracle
import pytest
import torch

from cartograd.neighbors import compiled_search, search, sketch
from cartograd.neighbors.compiled_search import cell_count

pytestmark = pytest.mark.cpu


@pytest.fixture(autouse=True)
def for_few_rows(monkeypatch):
    monkeypatch.setattr(compiled_search, "FROM_ROWS", 1000)


def clustered(n=4000, d=24, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, d)) * 3
    return (centres[rng.integers(0, 40, n)] + noise * rng.normal(size=(n, d))).astype(np.float32)


def wide(n=4000, d=400, seed=0):
    """Rows near a surface of 12 dimensions in 400."""
    rng = np.random.default_rng(seed)
    return (clustered(n, 12, seed) @ rng.normal(size=(12, d)) + rng.normal(size=(n, d))).astype(np.float32)


def some_recall(X, indices, metric="euclidean", count=600):
    rows = np.random.default_rng(1).choice(len(X), count, replace=False)
    D = oracle.all_distances(X[rows], X, metric)
    D[np.arange(count), rows] = np.inf
    return oracle.recall(indices[rows], np.argsort(D, axis=1, kind="stable")[:, : indices.shape[1]])


def said(caplog, X, k, **kwargs):
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        found = search(X, k, backend="cells", **kwargs)
    return found, caplog.text


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine", "angular"])
@pytest.mark.parametrize("make", [clustered, wide])
def test_recall_and_distances(make, metric, caplog):
    X = make()
    (indices, distances), text = said(caplog, X, 15, metric=metric)
    assert "passes of descent" in text
    assert some_recall(X, indices, metric) >= 0.95
    apart = oracle.all_distances(X[:50], X, metric)
    np.testing.assert_allclose(distances[:50], np.take_along_axis(apart, indices[:50], 1), rtol=1e-5, atol=3e-6)
    assert (np.diff(distances, axis=1) >= 0).all()
    assert (indices != np.arange(len(X))[:, None]).all()
    assert all(len(set(row)) == 15 for row in indices.tolist())


def test_wide_rows_are_sketched(caplog):
    _, text = said(caplog, wide(), 15)
    assert f"rows of {sketch.WIDTH} columns" in text


def test_rows_that_sketches_would_hide_are_searched_as_they_are(caplog, monkeypatch):
    monkeypatch.setattr(sketch, "WIDTH", 3)
    X = wide()
    (indices, _), text = said(caplog, X, 15)
    assert "rows of 400 columns" in text
    assert some_recall(X, indices) >= 0.95


def test_same_bits_at_any_thread_count():
    X = wide(3000)
    X[:300] = X[0]
    threads = torch.get_num_threads()
    try:
        answers = []
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            answers.append(search(X, 10, backend="cells", random_state=5))
    finally:
        torch.set_num_threads(threads)
    for indices, distances in answers[1:]:
        np.testing.assert_array_equal(indices, answers[0][0])
        np.testing.assert_array_equal(distances, answers[0][1])


def test_duplicates():
    X = np.repeat(clustered(n=100), 60, axis=0)
    indices, distances = search(X, 15, backend="cells")
    assert (distances == 0).all()
    assert (indices != np.arange(len(X))[:, None]).all()
    assert (indices // 60 == (np.arange(len(X)) // 60)[:, None]).all()


@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_far_from_the_origin(shift):
    X = (clustered().astype(np.float64) + shift).astype(np.float32)
    indices, distances = search(X, 15, backend="cells")
    assert some_recall(X, indices) >= 0.95
    apart = oracle.all_distances(X[:50], X, "euclidean")
    np.testing.assert_allclose(distances[:50], np.take_along_axis(apart, indices[:50], 1), rtol=1e-5)


def test_wide_and_far_from_the_origin():
    X = wide() + np.float32(1e5)
    assert some_recall(X, search(X, 15, backend="cells")[0]) >= 0.95


def test_constant_rows_and_an_outlier():
    indices, distances = search(np.ones((3000, 4), np.float32), 10, backend="cells")
    assert (distances == 0).all()
    assert (indices != np.arange(3000)[:, None]).all()
    X = clustered()
    X[5] = 1e18
    assert some_recall(X, search(X, 10, backend="cells")[0]) >= 0.95


def test_many_neighbours_and_self():
    X = clustered()
    assert some_recall(X, search(X, 150, backend="cells")[0], count=100) >= 0.95
    indices, distances = search(X, 5, backend="cells", exclude_self=False)
    assert (indices[:, 0] == np.arange(len(X))).all()
    assert (distances[:, 0] == 0).all()


def test_hard_rows_are_searched_exactly(caplog):
    X = np.random.default_rng(0).normal(size=(3000, 200)).astype(np.float32)
    (indices, _), text = said(caplog, X, 10, recall=0.99)
    assert "searching exactly" in text
    assert some_recall(X, indices) == 1.0


@pytest.mark.parametrize("kwargs", [{"queries": clustered(50, seed=3)}, {"X": clustered(900)}])
def test_left_to_torch(kwargs, caplog):
    _, text = said(caplog, kwargs.pop("X", clustered()), 15, **kwargs)
    assert "descent" not in text


def test_cells_grow_with_the_rows():
    assert cell_count(70_000, 15) == 198
    assert cell_count(1_000_000, 15) == 1277
    assert cell_count(1000, 100) == 5
