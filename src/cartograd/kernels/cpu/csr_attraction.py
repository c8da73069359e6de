"""t-SNE's attraction along the edges of a CSR graph, for maps in the plane: every row gathers its own.

Where an edge leads is random access; it is read as one number of 64 bits for both coordinates, into a buffer that stays
in registers' reach, and the arithmetic then runs over the buffer in vectors. Columns are unsigned: a signed index
would be looked at for being negative, which took as long as all the rest. 1.3 ns for an edge, on a busy core.
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
    types.uint64[::1],  # the map, a row as one number
    types.float32[:, ::1],  # what is written
    types.int64,  # first row
    types.int64,  # end
)
LANEWISE = {"contract", "reassoc", "nsz"}
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": LANEWISE}


@numba.njit(types.void(*ARGUMENTS), **OPTIONS)
def pull(indptr, columns, weights, rows, out, start, stop):  # type: ignore[no-untyped-def]
    r""":math:`4 \sum_j P_{ij} (z_i - z_j) / (1 + |z_i - z_j|^2)` of the rows from `start` to `stop`."""
    near = numpy.empty(BUFFER, numpy.uint64)
    there = near.view(numpy.float32)
    Z = rows.view(numpy.float32)
    one, four = numpy.float32(1), numpy.float32(4)
    for i in range(start, stop):
        x, y = Z[2 * i], Z[2 * i + 1]
        right = up = numpy.float32(0)
        first = indptr[i]
        while first < indptr[i + 1]:
            last = min(first + BUFFER, indptr[i + 1])
            lead, weight = columns[first:last], weights[first:last]
            for k in range(len(lead)):
                near[k] = rows[lead[k]]
            for k in range(len(lead)):
                dx, dy = x - there[2 * k], y - there[2 * k + 1]
                strength = weight[k] / (one + dx * dx + dy * dy)
                right += strength * dx
                up += strength * dy
            first = last
        out[i, 0], out[i, 1] = four * right, four * up


@numba.njit(types.void(*ARGUMENTS[:4], types.float64[::1], *ARGUMENTS[5:]), **OPTIONS)
def loss(indptr, columns, weights, rows, out, start, stop):  # type: ignore[no-untyped-def]
    r""":math:`\sum_j P_{ij} \log(1 + |z_i - z_j|^2)` of the rows from `start` to `stop`."""
    Z = rows.view(numpy.float32)
    for i in range(start, stop):
        x, y = Z[2 * i], Z[2 * i + 1]
        total = 0.0
        lead, weight = columns[indptr[i] : indptr[i + 1]], weights[indptr[i] : indptr[i + 1]]
        for k in range(len(lead)):
            dx, dy = x - Z[2 * lead[k]], y - Z[2 * lead[k] + 1]
            total += weight[k] * math.log(1.0 + numpy.float64(dx * dx + dy * dy))
        out[i] = total
