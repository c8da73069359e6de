"""The kernels of the cell join and of a pass of descent, against plain NumPy."""

import numpy as np
import pytest

from cartograd.kernels.cpu import load


@pytest.fixture(scope="module")
def kernels():
    return load("cells_join")


def heaps(n, width):
    return np.full((n, width), np.inf, np.float32), np.full((n, width), -1, np.int32)


def halves(A, B):
    return ((A[:, None].astype(np.float64) - B[None]) ** 2).sum(2) / 2


def test_heaps_keep_the_lowest(kernels):
    values = np.random.default_rng(0).random(200).astype(np.float32)
    value, ids = heaps(1, 9)
    for name, new in enumerate(values):
        if new < value[0, 0]:
            kernels.replace_worst(value[0], ids[0], new, name)
    order = np.argsort(values)[:9]
    assert value[0, 0] == values[order[-1]]
    assert sorted(ids[0].tolist()) == sorted(order.tolist())
    assert kernels.holds(ids[0], int(order[0]))
    assert not kernels.holds(ids[0], int(np.argmax(values)))


def test_a_tile_serves_visitors_and_members(kernels):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 8)).astype(np.float32)
    visitors, first, members = np.array([3, 9, 30, 55], np.int32), 20, 25
    inside, rows = X[first : first + members], X[visitors]
    half = (rows**2).sum(1) / 2
    tile = np.ascontiguousarray(rows @ inside.T - (inside**2).sum(1) / 2)
    value, ids = heaps(60, 5)
    kernels.offer_members(tile, half, visitors, first, 1e-6, True, value, ids)
    wanted = halves(rows, inside)
    wanted[2, 30 - first] = np.inf  # the visitor that is a member itself
    for at, row in enumerate(visitors):
        assert sorted(ids[row].tolist()) == sorted((np.argsort(wanted[at])[:5] + first).tolist())
    limit = np.full(members, 6.0, np.float32)
    place, picked = np.empty(100, np.int32), np.empty(100, np.float32)
    count = kernels.pick_for_members(tile, half, limit, place, picked)
    assert sorted(place[:count].tolist()) == np.flatnonzero(halves(rows, inside).ravel() < 6).tolist()
    assert kernels.pick_for_members(tile, half, limit, place[:2], picked[:2]) == count
    value, ids = heaps(60, 4)
    args = (place[:count], picked[:count], visitors, first, members, np.zeros(members, np.float32), value, ids)
    kernels.offer_visitors(*args)
    kernels.offer_visitors(*args)  # none is taken twice
    near = halves(rows, inside) < 6
    for m in range(members):
        assert set(ids[first + m].tolist()) - {-1} == set(visitors[near[:, m]].tolist())
        assert len(set(ids[first + m].tolist()) - {-1}) == (ids[first + m] >= 0).sum()


@pytest.mark.parametrize("width", [1, 7, 255, 256, 784])
def test_squared_distances(kernels, width):
    a, b = np.random.default_rng(2).normal(size=(2, width)).astype(np.float32)
    wanted = ((a.astype(np.float64) - b) ** 2).sum()
    assert kernels.squared(a, b) == pytest.approx(wanted, rel=2e-6)
    assert kernels.squared_up_to(a, b, np.float32(np.inf)) == pytest.approx(wanted, rel=2e-6)
    assert kernels.squared_up_to(a, b, np.float32(wanted / 3)) > wanted / 3


def test_ranking_is_by_distance_then_id_and_stops_at_the_bound(kernels):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6)).astype(np.float32)
    X[11] = X[4]
    order = rng.permutation(40).astype(np.int32)
    inverse = np.argsort(order)
    apart = halves(X, X) * 2
    value = np.ascontiguousarray(apart[order][:, order] / 2 * 0.5, np.float32)  # lower bounds, as of sketches
    ids = np.tile(np.arange(40, dtype=np.int32), (40, 1))
    np.fill_diagonal(value, np.inf)
    np.fill_diagonal(ids, -1)
    out, raw = np.zeros((40, 7), np.int64), np.zeros((40, 7), np.float32)
    kernels.rank(X, order, X, order, 0, 40, value, ids, 0.9999, out, raw)
    np.fill_diagonal(apart, np.inf)
    wanted = np.argsort(apart, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_allclose(raw, np.take_along_axis(apart, wanted, 1), rtol=1e-5, atol=1e-12)
    value[:, 3:], ids[:, 3:] = np.inf, -1
    kernels.rank(X, order, X, order, 5, 6, value, ids, 0.9999, out, raw)
    assert (out[order[5], 3:] == -1).all()
    assert set(out[order[5], :3].tolist()) == set(order[:3].tolist()) - {int(order[5])}
    assert inverse[order[5]] == 5


def test_ranking_of_rows_that_are_not_among_the_data(kernels):
    rng = np.random.default_rng(6)
    X, asked = rng.normal(size=(30, 300)).astype(np.float32), rng.normal(size=(8, 300)).astype(np.float32)
    order, turns = rng.permutation(30).astype(np.int32), rng.permutation(8).astype(np.int32)
    ids = np.tile(np.arange(30, dtype=np.int32), (8, 1))
    value = rng.random((8, 30)).astype(np.float32)  # says nothing: with a slack of 0 all are measured
    out, raw = np.zeros((8, 4), np.int64), np.zeros((8, 4), np.float32)
    kernels.rank(asked, turns, X, order, 0, 8, value, ids, 0.0, out, raw)
    apart = ((asked[:, None].astype(np.float64) - X[None]) ** 2).sum(2)
    np.testing.assert_array_equal(out, np.argsort(apart, axis=1)[:, :4])
    np.testing.assert_allclose(raw, np.sort(apart, axis=1)[:, :4], rtol=1e-5)


def test_a_pass_of_descent(kernels):
    descent = load("descent")
    rng = np.random.default_rng(4)
    X = rng.normal(size=(50, 5)).astype(np.float32)
    apart = halves(X, X)
    np.fill_diagonal(apart, np.inf)
    value, ids = heaps(50, 6)
    for row in range(50):
        for name in rng.choice(np.delete(np.arange(50), row), 6, replace=False):
            kernels.replace_worst(value[row], ids[row], np.float32(apart[row, name]), name)
    before = ids.copy()
    best, back = np.empty((50, 3), np.int32), np.full((50, 2), -1, np.int32)
    descent.nearest(value, ids, 0, 50, best)
    for row in range(50):
        np.testing.assert_array_equal(best[row], before[row][np.argsort(value[row])[:3]])
    descent.turned(best, back)
    for row in range(50):
        who = [int(i) for t in range(3) for i in np.flatnonzero(best[:, t] == row)]
        assert [int(i) for i in back[row] if i >= 0] == who[:2]
    beside = np.concatenate([best, back], 1)
    descent.descend(X, beside, 0, 30, np.zeros(50, np.int32), value, ids)
    descent.descend(X, beside, 30, 50, np.zeros(50, np.int32), value, ids)
    for row in range(50):
        reached = {int(c) for j in beside[row] if j >= 0 for c in beside[j] if c >= 0} - {row}
        pool = sorted(reached | set(before[row].tolist()), key=lambda c: apart[row, c])
        assert sorted(ids[row].tolist()) == sorted(pool[:6])
