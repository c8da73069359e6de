"""PHATEAffinity: values by hand, the number of steps, landmarks."""

import logging

import numpy
import pytest
import torch
from scipy.spatial.distance import cdist

from cartograd.affinity import PHATEAffinity
from cartograd.affinity.diffusion import knee, landmark_operator, spectral_entropies
from cartograd.errors import OptionError, UnsupportedError


def points(n=60, d=3, seed=0):
    return numpy.random.default_rng(seed).normal(size=(n, d))


def kernel(X, k, alpha):
    D = cdist(X, X)
    A = numpy.exp(-((D / numpy.sort(D, 1)[:, k : k + 1]) ** alpha))  # place 0 is the row itself
    return (A + A.T) / 2


@pytest.mark.parametrize(("k", "alpha", "t"), [(5, 10.0, 5), (3, 2.0, 1), (10, 40.0, 12)])
def test_by_hand(k, alpha, t):
    K = kernel(points(), k, alpha)
    U = -numpy.log(numpy.linalg.matrix_power(K / K.sum(1, keepdims=True), t) + 1e-7)
    numpy.testing.assert_allclose(PHATEAffinity(k, alpha, t)(points()), -cdist(U, U), rtol=1e-8, atol=1e-8)


def test_symmetric_and_negative():
    P = PHATEAffinity()(points())
    assert torch.equal(P, P.T)
    assert bool((P.diagonal() == 0).all())
    assert bool((P[~torch.eye(60, dtype=torch.bool)] < 0).all())


def test_precomputed_and_equal_rows():
    one, two = PHATEAffinity()(points()), PHATEAffinity(metric="precomputed")(cdist(points(), points()))
    torch.testing.assert_close(two, one, atol=1e-8, rtol=1e-6)
    for X in (numpy.ones((20, 2)), numpy.repeat(points(4), 8, 0)):
        assert bool(torch.isfinite(PHATEAffinity()(X)).all())


def test_entropies_fall_from_the_operators_own():
    K = torch.from_numpy(kernel(points(), 5, 10.0))
    entropies = spectral_entropies(K, 50)
    values = numpy.abs(numpy.linalg.eigvals((K / K.sum(1, keepdim=True)).numpy()))
    for t in (1, 7, 50):
        p = values**t / (values**t).sum()
        assert float(entropies[t - 1]) == pytest.approx(-(p * numpy.log(p)).sum(), rel=1e-6)
    assert bool((entropies.diff() < 0).all())


def test_the_knee_of_two_lines():
    x = torch.arange(40, dtype=torch.float64)
    for place in (5, 12, 30):
        assert knee(torch.where(x < place, -3.0 * x, -3.0 * place - 0.1 * (x - place))) == place


def test_automatic_steps(caplog):
    with caplog.at_level(logging.INFO, "cartograd.affinity"):
        auto = PHATEAffinity(t="auto")(points())
    t = int(caplog.records[-1].args[0])
    assert 2 <= t <= 50
    torch.testing.assert_close(auto, PHATEAffinity(t=t)(points()))


class TestLandmarks:
    def test_every_row_a_landmark_is_the_plain_diffusion(self):
        K = torch.from_numpy(kernel(points(), 5, 10.0))
        operator, to_landmarks = landmark_operator(K, torch.arange(60), 60)
        plain = K / K.sum(1, keepdim=True)
        torch.testing.assert_close(to_landmarks, plain)
        torch.testing.assert_close(operator, plain @ plain)
        torch.testing.assert_close(PHATEAffinity(n_landmarks=60)(points()), PHATEAffinity()(points()))

    def test_close_to_the_plain_one(self):
        line = numpy.linspace(0, 10, 300)[:, None] * numpy.ones((1, 3)) + 0.05 * points(300)
        plain, few = PHATEAffinity(t=21)(line), PHATEAffinity(t=21, n_landmarks=60)(line)
        assert numpy.corrcoef(plain.numpy().ravel(), few.numpy().ravel())[0, 1] > 0.95
        assert torch.equal(few, PHATEAffinity(t=21, n_landmarks=60)(line))


def test_errors():
    with pytest.raises(OptionError, match="k must be at least 1, got 0"):
        PHATEAffinity(0)
    with pytest.raises(OptionError, match="alpha must be above 0"):
        PHATEAffinity(alpha=0)
    with pytest.raises(UnsupportedError, match="t must be a whole number, got 'car'"):
        PHATEAffinity(t="car")
    with pytest.raises(OptionError, match="n_landmarks must be at least 2, got 1"):
        PHATEAffinity(n_landmarks=1)
    with pytest.raises(OptionError, match="minus a distance and has no logarithm: use log=False"):
        PHATEAffinity()(points(), log=True)
    with pytest.raises(OptionError, match=r"k=5 is too large for 5 rows .*: use k <= 4"):
        PHATEAffinity()(points(5))
