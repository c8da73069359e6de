"""The cell join: recall where cells suit the data and where they do not, same bits, odd data."""

import logging

import numpy as np
import oracle
import pytest
import torch

from cartograd.neighbors import search
from cartograd.neighbors.calibrate import cell_count, recall_of
from cartograd.neighbors.routing import LIMIT, train
from cartograd.neighbors.rows import TensorRows


def clustered(n=6000, d=24, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, d)) * 3
    return (centres[rng.integers(0, 40, n)] + rng.normal(size=(n, d))).astype(np.float32)


def uniform(n=6000, d=4, seed=0):
    return np.random.default_rng(seed).random((n, d)).astype(np.float32)


def some_recall(X, indices, metric="euclidean", count=600):
    rows = np.random.default_rng(1).choice(len(X), count, replace=False)
    D = oracle.all_distances(X[rows], X, metric)
    D[np.arange(count), rows] = np.inf
    return oracle.recall(indices[rows], np.argsort(D, axis=1, kind="stable")[:, : indices.shape[1]])


@pytest.mark.parametrize("make", [clustered, uniform])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine", "angular"])
def test_recall(make, metric):
    X = make()
    indices, distances = search(X, 15, metric=metric, backend="cells")
    assert some_recall(X, indices, metric) >= 0.95
    apart = oracle.all_distances(X[:50], X, metric)
    np.testing.assert_allclose(distances[:50], np.take_along_axis(apart, indices[:50], 1), rtol=1e-5, atol=3e-6)
    assert (np.diff(distances, axis=1) >= 0).all()
    assert (indices != np.arange(len(X))[:, None]).all()
    assert all(len(set(row)) == 15 for row in indices.tolist())


def test_recall_asked_for_is_met():
    X = clustered()
    recalls = [some_recall(X, search(X, 15, backend="cells", recall=wanted)[0]) for wanted in (0.6, 0.99)]
    assert recalls[0] >= 0.6
    assert recalls[1] >= 0.99


def test_hard_data_are_searched_exactly(caplog):
    """In 200 dimensions without structure no cells help; the search says so and finds all neighbours."""
    X = np.random.default_rng(0).normal(size=(3000, 200)).astype(np.float32)
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        indices, _ = search(X, 10, backend="cells", recall=0.99)
    assert "searching exactly" in caplog.text
    assert some_recall(X, indices) == 1.0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_queries(metric):
    X, Q = clustered(), clustered(n=900, seed=7)
    indices, distances = search(X, 10, metric=metric, backend="cells", queries=Q)
    wanted, apart = oracle.neighbours(X, 10, metric, Q)
    assert indices.shape == (900, 10)
    assert oracle.recall(indices, wanted) >= 0.95
    assert (distances >= apart.astype(np.float32) * (1 - 1e-5) - 1e-6).all()


def test_queries_that_are_rows():
    X = clustered()
    indices, _ = search(X, 5, backend="cells", queries=X[:500], exclude_self=True)
    assert (indices != np.arange(500)[:, None]).all()
    indices, distances = search(X, 5, backend="cells", queries=X[:500])
    assert (indices[:, 0] == np.arange(500)).all()
    assert (distances[:, 0] == 0).all()


def test_self_may_be_included():
    X = clustered(n=2000)
    indices, distances = search(X, 5, backend="cells", exclude_self=False)
    assert (indices[:, 0] == np.arange(2000)).all()
    assert (distances[:, 0] == 0).all()


def test_same_seed_same_bits_at_any_thread_count():
    X = clustered(n=4000, d=7)
    X[:300] = X[0]
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()
    try:
        answers = []
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            torch.rand(count)  # other draws must not matter
            answers.append(search(X, 10, backend="cells", random_state=5))
    finally:
        torch.set_num_threads(threads)
        torch.random.set_rng_state(state)
    for indices, distances in answers[1:]:
        np.testing.assert_array_equal(indices, answers[0][0])
        np.testing.assert_array_equal(distances, answers[0][1])


