"""Kernels of the search by lower bounds, against plain NumPy."""

import numpy as np
import pytest

from cartograd.kernels.cpu import load


@pytest.fixture(scope="module")
def kernels():
    return load("screening")


@pytest.mark.parametrize(("least", "wanted"), [(2.5, True), (3.0, True), (3.1, False)])
@pytest.mark.parametrize("at", [0, 7, 16])
def test_reaches(kernels, least, wanted, at):
    values = np.zeros(17, np.float32)
    values[at] = 3
    assert kernels.reaches(values, np.float32(least)) is wanted


@pytest.mark.parametrize("own", [-1, 4])
def test_lowest(kernels, own):
    scores = np.random.default_rng(0).normal(size=203).astype(np.float32)
    bound, near = np.empty(9, np.float32), np.empty(9, np.int32)
    kernels.lowest(scores, np.float32(1), own, bound, near)
    wanted = [m for m in np.argsort(-scores) if m != own][:9]
    np.testing.assert_array_equal(near, wanted)
    np.testing.assert_array_equal(bound, np.float32(1) - scores[wanted])


def test_fewer_than_wanted(kernels):
    bound, near = np.empty(5, np.float32), np.empty(5, np.int32)
    kernels.lowest(np.float32([1, 2, 3]), np.float32(9), 1, bound, near)
    assert near.tolist() == [2, 0, -1, -1, -1]
    assert np.isinf(bound[2:]).all()


def test_nearest(kernels):
    """Bounds in the first 4 of 40 columns, then in the next 6: all that is left out is farther than the k-th."""
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(400, 40)) * np.r_[np.full(4, 3.0), np.full(6, 2.0), np.full(30, 0.3)]).astype(np.float32)
    few, more, k, first = data[:, :4], np.ascontiguousarray(data[:, 4:10]), 7, 100
    half = (few**2).sum(1) / 2
    tile = np.ascontiguousarray(few[first : first + 50] @ few.T - half)
    value, ids = np.zeros((400, k + 3), np.float32), np.zeros((400, k + 3), np.int32)
    slack = np.full(50, 1e-4, np.float32)
    count = kernels.nearest(
        tile, half[first : first + 50], more, data, slack, first, k, True, np.float32(1.0001), value, ids
    )
    assert count < 0.2 * 50 * 400
    apart = ((data[first : first + 50, None].astype(float) - data) ** 2).sum(2)
    apart[np.arange(50), np.arange(first, first + 50)] = np.inf
    np.testing.assert_array_equal(ids[first : first + 50, :k], np.argsort(apart, 1)[:, :k])
    np.testing.assert_allclose(value[first : first + 50, :k], np.sort(apart, 1)[:, :k], rtol=1e-5)
    assert not value[:first].any()
    assert not value[first + 50 :].any()
