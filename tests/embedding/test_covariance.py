"""Sums over rows in tiles, against the same sums over all rows at once in float64."""

import math

import numpy
import pytest
import torch
from scipy import sparse

from cartograd.embedding import covariance as sums
from cartograd.neighbors.intake import intake


def table(n, d, seed=0):
    print("seed", seed)
    return numpy.random.default_rng(seed).normal(size=(n, d)) + numpy.arange(d)


def given(X, kind, folder):
    if kind == "sparse":
        return intake(sparse.csr_array(X), "X", None).rows
    if kind == "file":
        mapped = numpy.memmap(folder / "rows", X.dtype, "w+", shape=X.shape)
        mapped[:] = X
        return intake(mapped, "X", None).rows
    return intake(X, "X", None).rows


@pytest.mark.parametrize("kind", ["memory", "file", "sparse"])
@pytest.mark.parametrize(("n", "d"), [(1, 3), (700, 5), (5000, 40), (300, 600), (9000, 300)])
def test_all_sums(n, d, kind, tmp_path):
    X = table(n, d)
    data = sums.centred(given(X, kind, tmp_path))
    apart = torch.from_numpy(X - X.mean(0))
    V, Y = torch.randn(d, 3, dtype=torch.float64), torch.randn(n, 2, dtype=torch.float64)
    close = {"rtol": 1e-9, "atol": 1e-9 * math.sqrt(n)}
    torch.testing.assert_close(data.mean, torch.from_numpy(X.mean(0)))
    torch.testing.assert_close(sums.covariance(data), apart.T @ apart, **close)
    torch.testing.assert_close(sums.gram_product(data, V), apart.T @ (apart @ V), rtol=1e-9, atol=1e-6)
    torch.testing.assert_close(sums.transposed_product(data, Y), apart.T @ Y, rtol=1e-9, atol=1e-8)
    R = sums.triangle(data, V)
    torch.testing.assert_close(R.T @ R, V.T @ apart.T @ apart @ V, rtol=1e-9, atol=1e-6)
    assert sums.sum_of_squares(data) == pytest.approx(float(apart.square().sum()), rel=1e-12)
    if n <= 700:
        torch.testing.assert_close(sums.inner_products(data), apart @ apart.T, **close)


def test_the_mean_of_rows_far_from_zero():
    X = table(3000, 4) * 1e-3
    data = sums.centred(intake(X + 1e12, "X", None).rows)
    expected = (X + 1e12 - 1e12).mean(0)
    numpy.testing.assert_allclose(data.mean.numpy() - 1e12, expected, atol=2.0**-13)


@pytest.mark.parametrize(
    ("largest", "power"), [(0.0, 0), (1.0, 0), (1e99, 0), (1e-99, 0), (1e300, -997), (1e-300, 996)]
)
def test_scale(largest, power):
    assert sums.power_of_two(largest) == 2.0**power
    assert sums.power_of_two(math.inf) > 0
    assert math.isfinite(sums.power_of_two(5e-324))