def test_seeds_differ_and_global_state_is_left_alone():
    X = clustered()
    before = torch.random.get_rng_state()
    first, _ = search(X, 10, backend="cells", random_state=1, recall=0.7)
    second, _ = search(X, 10, backend="cells", random_state=2, recall=0.7)
    assert torch.equal(before, torch.random.get_rng_state())
    assert (first != second).any()


@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_far_from_the_origin(shift):
    X = (clustered().astype(np.float64) + shift).astype(np.float32)
    indices, distances = search(X, 15, backend="cells")
    assert some_recall(X, indices) >= 0.95
    apart = oracle.all_distances(X[:50], X, "euclidean")
    np.testing.assert_allclose(distances[:50], np.take_along_axis(apart, indices[:50], 1), rtol=1e-5)


def test_float64_keeps_its_digits():
    X = clustered().astype(np.float64) + 1e8
    indices, distances = search(X, 10, backend="cells")
    assert distances.dtype == np.float64
    apart = oracle.all_distances(X[:50], X, "euclidean")
    np.testing.assert_allclose(distances[:50], np.take_along_axis(apart, indices[:50], 1), rtol=1e-12)
    assert some_recall(X, indices) >= 0.95


def test_duplicates():
    X = np.repeat(clustered(n=100), 60, axis=0)
    indices, distances = search(X, 15, backend="cells")
    assert (distances == 0).all()
    assert (indices != np.arange(len(X))[:, None]).all()
    assert (indices // 60 == (np.arange(len(X)) // 60)[:, None]).all()
    assert all(len(set(row)) == 15 for row in indices.tolist())


def test_constant_data():
    indices, distances = search(np.ones((3000, 4), np.float32), 10, backend="cells")
    assert (distances == 0).all()
    assert (indices != np.arange(3000)[:, None]).all()


def test_an_outlier_does_not_empty_the_cells():
    X = clustered()
    X[5] = 1e18
    indices, _ = search(X, 10, backend="cells")
    assert some_recall(X, indices) >= 0.95


def test_many_neighbours():
    X = clustered(n=3000)
    indices, _ = search(X, 200, backend="cells")
    assert some_recall(X, indices, count=100) >= 0.95


@pytest.mark.parametrize("n", [2, 3, 10, 60])
def test_few_rows(n):
    X = clustered(n=n)
    indices, _ = search(X, min(n - 1, 7), backend="cells")
    np.testing.assert_array_equal(indices, oracle.neighbours(X, min(n - 1, 7))[0])


def test_cells_are_whole_numbers_that_float32_adds_without_rounding():
    rows = TensorRows(torch.from_numpy(clustered()))
    routing = train(rows, 80, torch.Generator().manual_seed(0))
    assert torch.equal(routing.cells, routing.cells.round())
    assert float(routing.cells.norm(dim=1).max()) <= LIMIT + 24**0.5
    scores = routing.scores(rows.block(0, 500))
    whole = ((rows.block(0, 500) - routing.centre) * routing.scale).double()
    length = whole.norm(dim=1, keepdim=True)
    whole = (whole.float() * (LIMIT / length.float().clamp(min=LIMIT))).round().double()
    cells = routing.cells.double()
    wanted = (cells.square().sum(1) / 2).floor()[None, :] - whole @ cells.T
    assert torch.equal(scores.double(), wanted)


def test_recall_counts_equally_near_rows():
    truth = (torch.tensor([[1, 2]]), torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    found = (torch.tensor([[1, 9]]), torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    assert recall_of(found, truth) == 1.0
    farther = (torch.tensor([[1, 9]]), torch.tensor([[1.0, 2.1]], dtype=torch.float64))
    assert recall_of(farther, truth) == 0.5


def test_cells_hold_enough_rows():
    assert cell_count(70_000, 15) == 397
    assert cell_count(1000, 100) == 5
    assert cell_count(3, 2) == 1
