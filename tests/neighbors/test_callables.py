"""Distances of the caller's own, written for tiles or for pairs."""

import logging

import numpy as np
import oracle
import pytest
import torch
from scipy.spatial import distance

from cartograd.neighbors import callables, search

X = np.random.default_rng(0).normal(size=(60, 5))


def tiled(a, b):
    return (a - b).abs().sum(-1)


def paired(a, b):
    return (a - b).abs().sum()


def norm(a, b):
    return torch.linalg.vector_norm(a - b, ord=1, dim=-1)


def branching(a, b):
    difference = float((a - b).abs().sum())
    return difference if difference > 0 else 0.0


@pytest.mark.parametrize(
    "function", [tiled, paired, norm, branching, pytest.param(distance.cityblock, marks=pytest.mark.cpu)]
)
def test_equals_the_named_metric(function):
    indices, distances = search(X, 6, metric=function)
    wanted, apart = oracle.neighbours(X, 6, "manhattan")
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-9)


def test_not_symmetric():
    def ahead(a, b):
        return torch.relu(b - a).sum(-1) + 2 * torch.relu(a - b).sum(-1)

    indices, _ = search(X, 4, metric=ahead)
    D = np.maximum(X[None] - X[:, None], 0).sum(-1) + 2 * np.maximum(X[:, None] - X[None], 0).sum(-1)
    np.fill_diagonal(D, np.inf)
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1, kind="stable")[:, :4])


def test_negative_values_only_order():
    indices, values = search(X, 3, metric=lambda a, b: -(a * b).sum(-1))
    D = -(X @ X.T)
    np.fill_diagonal(D, np.inf)
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1)[:, :3])
    assert (values < 0).any()


def test_queries_and_pieces(monkeypatch):
    monkeypatch.setattr(callables, "PIECE_ELEMENTS", 400)
    indices, _ = search(X, 6, metric=tiled, queries=X[:7] + 0.1)
    np.testing.assert_array_equal(indices, oracle.neighbours(X, 6, "manhattan", X[:7] + 0.1)[0])


def test_a_loop_is_announced(caplog):
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        search(X[:8], 2, metric=branching)
    assert "pair by pair" in caplog.text


def test_two_rows():
    assert search(X[:2], 1, metric=tiled)[0].tolist() == [[1], [0]]
