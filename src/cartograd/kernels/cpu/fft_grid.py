"""Points spread over a grid in the plane and potentials read off, by splines of order 7; and what the transforms need.

Points are put in the order of the grid's rows. A band of rows is then filled by one thread with the points near it, and
the order in which weights are added at a node is that of the points, whatever the bands. Weights of a point in a
dimension fill eight lanes, the last of them with 0. Each kernel comes for grids of float32 and of float64.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy
from numba import types

ORDER, LANES = 7, 8
"""Nodes for each point and dimension, and the vector they are held in."""

KINDS = (types.float32, types.float64)
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
ORDERED = {"contract"}
LANEWISE = {"contract", "reassoc", "nsz"}

C0, C1, C2, C3, C4 = -0.99995902, 19.730942, -64.671442, 82.390806, -45.621051
S0, S1, S2, S3 = -6.278554, 41.091116, -77.909403, 56.03847

MAP = (types.float32[:, ::1], types.float64[::1], types.float64)  # points, lowest corner, nodes for a unit of length


@numba.njit(types.void(*MAP, types.int32[::1], types.int64[::1], types.int32[::1]), fastmath=ORDERED, **OPTIONS)
def arrange(points, low, per_unit, ids, starts, first):  # type: ignore[no-untyped-def]
    """Sort points by the first row of the grid that they touch, stable: their ids, and where each row's begin."""
    starts[:] = 0
    for i in range(len(points)):
        first[i] = numpy.int32((points[i, 0] - low[0]) * per_unit + 0.5)
        starts[first[i] + 1] += 1
    for row in range(len(starts) - 1):
        starts[row + 1] += starts[row]
    for i in range(len(points)):
        ids[starts[first[i]]] = i
        starts[first[i]] += 1
    for row in range(len(starts) - 1, 0, -1):
        starts[row] = starts[row - 1]
    starts[0] = 0


@numba.njit(error_model="numpy", nogil=True, forceinline=True, fastmath=LANEWISE)
def _polynomials(t, table, out):  # type: ignore[no-untyped-def]
    """The values at t of eight polynomials, whose coefficients of each power are a row of the table."""
    for lane in range(LANES):
        value = table[ORDER - 1, lane]
        for power in range(ORDER - 2, -1, -1):
            value = value * t + table[power, lane]
        out[lane] = value


@numba.njit(
    [
        types.void(*MAP, kind[:, ::1], types.int32[::1], types.int64[::1], kind[:, ::1], types.int64, types.int64)
        for kind in KINDS
    ],
    fastmath=ORDERED,
    **OPTIONS,
)
def spread(points, low, per_unit, values, ids, starts, grid, top, bottom):  # type: ignore[no-untyped-def]
    """Fill the grid's rows from `top` to `bottom` with the charges of all points near them."""
    number = grid.dtype.type
    across, along = numpy.empty(LANES, grid.dtype), numpy.empty(LANES, grid.dtype)
    grid[top:bottom] = 0
    for row in range(max(0, top - ORDER + 1), bottom):
        begin, end = max(top - row, 0), min(bottom - row, ORDER)
        for place in range(starts[row], starts[row + 1]):
            i = ids[place]
            u = (points[i, 0] - low[0]) * per_unit + 0.5
            v = (points[i, 1] - low[1]) * per_unit + 0.5
            column = numpy.int64(v)
            _polynomials(number(u - row), values, across)
            _polynomials(number(v - column), values, along)
            for a in range(begin, end):
                weight = across[a]
                line = grid[row + a, column : column + LANES]
                for lane in range(LANES):
                    line[lane] += weight * along[lane]


@numba.njit(error_model="numpy", nogil=True, forceinline=True, fastmath=LANEWISE)
def _turn(t):  # type: ignore[no-untyped-def]
    r""":math:`\cos 2 \pi t` and :math:`\sin 2 \pi t` for t from 0 to 1, both within 3e-4: best fits around 1/2."""
    x = t - 0.5
    s = x * x
    cosine = C0 + s * (C1 + s * (C2 + s * (C3 + s * C4)))
    return cosine, x * (S0 + s * (S1 + s * (S2 + s * S3)))


