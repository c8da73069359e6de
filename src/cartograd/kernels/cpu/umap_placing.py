r"""New rows in a UMAP map: each descends alone among points that stay.

The formulas and draws are those of ``UMAP._settle``; every sum runs from left to right in float32, and a row is worked
on from its first step to its last before the next begins, so its place depends on nothing but the row.
"""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.counting import hashed
from cartograd.kernels.cpu.power import INLINED, power

f4, i8, u8 = numpy.float32, numpy.int64, numpy.uint64
KERNEL = {**INLINED, "cache": True, "forceinline": False}
TINY = 1e-30
CLIP, SOFTENING = 4.0, 1e-3


@numba.njit(**INLINED)
def clipped(value):  # type: ignore[no-untyped-def]
    """The value between -4 and 4."""
    return min(max(value, f4(-CLIP)), f4(CLIP))


@numba.njit(
    "void(f4[:,::1],f4[:,::1],i8[:,::1],f4[:,::1],f4[::1],i8[::1],u8[::1],f4[::1],i8,i8,i8,f4,f4,f4)",
    **KERNEL,
)
def settle(Z, places, indices, weights, shares, own, keys, rates, count, start, stop, a, b, strength):  # type: ignore[no-untyped-def]
    """Move the points of Z from `start` to `stop`, one step for each of `keys` and `rates`.

    A step is z - rate (sum over neighbours of weight times attraction + share times the sum over `count` draws of the
    repulsion), each pair's force clipped.
    """
    k, most = indices.shape[1], max(indices.shape[1], count)
    near, other = numpy.empty((k, 2), f4), numpy.empty((most, 2), f4)
    pulls = numpy.empty((2, most), f4)
    n, up, down = u8(len(places)), f4(2) * a * b, f4(2) * b * strength
    for i in range(start, stop):
        for j in range(k):
            near[j, 0], near[j, 1] = places[indices[i, j], 0], places[indices[i, j], 1]
        x, y = Z[i, 0], Z[i, 1]
        for step in range(len(keys)):
            for j in range(k):
                dx, dy = x - near[j, 0], y - near[j, 1]
                s = max(dx * dx + dy * dy, f4(TINY))
                p = power(s, b)
                slope = up * p / (s * (f4(1) + a * p))
                pulls[0, j], pulls[1, j] = weights[i, j] * clipped(slope * dx), weights[i, j] * clipped(slope * dy)
            gx, gy = f4(0), f4(0)
            for j in range(k):
                gx += pulls[0, j]
                gy += pulls[1, j]
            for j in range(count):
                drawn = i8(((hashed(keys[step], own[i] + j) >> u8(1)) & u8((1 << 62) - 1)) % n)
                other[j, 0], other[j, 1] = places[drawn, 0], places[drawn, 1]
            for j in range(count):
                dx, dy = x - other[j, 0], y - other[j, 1]
                s = dx * dx + dy * dy
                slope = down / ((f4(SOFTENING) + s) * (f4(1) + a * power(s, b)))
                pulls[0, j], pulls[1, j] = clipped(slope * dx), clipped(slope * dy)
            px, py = f4(0), f4(0)
            for j in range(count):
                px += pulls[0, j]
                py += pulls[1, j]
            x -= rates[step] * (gx - shares[i] * px)
            y -= rates[step] * (gy - shares[i] * py)
        Z[i, 0], Z[i, 1] = x, y
