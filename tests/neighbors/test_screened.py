"""Exact search by lower bounds: the same answer as by tiles, to the last bit; and when it is not taken."""

import logging

import numpy as np
import oracle
import pytest
import torch

from cartograd.kernels import cpu
from cartograd.neighbors import screened, search

pytestmark = pytest.mark.cpu


@pytest.fixture(autouse=True)
def for_few_rows(monkeypatch):
    cpu.load("screening")
    monkeypatch.setattr(screened, "LEAST_ROWS", 500)


def surface(n=1500, d=800, seed=0, noise=0.05):
    """Clusters near a surface of 12 dimensions in 800."""
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(20, 12))[rng.integers(0, 20, n)] * 2 + rng.normal(size=(n, 12))
    return (places @ rng.normal(size=(12, d)) + noise * rng.normal(size=(n, d))).astype(np.float32)


def with_duplicates():
    X = surface()
    X[100:140] = X[7]  # more equal rows than a list has room for
    X[200:800] = X[300:900]
    return X


def far_away():
    return surface() + np.float32(3000)


def outlier():
    X = surface()
    X[3] *= 1e4
    return X


def by_tiles(monkeypatch, X, k, **kwargs):
    with monkeypatch.context() as changed:
        changed.setattr(screened, "LEAST_ROWS", 10**9)
        return search(X, k, backend="exact", **kwargs)


@pytest.mark.parametrize("make", [surface, with_duplicates, far_away, outlier])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_bits_of_the_search_by_tiles(make, metric, monkeypatch, caplog):
    X = make()
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        found = search(X, 15, backend="exact", metric=metric)
    assert "by lower bounds" in caplog.text
    for ours, wanted in zip(found, by_tiles(monkeypatch, X, 15, metric=metric), strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("k", [1, 20])
@pytest.mark.parametrize("exclude_self", [True, False])
def test_exact(k, exclude_self, caplog):
    X = surface()
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        indices, _ = search(X, k, backend="exact", exclude_self=exclude_self)
    assert "by lower bounds" in caplog.text
    apart = oracle.all_distances(X, X, "euclidean")
    if exclude_self:
        np.fill_diagonal(apart, np.inf)
    np.testing.assert_array_equal(indices, np.argsort(apart, axis=1, kind="stable")[:, :k])


def test_same_bits_at_any_thread_count():
    X, before = surface(), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(search(X, 15, backend="exact"))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_without_directions_are_searched_by_tiles(caplog):
    X = np.random.default_rng(0).normal(size=(1500, 800)).astype(np.float32)
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        search(X, 15, backend="exact")
    assert "by lower bounds" not in caplog.text


def test_nobody_waits_for_a_compiler(monkeypatch, caplog):
    prepared = []
    monkeypatch.setattr(cpu, "at_hand", lambda name: False)
    monkeypatch.setattr(cpu, "prepare", lambda *names: prepared.extend(names))
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        search(surface(), 15, backend="exact")
    assert "by lower bounds" not in caplog.text
    assert prepared == ["screening"]


@pytest.mark.parametrize("changed", [{"metric": "manhattan"}, {"metric": "cosine"}, {"queries": surface(600, seed=1)}])
def test_other_searches_are_made_by_tiles(changed, caplog):
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        search(surface(600), 5, backend="exact", **changed)
    assert "by lower bounds" not in caplog.text
