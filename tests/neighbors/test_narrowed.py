"""Search of float64 rows by way of float32: the neighbors that float64 has."""

import numpy
import pytest
import torch

from cartograd.neighbors import narrowed, search
from cartograd.neighbors import searching as searching_module


def brute(X, k):
    s = ((X[:, None] - X[None]) ** 2).sum(-1)
    numpy.fill_diagonal(s, numpy.inf)
    order = numpy.argsort(s, 1, kind="stable")[:, :k]
    return order, numpy.sqrt(numpy.take_along_axis(s, order, 1))


DATA = {
    "uniform": lambda random: random.rand(2100, 6),
    "far from the origin": lambda random: random.rand(2100, 6) + 1e6,
    "tiny": lambda random: 1e-100 * random.rand(2100, 6),
    "twins that float32 cannot tell apart": lambda random: (
        numpy.repeat(random.rand(1050, 6), 2, 0) + 1e-12 * random.rand(2100, 6)
    ),
    "an outlier": lambda random: numpy.concatenate([random.rand(2099, 6), [[1e7] * 6]]),
}


@pytest.mark.parametrize("name", DATA)
def test_neighbors_and_distances_are_those_of_float64(name):
    X = DATA[name](numpy.random.RandomState(0))
    ids, distances = search(X, 7, backend="exact")
    _, expected = brute(X - X.mean(0), 7)
    assert distances.dtype == numpy.float64
    numpy.testing.assert_allclose(distances, expected, rtol=1e-6, atol=1e-14 * float(expected.max()))
    found = numpy.sqrt(((X[:, None] - X[ids]) ** 2).sum(-1))
    numpy.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-14 * float(expected.max()))


def test_it_is_used_and_leaves_small_data_alone(monkeypatch):
    called = []
    kept = narrowed.widen
    monkeypatch.setattr(searching_module.narrowed, "widen", lambda *a, **k: called.append(1) or kept(*a, **k))
    random = numpy.random.RandomState(0)
    search(random.rand(2100, 4), 5)
    assert called == [1]
    search(random.rand(500, 4), 5)
    search(random.rand(2100, 4).astype("float32"), 5)
    search(torch.from_numpy(random.rand(2100, 4)), 5, metric="manhattan")
    assert called == [1]
