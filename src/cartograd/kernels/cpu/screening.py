"""Exact neighbours from lower bounds: a pair is measured in full where its bound says that it may be near enough."""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.cells_join import squared, squared_up_to

_FLAGS = {"cache": True, "nogil": True, "error_model": "numpy"}
RUN = 16


@numba.njit("boolean(float32[::1], float32)", **_FLAGS)
def reaches(values, least):  # type: ignore[no-untyped-def]
    """Whether one of the numbers is at least `least`."""
    found = 0
    for at in range(len(values)):
        found |= values[at] >= least
    return found != 0


@numba.njit("void(float32[::1], int32[::1], float32, int32)", **_FLAGS)
def insert(value, ids, new, name):  # type: ignore[no-untyped-def]
    """Put a candidate that is below the last of a rising list in its place; the last one falls out."""
    at = len(value) - 1
    while at > 0 and value[at - 1] > new:
        value[at], ids[at] = value[at - 1], ids[at - 1]
        at -= 1
    value[at], ids[at] = new, name


@numba.njit("void(float32[::1], float32, int32, float32[::1], int32[::1])", **_FLAGS)
def lowest(scores, half, own, bound, near):  # type: ignore[no-untyped-def]
    """The columns of the lowest bounds ``half - scores``, but for the column `own`; infinity and -1 for none."""
    bound[:] = numpy.inf
    near[:] = -1
    for start in range(0, len(scores), RUN):
        stop = min(start + RUN, len(scores))
        if reaches(scores[start:stop], half - bound[-1]):
            for m in range(start, stop):
                if half - scores[m] < bound[-1] and m != own:
                    insert(bound, near, half - scores[m], m)


@numba.njit(
    "int64(float32[:, ::1], float32[::1], float32[:, ::1], float32[:, ::1], float32[::1], int64, int64, boolean, "
    "float32, float32[:, ::1], int32[:, ::1])",
    **_FLAGS,
)
def nearest(tile, half, more, data, slack, first, k, without_self, loose, value, ids):  # type: ignore[no-untyped-def]
    """Candidates for the k nearest of the rows first, first + 1, ..., by squared distance, rising; how many measured.

    ``2 (half[r] - tile[r, m])`` is a lower bound of the squared distance of row first + r and row m, but for
    ``slack[r]``, and the squared distance of their rows in `more` (n, w) can be added to it. What is farther than
    `loose` times the k-th nearest is left out; the lists ``value`` and ``ids`` have room for more than k.
    """
    bound, near = numpy.empty(k, numpy.float32), numpy.empty(k, numpy.int32)
    measured, twice = 0, numba.float32(2)
    for r in range(len(tile)):
        own, row, names, scores = data[first + r], value[first + r], ids[first + r], tile[r]
        itself = numba.int32(first + r if without_self else -1)
        lowest(scores, half[r], itself, bound, near)
        row[:] = numpy.inf
        names[:] = -1
        for m in near:  # these make the limit of all others
            if m >= 0:
                scores[m] = -numpy.inf
                insert(row, names, squared_up_to(own, data[m], row[k - 1] * loose), m)
        limit = row[k - 1] * loose
        for start in range(0, len(scores), RUN):
            stop = min(start + RUN, len(scores))
            if not reaches(scores[start:stop], half[r] - (limit + slack[r]) / twice):
                continue
            for m in range(start, stop):
                left = limit + slack[r] - twice * (half[r] - scores[m])
                if left < 0 or m == itself or squared(more[first + r], more[m]) > left:
                    continue
                measured += 1
                apart = squared_up_to(own, data[m], limit)
                if apart <= limit and apart < row[-1]:
                    insert(row, names, apart, m)
                    limit = row[k - 1] * loose
    return measured
