"""Gaussian, Student, their normalised forms, self-tuning and MAGIC: values, marginals, gradients."""

import numpy
import pytest
import torch
from scipy.spatial.distance import cdist

import cartograd
from cartograd.affinity import (
    GaussianAffinity,
    MAGICAffinity,
    NormalizedGaussianAffinity,
    NormalizedStudentAffinity,
    SelfTuningAffinity,
    StudentAffinity,
)
from cartograd.errors import OptionError, UnsupportedError


def points(n=40, d=3, seed=0):
    return numpy.random.default_rng(seed).normal(size=(n, d))


def off(n):
    return 1 - numpy.eye(n)


@pytest.mark.parametrize("zero_diag", [True, False])
def test_kernels_by_hand(zero_diag):
    C = cdist(points(), points(), "sqeuclidean")
    keep = off(40) if zero_diag else 1.0
    numpy.testing.assert_allclose(GaussianAffinity(2.5, zero_diag=zero_diag)(points()), keep * numpy.exp(-C / 2.5))
    student = StudentAffinity(3, zero_diag=zero_diag)(points())
    numpy.testing.assert_allclose(student, keep * (1 + C / 3) ** -2.0)


def test_precomputed_and_other_metrics():
    D = cdist(points(), points(), "cityblock")
    expected = off(40) * numpy.exp(-D)
    numpy.testing.assert_allclose(GaussianAffinity(metric="manhattan")(points()), expected)
    numpy.testing.assert_allclose(GaussianAffinity(metric="precomputed")(D), expected)


@pytest.mark.parametrize("kind", [NormalizedGaussianAffinity, NormalizedStudentAffinity])
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64])
def test_normalised(kind, dtype):
    X, tolerance = points().astype(dtype), 1e-4 if dtype == numpy.float32 else 1e-8
    assert float(kind()(X).sum()) == pytest.approx(1, abs=tolerance)
    for dim in (0, 1):
        P = kind(normalization_dim=dim)(X)
        numpy.testing.assert_allclose(40 * P.sum(dim), 1, atol=tolerance)
    plain = (GaussianAffinity if kind is NormalizedGaussianAffinity else StudentAffinity)()(X)
    numpy.testing.assert_allclose(kind(normalization_dim=None)(X), plain)
    numpy.testing.assert_allclose(kind()(X), plain / plain.sum(), rtol=1e-4)


def test_far_rows_underflow_in_no_logarithm():
    log_P = NormalizedGaussianAffinity(normalization_dim=1)(points() * 1e3, log=True)
    assert bool(torch.isfinite(log_P[~torch.eye(40, dtype=torch.bool)]).all())
    numpy.testing.assert_allclose(40 * log_P.exp().sum(1), 1, atol=1e-8)


@pytest.mark.parametrize(
    "affinity",
    [
        GaussianAffinity(2.0),
        StudentAffinity(1.5, zero_diag=False),
        NormalizedGaussianAffinity(),
        NormalizedStudentAffinity(normalization_dim=1),
        NormalizedStudentAffinity(2.0, normalization_dim=0, zero_diag=False),
    ],
    ids=repr,
)
def test_gradients_and_logs(affinity):
    x = cartograd.Tensor(torch.from_numpy(points(5, 2)), requires_grad=True)
    assert cartograd.gradcheck(lambda x: affinity(x), x)
    value = affinity(x)
    assert isinstance(value, cartograd.Tensor)
    torch.testing.assert_close(value.data, affinity(x.data), atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(affinity(x, log=True).exp().data, value.data)


def test_self_tuning_is_the_papers():
    D = cdist(points(), points())
    sigma = numpy.sort(D, 1)[:, 7]  # place 0 is the row itself
    expected = off(40) * numpy.exp(-(D**2) / numpy.outer(sigma, sigma))
    numpy.testing.assert_allclose(SelfTuningAffinity(normalization_dim=None)(points()), expected, atol=1e-14)
    numpy.testing.assert_allclose(SelfTuningAffinity()(points()), expected / expected.sum(), atol=1e-14)
    rows = SelfTuningAffinity(normalization_dim=1)(points())
    numpy.testing.assert_allclose(rows, expected / expected.sum(1, keepdims=True), atol=1e-14)


def test_magic_by_hand():
    C = cdist(points(), points(), "sqeuclidean")
    A = numpy.exp(-C / numpy.sort(C, 1)[:, 4:5])
    A = off(40) * (A + A.T)
    numpy.testing.assert_allclose(MAGICAffinity(K=4)(points()), A / A.sum(1, keepdims=True), atol=1e-14)


@pytest.mark.parametrize("affinity", [SelfTuningAffinity(), SelfTuningAffinity(normalization_dim=1), MAGICAffinity()])
@pytest.mark.parametrize("data", [numpy.ones((12, 2)), numpy.repeat(points(3), 9, 0)], ids=["constant", "repeated"])
def test_equal_rows_give_no_nan(affinity, data):
    P = affinity(data)
    assert bool(torch.isfinite(P).all())
    if affinity.__class__ is MAGICAffinity or affinity.normalization_dim == 1:
        numpy.testing.assert_allclose(P.sum(1), 1)


def test_equal_rows_are_alike_and_others_are_not():
    P = MAGICAffinity()(numpy.repeat(points(3), 9, 0))
    same = numpy.kron(numpy.eye(3), numpy.ones((9, 9))) - numpy.eye(27)
    numpy.testing.assert_allclose(P, same / 8)


def test_errors():
    with pytest.raises(OptionError, match="sigma must be above 0 and finite, got 0"):
        GaussianAffinity(0)
    with pytest.raises(OptionError, match="degrees_of_freedom must be above 0 and finite, got -1"):
        StudentAffinity(-1)
    with pytest.raises(OptionError, match=r"normalization_dim must be one of \(0, 1\), 0, 1, None, got 2"):
        NormalizedGaussianAffinity(normalization_dim=2)
    with pytest.raises(OptionError, match="an affinity needs at least 2 rows, got 1"):
        NormalizedStudentAffinity()(points(1))
    with pytest.raises(UnsupportedError, match=r"K must be a whole number, got 2.5"):
        SelfTuningAffinity(K=2.5)
    with pytest.raises(OptionError, match=r"K=7 is too large for 7 rows .*: use K <= 6"):
        MAGICAffinity()(points(7))
    with pytest.raises(OptionError, match="unknown metric 'sine'"):
        GaussianAffinity(metric="sine")