@numba.njit(
    [
        types.void(
            *MAP, *(kind[:, ::1],) * 3, types.float64[::1], types.int32[::1], types.float64[::1], types.float32[:, ::1],
            types.int64, types.int64,
        )
        for kind in KINDS
    ],
    fastmath=LANEWISE,
    **OPTIONS,
)  # fmt: skip
def gather(points, low, per_unit, values, slopes, grid, own, ids, sums, pulls, start, stop):  # type: ignore[no-untyped-def]
    r""":math:`\sum_{j \ne i} w_{ij}` and :math:`\sum_j w_{ij}^2 (z_i - z_j)` for `ids` from `start` to `stop`.

    What a point adds to its own potential through the grid is taken away. It depends on the place (s, t) in a cell,
    nearly as a wave :math:`a + b (\cos 2 \pi s + \cos 2 \pi t) + c \cos 2 \pi s \cos 2 \pi t`; a, b, c are `own`.
    """
    number = grid.dtype.type
    across, across_rise = numpy.empty(LANES, grid.dtype), numpy.empty(LANES, grid.dtype)
    along, along_rise = numpy.empty(LANES, grid.dtype), numpy.empty(LANES, grid.dtype)
    factor, half = -0.5 * per_unit, math.pi  # half of the derivative: the charge stays where it is
    even, single, double = own[0], own[1], own[2]
    for place in range(start, stop):
        i = ids[place]
        u = (points[i, 0] - low[0]) * per_unit + 0.5
        v = (points[i, 1] - low[1]) * per_unit + 0.5
        row, column = numpy.int64(u), numpy.int64(v)
        _polynomials(number(u - row), values, across)
        _polynomials(number(u - row), slopes, across_rise)
        _polynomials(number(v - column), values, along)
        _polynomials(number(v - column), slopes, along_rise)
        # written out, for only so the eight columns of a row of nodes become one vector
        w0, w1, w2, w3, w4, w5, w6 = across[0], across[1], across[2], across[3], across[4], across[5], across[6]
        r0, r1, r2, r3 = across_rise[0], across_rise[1], across_rise[2], across_rise[3]
        r4, r5, r6 = across_rise[4], across_rise[5], across_rise[6]
        n0, n1 = grid[row, column : column + LANES], grid[row + 1, column : column + LANES]
        n2, n3 = grid[row + 2, column : column + LANES], grid[row + 3, column : column + LANES]
        n4, n5 = grid[row + 4, column : column + LANES], grid[row + 5, column : column + LANES]
        n6 = grid[row + 6, column : column + LANES]
        total = right = up = number(0)
        for k in range(LANES):
            here = (w0 * n0[k] + w1 * n1[k]) + (w2 * n2[k] + w3 * n3[k]) + (w4 * n4[k] + w5 * n5[k] + w6 * n6[k])
            rise = (r0 * n0[k] + r1 * n1[k]) + (r2 * n2[k] + r3 * n3[k]) + (r4 * n4[k] + r5 * n5[k] + r6 * n6[k])
            total += here * along[k]
            right += rise * along[k]
            up += here * along_rise[k]
        x, x_turn = _turn(u - row)
        y, y_turn = _turn(v - column)
        sums[i] = total - (even + single * (x + y) + double * x * y)
        pulls[i, 0] = factor * (right + half * x_turn * (single + double * y))
        pulls[i, 1] = factor * (up + half * y_turn * (single + double * x))


WAVES = types.complex64[:, ::1]


@numba.njit(types.void(WAVES, WAVES, types.int64), **OPTIONS)
def columns_out(waves, lines, first):  # type: ignore[no-untyped-def]
    """Lines (b, length) of the columns (rows, b) of `waves` from the first on, filled up with 0."""
    rows = len(waves)
    lines[:, rows:] = 0
    for begin in range(0, rows, LANES):
        end = min(begin + LANES, rows)
        for k in range(len(lines)):
            for row in range(begin, end):
                lines[k, row] = waves[row, first + k]


@numba.njit(types.void(WAVES, WAVES, types.int64), **OPTIONS)
def columns_in(waves, lines, first):  # type: ignore[no-untyped-def]
    """The first entries of lines (b, length) put back into the columns of `waves`."""
    for begin in range(0, len(waves), LANES):
        end = min(begin + LANES, len(waves))
        for k in range(len(lines)):
            for row in range(begin, end):
                waves[row, first + k] = lines[k, row]


@numba.njit(types.void(types.float32[:, :, ::1], types.float32[:, ::1], types.int64), **OPTIONS)
def weigh(lines, spectrum, first):  # type: ignore[no-untyped-def]
    """Multiply frequencies (b, length) by a spectrum that is even, of which half (all, length / 2 + 1) is given."""
    length = lines.shape[1]
    for k in range(len(lines)):
        half, line = spectrum[first + k], lines[k]
        for wave in range(len(half)):
            line[wave, 0] *= half[wave]
            line[wave, 1] *= half[wave]
        for wave in range(1, len(half) - 1):
            line[length - wave, 0] *= half[wave]
            line[length - wave, 1] *= half[wave]
