"""pynndescent behind `search`: with a stand-in for what we add, and (slow: it compiles for a minute) for real."""

import logging
import types

import numpy as np
import oracle
import pytest
from scipy import sparse

from cartograd.neighbors import extras, nndescent, search, searching


def clustered(n=3000, d=10, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, d)) * 3
    return (centres[rng.integers(0, 20, n)] + rng.normal(size=(n, d))).astype(np.float32)


class StandIn:
    """Right answers, but with self anywhere, in any order, and holes in some rows."""

    calls: list = []

    def __init__(self, data, metric, n_neighbors, random_state, verbose, **settings):
        StandIn.calls.append((metric, n_neighbors, settings))
        dense = data.toarray() if sparse.issparse(data) else data
        D = oracle.all_distances(dense, dense, metric)
        ids = np.argsort(D, axis=1, kind="stable")[:, :n_neighbors][:, ::-1].astype(np.int32)
        apart = np.take_along_axis(D, ids, 1).astype(np.float32)
        if settings.get("max_candidates", 0) == 0:
            ids, apart = self.spoil(ids, apart)
        self.neighbor_graph = ids, apart

    @staticmethod
    def spoil(ids, apart):
        ids, apart = ids.copy(), apart.copy()
        ids[::10, :3], apart[::10, :3] = -1, np.inf
        return ids, apart


@pytest.fixture
def stand_in(monkeypatch):
    StandIn.calls = []
    monkeypatch.setattr(nndescent, "required", lambda package, backend: types.SimpleNamespace(NNDescent=StandIn))
    return StandIn


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine", "angular", "manhattan"])
def test_self_is_dropped_by_id_and_holes_are_filled(stand_in, metric):
    X = clustered(300)
    indices, distances = search(X, 6, metric=metric, backend="nndescent")
    wanted, apart = oracle.neighbours(X, 6, metric)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "angular", "jaccard"])
def test_sparse(stand_in, metric):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 30)) * (rng.random((200, 30)) < 0.4)
    indices, distances = search(sparse.csr_array(X), 6, metric=metric, backend="nndescent")
    wanted, apart = oracle.neighbours(X, 6, metric)
    if metric != "jaccard":
        np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-4, atol=1e-4)


@pytest.mark.cpu
def test_auto_raises_the_effort_where_recall_falls_short(stand_in, monkeypatch, caplog):
    monkeypatch.setattr(searching, "EXACT_UP_TO", 10)
    monkeypatch.setattr(searching, "available", lambda package: True)
    monkeypatch.setattr(StandIn, "spoil", staticmethod(lambda ids, apart: (np.roll(ids, 7, axis=0), apart)))
    X = clustered(300)
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        indices, _ = search(X, 6, metric="manhattan")
    assert [settings.get("max_candidates") for _, _, settings in stand_in.calls] == [None, 60]
    assert "recall 1.000 on a sample" in caplog.text
    np.testing.assert_array_equal(indices, oracle.neighbours(X, 6, "manhattan")[0])


@pytest.mark.slow
@pytest.mark.skipif(not extras.available("pynndescent"), reason="pynndescent is not installed")
def test_for_real():
    X = clustered()
    Q = X[:100] + np.random.default_rng(3).normal(size=(100, 10)).astype(np.float32) / 2
    for metric in ("euclidean", "manhattan", "cosine"):
        indices, distances = search(X, 10, metric=metric, backend="nndescent", random_state=1)
        assert oracle.recall(indices, oracle.neighbours(X, 10, metric)[0]) >= 0.95
        apart = np.take_along_axis(oracle.all_distances(X, X, metric), indices, 1)
        np.testing.assert_allclose(distances, apart, rtol=1e-5, atol=1e-6)
    found, _ = search(X, 10, backend="nndescent", queries=Q)
    assert oracle.recall(found, oracle.neighbours(X, 10, queries=Q)[0]) >= 0.9
    again, _ = search(X, 10, metric="manhattan", backend="nndescent", random_state=1)
    np.testing.assert_array_equal(search(X, 10, metric="manhattan", backend="nndescent", random_state=1)[0], again)
    rows = sparse.csr_array(np.maximum(X, 0))
    found, _ = search(rows, 10, metric="cosine", backend="nndescent")
    assert oracle.recall(found, oracle.neighbours(rows.toarray(), 10, "cosine")[0]) >= 0.95
