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


@numba.njit(**INLINED)
def squared(place, others, j, dims):  # type: ignore[no-untyped-def]
    """Return the squared distance of a point to the j-th of some others."""
    s = f4(0)
    for d in range(dims):
        s += (place[d] - others[j, d]) * (place[d] - others[j, d])
    return s


@numba.njit(**INLINED)
def settle_by(Z, places, indices, weights, shares, own, keys, rates, count, start, stop, a, b, strength, dims):  # type: ignore[no-untyped-def]
    """Do what `settle` does, for places of `dims` columns."""
    k, most = indices.shape[1], max(indices.shape[1], count)
    near, other = numpy.empty((k, dims), f4), numpy.empty((most, dims), f4)
    pulls, place = numpy.empty((dims, most), f4), numpy.empty(dims, f4)
    pull, push = numpy.empty(dims, f4), numpy.empty(dims, f4)
    n, up, down = u8(len(places)), f4(2) * a * b, f4(2) * b * strength
    for i in range(start, stop):
        for j in range(k):
            for d in range(dims):
                near[j, d] = places[indices[i, j], d]
        for d in range(dims):
            place[d] = Z[i, d]
        for step in range(len(keys)):
            for j in range(k):
                s = max(squared(place, near, j, dims), f4(TINY))
                p = power(s, b)
                slope = up * p / (s * (f4(1) + a * p))
                for d in range(dims):
                    pulls[d, j] = weights[i, j] * clipped(slope * (place[d] - near[j, d]))
            for d in range(dims):
                pull[d] = push[d] = f4(0)
            for j in range(k):
                for d in range(dims):
                    pull[d] += pulls[d, j]
            for j in range(count):
                drawn = i8(((hashed(keys[step], own[i] + j) >> u8(1)) & u8((1 << 62) - 1)) % n)
                for d in range(dims):
                    other[j, d] = places[drawn, d]
            for j in range(count):
                s = squared(place, other, j, dims)
                slope = down / ((f4(SOFTENING) + s) * (f4(1) + a * power(s, b)))
                for d in range(dims):
                    pulls[d, j] = clipped(slope * (place[d] - other[j, d]))
            for j in range(count):
                for d in range(dims):
                    push[d] += pulls[d, j]
            for d in range(dims):
                place[d] -= rates[step] * (pull[d] - shares[i] * push[d])
        for d in range(dims):
            Z[i, d] = place[d]


@numba.njit(
    "void(f4[:,::1],f4[:,::1],i8[:,::1],f4[:,::1],f4[::1],i8[::1],u8[::1],f4[::1],i8,i8,i8,f4,f4,f4)",
    **KERNEL,
)
def settle(Z, places, indices, weights, shares, own, keys, rates, count, start, stop, a, b, strength):  # type: ignore[no-untyped-def]
    """Move the points of Z from `start` to `stop`, one step for each of `keys` and `rates`.

    A step is z - rate (sum over neighbors of weight times attraction + share times the sum over `count` draws of the
    repulsion), each pair's force clipped.
    """
    if Z.shape[1] == 2:
        settle_by(Z, places, indices, weights, shares, own, keys, rates, count, start, stop, a, b, strength, 2)
    else:
        settle_by(Z, places, indices, weights, shares, own, keys, rates, count, start, stop, a, b, strength, 4)
