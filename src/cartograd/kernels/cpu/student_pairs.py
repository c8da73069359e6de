r"""t-SNE's repulsion over all pairs: :math:`\sum_j w_{ij}` and :math:`\sum_j w_{ij}^2 (x_i - y_j)`.

With :math:`w_{ij} = 1 / (1 + |x_i - y_j|^2)`. A query runs over all points in blocks; the sums of a block are
vectors in float32, those of all blocks are added in float64. What a query gets depends on no other query.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy
from numba import types

BLOCK = 512
f4, f8 = numpy.float32, numpy.float64
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz", "arcp"}}


@numba.njit(forceinline=True, **OPTIONS)
def sums_by(queries, points, sums, pulls, start, stop, dims):  # type: ignore[no-untyped-def]
    """Do what `student_sums` does, for points of `dims` coordinates."""
    n = points.shape[1]
    for i in range(start, stop):
        x, y, z = queries[0, i], f4(0), f4(0)
        if dims > 1:
            y = queries[1, i]
        if dims > 2:
            z = queries[2, i]
        total, px, py, pz = f8(0), f8(0), f8(0), f8(0)
        for low in range(0, n, BLOCK):
            near, fx, fy, fz = f4(0), f4(0), f4(0), f4(0)
            for j in range(low, min(low + BLOCK, n)):
                dx, dy, dz = x - points[0, j], f4(0), f4(0)
                s = f4(1) + dx * dx
                if dims > 1:
                    dy = y - points[1, j]
                    s += dy * dy
                if dims > 2:
                    dz = z - points[2, j]
                    s += dz * dz
                w = f4(1) / s
                near += w
                fx += w * w * dx
                if dims > 1:
                    fy += w * w * dy
                if dims > 2:
                    fz += w * w * dz
            total += f8(near)
            px += f8(fx)
            py += f8(fy)
            pz += f8(fz)
        sums[i], pulls[i, 0] = f4(total), f4(px)
        if dims > 1:
            pulls[i, 1] = f4(py)
        if dims > 2:
            pulls[i, 2] = f4(pz)


@numba.njit(
    types.void(*(types.float32[:, ::1],) * 2, types.float32[::1], types.float32[:, ::1], types.int64, types.int64),
    cache=True,
    **OPTIONS,
)
def student_sums(queries, points, sums, pulls, start, stop):  # type: ignore[no-untyped-def]
    """Write the sums of the queries from `start` to `stop`, those with themselves included.

    Parameters
    ----------
    queries, points : (c, m) and (c, n)
        Coordinates, c from 1 to 3.
    sums, pulls : (m,) and (m, c)
        What is written.
    start, stop : int
        Which queries.
    """
    if queries.shape[0] == 1:
        sums_by(queries, points, sums, pulls, start, stop, 1)
    elif queries.shape[0] == 2:
        sums_by(queries, points, sums, pulls, start, stop, 2)
    else:
        sums_by(queries, points, sums, pulls, start, stop, 3)
