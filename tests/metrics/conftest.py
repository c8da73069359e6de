import numpy
import pytest


@pytest.fixture(params=[0, 1])
def table(request):
    """2,000 points in 20 dimensions, a map that keeps some of their neighbourhoods, and six classes."""
    print("seed", request.param)
    draw = numpy.random.default_rng(request.param)
    labels = draw.integers(0, 6, 2000)
    X = draw.normal(size=(2000, 20)) + 2 * draw.normal(size=(6, 20))[labels]
    Z = X[:, :2] + 0.3 * draw.normal(size=(2000, 2))
    return X, Z, labels
