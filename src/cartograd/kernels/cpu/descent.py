"""Kernels of a pass of descent: the neighbours of a row's neighbours are offered to the row.

After Dong, Moses and Li (2011), in a form without a race: every row reads the lists as they were before the pass, and
writes its own alone. Heaps are those of `cells_join`.
"""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.cells_join import holds, replace_worst, squared

_FLAGS = {"cache": True, "nogil": True, "error_model": "numpy"}


@numba.njit("void(float32[:, ::1], int32[:, ::1], int64, int64, int32[:, ::1])", **_FLAGS)
def nearest(value, ids, start, stop, near):  # type: ignore[no-untyped-def]
    """The best candidates of rows start to stop, the best first; -1 for none."""
    for row in range(start, stop):
        turn = numpy.argsort(value[row])
        for at in range(near.shape[1]):
            near[row, at] = ids[row, turn[at]]


@numba.njit("void(int32[:, ::1], int32[:, ::1])", **_FLAGS)
def turned(near, back):  # type: ignore[no-untyped-def]
    """For each row, rows that have it among their best candidates: those that have it first come first."""
    count = numpy.zeros(len(near), numpy.int32)
    for at in range(near.shape[1]):
        for row in range(len(near)):
            other = near[row, at]
            if other >= 0 and count[other] < back.shape[1]:
                back[other, count[other]] = row
                count[other] += 1


@numba.njit("void(float32[:, ::1], int32[:, ::1], int64, int64, int32[::1], float32[:, ::1], int32[:, ::1])", **_FLAGS)
def descend(rows, beside, start, stop, seen, value, ids):  # type: ignore[no-untyped-def]
    """Offer rows start to stop what lies beside the rows beside them.

    ``beside`` (n, b) names rows, -1 for none; ``seen`` (n,) is scratch, all zeros before the first call.
    """
    for row in range(start, stop):
        mark = numba.int32(row + 1)
        own, worst = rows[row], value[row, 0]
        seen[row] = mark
        for at in range(ids.shape[1]):
            if ids[row, at] >= 0:
                seen[ids[row, at]] = mark
        for first in range(beside.shape[1]):
            middle = beside[row, first]
            if middle < 0:
                continue
            for second in range(beside.shape[1]):
                name = beside[middle, second]
                if name < 0 or seen[name] == mark:
                    continue
                seen[name] = mark
                new = numba.float32(0.5) * squared(own, rows[name])
                if new < worst and not holds(ids[row], name):
                    replace_worst(value[row], ids[row], new, name)
                    worst = value[row, 0]
