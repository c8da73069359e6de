"""The random numbers of `cartograd.affinity.counter`, inside kernels: the t-th of a stream is a hash of (key, t)."""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.power import INLINED

u8 = numpy.uint64


@numba.njit(**INLINED)
def hashed(key, place):  # type: ignore[no-untyped-def]
    """64 random bits, SplitMix64's: those of ``counter.hashed``."""
    z = (u8(place) + u8(1)) * u8(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u8(27))) * u8(0x94D049BB133111EB)
    return z ^ (z >> u8(31))
