"""t-SNE's attraction along the edges of a CSR graph: every row gathers its own.

Where an edge leads is random access; two coordinates are read as one number of 64 bits (maps have 2 columns, or 4, the
last of which is 0), into a buffer that stays in registers' reach, and the arithmetic then runs over the buffer in
vectors. Columns are unsigned: a signed index would be tested for being negative, which took as long as all the rest.
1.3 ns for an edge in the plane, on a busy core.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy
from numba import types

BUFFER = 64

ARGUMENTS = (
    types.int64[::1],  # indptr
    types.uint32[::1],  # columns
    types.float32[::1],  # weights
    types.uint64[:, ::1],  # the map, two coordinates as one number
    types.float32[:, ::1],  # what is written
    types.int64,  # first row
    types.int64,  # end
)
LANEWISE = {"contract", "reassoc", "nsz"}
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": LANEWISE}


@numba.njit(forceinline=True, **{**OPTIONS, "cache": False})
def pull_by(indptr, columns, weights, rows, out, start, stop, width):  # type: ignore[no-untyped-def]
    """Do what `pull` does, for places of `width` words."""
    near = numpy.empty((BUFFER, width), numpy.uint64)
    there, Z = near.view(numpy.float32), rows.view(numpy.float32)
    one, four, nothing = numpy.float32(1), numpy.float32(4), numpy.float32(0)
    for i in range(start, stop):
        x, y, z = Z[i, 0], Z[i, 1], nothing
        if width > 1:
            z = Z[i, 2]
        right = up = onward = nothing
        first = indptr[i]
        while first < indptr[i + 1]:
            last = min(first + BUFFER, indptr[i + 1])
            lead, weight = columns[first:last], weights[first:last]
            for k in range(len(lead)):
                for w in range(width):
                    near[k, w] = rows[lead[k], w]
            for k in range(len(lead)):
                dx, dy, dz = x - there[k, 0], y - there[k, 1], nothing
                s = one + dx * dx + dy * dy
                if width > 1:
                    dz = z - there[k, 2]
                    s += dz * dz
                strength = weight[k] / s
                right += strength * dx
                up += strength * dy
                onward += strength * dz
            first = last
        out[i, 0], out[i, 1] = four * right, four * up
        if width > 1:
            out[i, 2], out[i, 3] = four * onward, nothing


@numba.njit(types.void(*ARGUMENTS), **OPTIONS)
def pull(indptr, columns, weights, rows, out, start, stop):  # type: ignore[no-untyped-def]
    r""":math:`4 \sum_j P_{ij} (z_i - z_j) / (1 + |z_i - z_j|^2)` of the rows from `start` to `stop`."""
    if rows.shape[1] == 1:
        pull_by(indptr, columns, weights, rows, out, start, stop, 1)
    else:
        pull_by(indptr, columns, weights, rows, out, start, stop, 2)


@numba.njit(types.void(*ARGUMENTS[:4], types.float64[::1], *ARGUMENTS[5:]), **OPTIONS)
def loss(indptr, columns, weights, rows, out, start, stop):  # type: ignore[no-untyped-def]
    r""":math:`\sum_j P_{ij} \log(1 + |z_i - z_j|^2)` of the rows from `start` to `stop`."""
    Z = rows.view(numpy.float32)
    for i in range(start, stop):
        total = 0.0
        lead, weight = columns[indptr[i] : indptr[i + 1]], weights[indptr[i] : indptr[i + 1]]
        for k in range(len(lead)):
            s = numpy.float32(0)
            for d in range(Z.shape[1]):
                s += (Z[i, d] - Z[lead[k], d]) * (Z[i, d] - Z[lead[k], d])
            total += weight[k] * math.log(1.0 + numpy.float64(s))
        out[i] = total
