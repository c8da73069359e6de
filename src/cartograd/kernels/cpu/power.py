r"""Powers and logarithms in float32 from bits and polynomials, for loops that the compiler turns into vector code.

A number is :math:`s = 2^e (1 + t)` with :math:`\sqrt{1/2} \le 1 + t < \sqrt 2`, so that

.. math:: s^b = 2^{b (e + \log_2(1 + t))}

where the logarithm is t times a polynomial of degree 5 (off by 2.2e-6 at most) and the power of the fraction that is
left after rounding a polynomial of degree 4 (off by 2.6e-6 of itself); both are best fits in the largest error. Numba
computes with int64 what is not cast back, and then half as many numbers fit a register: hence all the casts.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy

f4, i4 = numpy.float32, numpy.int32
INLINED: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "arcp"},
    "forceinline": True,
}
"""Functions that become part of a kernel: a * b + c may be one operation, a / c may be a * (1 / c)."""
KERNEL: dict[str, Any] = {**INLINED, "forceinline": False, "cache": True}

HALF_ROOT = 0x3F3504F3
"""The bits of sqrt(1 / 2)."""


@numba.njit(**INLINED)
def log2(s):  # type: ignore[no-untyped-def]
    """The binary logarithm of a normal number."""
    bits = i4(f4(s).view(i4) - i4(HALF_ROOT))
    t = i4(i4(bits & i4(0x7FFFFF)) + i4(HALF_ROOT)).view(f4) - f4(1)
    p = f4(-0.20659182)
    p = p * t + f4(0.32215492)
    p = p * t + f4(-0.36749)
    p = p * t + f4(0.479348)
    p = p * t + f4(-0.72113186)
    p = p * t + f4(1.4427135)
    return f4(i4(bits >> i4(23))) + p * t


@numba.njit(**INLINED)
def exp2(x):  # type: ignore[no-untyped-def]
    """2^x, x cut off at -126 and 126."""
    x = min(max(x, f4(-126)), f4(126))
    whole = numpy.floor(x + f4(0.5))
    t = x - whole
    p = f4(0.009570102)
    p = p * t + f4(0.05591786)
    p = p * t + f4(0.24024745)
    p = p * t + f4(0.6931218)
    p = p * t + f4(0.99999926)
    return i4(f4(p).view(i4) + i4(i4(whole) << i4(23))).view(f4)


@numba.njit(**INLINED)
def power(s, b):  # type: ignore[no-untyped-def]
    """s^b for s at least 0; 0 becomes something below 1e-30, unless b is small."""
    return exp2(b * log2(s))
