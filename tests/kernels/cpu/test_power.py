"""Powers and logarithms of the kernels against NumPy's in float64."""

import numba
import numpy
import pytest

from cartograd.kernels import cpu


@pytest.fixture(scope="module")
def functions():
    power = cpu.load("power")

    @numba.njit("void(f4[::1],f4,f4[::1],f4[::1])", fastmath={"contract", "nsz", "arcp"})
    def both(s, b, powers, logarithms):
        for i in range(len(s)):
            powers[i] = power.power(s[i], b)
            logarithms[i] = power.log2(s[i])

    return both


@pytest.mark.parametrize("b", [0.3, 0.8951, 1.0, 2.0])
def test_errors_are_bounded(functions, b):
    s = numpy.exp(numpy.random.RandomState(0).uniform(-40, 40, 200_000)).astype("float32")
    powers, logarithms = numpy.empty_like(s), numpy.empty_like(s)
    functions(s, numpy.float32(b), powers, logarithms)
    exact = s.astype("float64") ** float(numpy.float32(b))
    there = (exact > 2.0**-125) & (exact < 2.0**125)
    worst = numpy.abs(powers / exact - 1)[there].max()
    print("power", b, worst)
    assert worst < 1.2e-5
    assert numpy.abs(logarithms - numpy.log2(s.astype("float64"))).max() < 6e-6  # 3.8e-6 is the last digit of 60


def test_near_one_and_at_the_ends(functions):
    s = numpy.array([1.0, 0.0, 1e-45, 3e38, 0.70710677, 0.7071068, 1.4142135, 1.4142137], dtype="float32")
    powers, logarithms = numpy.empty_like(s), numpy.empty_like(s)
    functions(s, numpy.float32(0.8951), powers, logarithms)
    assert powers[0] == pytest.approx(1.0, rel=1e-6)
    assert 0 <= powers[1] < 1e-30
    assert 0 <= powers[2] < 1e-30
    assert numpy.isfinite(powers).all()
    assert powers[3:] == pytest.approx(s[3:].astype("float64") ** 0.8951, rel=1.2e-5)
    functions(s, numpy.float32(5.0), powers, logarithms)
    assert numpy.isfinite(powers).all()  # cut off, not wrapped round
    assert powers[3] == pytest.approx(2.0**126, rel=1e-5)
