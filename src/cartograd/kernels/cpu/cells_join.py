"""Kernels of the cell join: heaps of candidates fed from tiles of products, and candidates measured and ranked.

The candidates of a row are a heap, the worst first: ``value[i, 0]``. A row's heap is written by one call at a time.
"""

from __future__ import annotations

import numba
import numpy

_FLAGS = {"cache": True, "nogil": True, "error_model": "numpy"}
_LOOSE = {"reassoc", "contract", "nsz"}
"""Sums may be split into lanes: another order of adding, the same at each call."""


@numba.njit("void(float32[::1], int32[::1], float32, int32)", **_FLAGS)
def replace_worst(value, ids, new, name):  # type: ignore[no-untyped-def]
    """Put a candidate in the place of the worst one and let it sink to its place in the heap."""
    width, at = len(value), 0
    while True:
        child = 2 * at + 1
        if child >= width:
            break
        if child + 1 < width and value[child + 1] > value[child]:
            child += 1
        if value[child] <= new:
            break
        value[at], ids[at] = value[child], ids[child]
        at = child
    value[at], ids[at] = new, name


@numba.njit("boolean(int32[::1], int32)", **_FLAGS)
def holds(ids, name):  # type: ignore[no-untyped-def]
    """Whether a candidate is in the heap already."""
    found = 0
    for at in range(len(ids)):
        found |= ids[at] == name
    return found != 0


@numba.njit(
    "void(float32[:, ::1], float32[::1], int32[::1], int32, float32, boolean, float32[:, ::1], int32[:, ::1])", **_FLAGS
)
def offer_members(tile, half, visitors, first, rounding, without_self, value, ids):  # type: ignore[no-untyped-def]
    """Offer every visitor the members first, first + 1, ...

    ``half[r] - tile[r, m]`` is half the squared distance of visitor r and member m, raised to ``rounding * half[r]``.
    """
    for r in range(len(visitors)):
        row = visitors[r]
        worst, least = value[row, 0], half[r] * rounding
        for m in range(tile.shape[1]):
            if half[r] - tile[r, m] < worst:
                new = max(half[r] - tile[r, m], least)
                name = numba.int32(first + m)
                if new >= worst or (without_self and name == row) or holds(ids[row], name):
                    continue
                replace_worst(value[row], ids[row], new, name)
                worst = value[row, 0]


@numba.njit("int64(float32[:, ::1], float32[::1], float32[::1], int32[::1], float32[::1])", **_FLAGS)
def pick_for_members(tile, half, limit, place, picked):  # type: ignore[no-untyped-def]
    """What may enter the heaps of members: elements below their column's limit, as places in the tile and values.

    Writes at most ``len(place)`` of them; gives how many there are.
    """
    count = 0
    for r in range(tile.shape[0]):
        for m in range(tile.shape[1]):
            new = half[r] - tile[r, m]
            if new < limit[m]:
                if count < len(place):
                    place[count], picked[count] = r * tile.shape[1] + m, new
                count += 1
    return count


@numba.njit(
    "void(int32[::1], float32[::1], int32[::1], int32, int32, float32[::1], float32[:, ::1], int32[:, ::1])", **_FLAGS
)
def offer_visitors(place, picked, visitors, first, members, least, value, ids):  # type: ignore[no-untyped-def]
    """Offer members first, first + 1, ... the visitors picked; values are raised to the ``least`` of the member."""
    for at in range(len(place)):
        m = place[at] % members
        row, name = first + m, visitors[place[at] // members]
        new = max(picked[at], least[m])
        if new < value[row, 0] and not holds(ids[row], name):
            replace_worst(value[row], ids[row], new, name)


@numba.njit("float32(float32[::1], float32[::1])", fastmath=_LOOSE, **_FLAGS)
def squared(a, b):  # type: ignore[no-untyped-def]
    """The squared distance of two rows."""
    total = numba.float32(0.0)
    for c in range(len(a)):
        apart = a[c] - b[c]
        total += apart * apart
    return total


@numba.njit("float32(float32[::1], float32[::1], float32)", **_FLAGS)
def squared_up_to(a, b, limit):  # type: ignore[no-untyped-def]
    """The squared distance of two rows, or, once it is above the limit, what of it was summed until then."""
    total = numba.float32(0.0)
    for start in range(0, len(a), 256):
        total += squared(a[start : start + 256], b[start : start + 256])
        if total > limit:
            break
    return total


@numba.njit(
    "void(float32[:, ::1], int32[::1], float32[:, ::1], int32[::1], int64, int64, float32[:, ::1], int32[:, ::1], "
    "float32, int64[:, ::1], float32[:, ::1])",
    **_FLAGS,
)
def rank(asked, turns, data, order, start, stop, value, ids, slack, out_ids, out_value):  # type: ignore[no-untyped-def]
    """The nearest candidates of rows start to stop by squared distance, ties by id; -1 and infinity for none.

    The candidates of row `turns[r]` of `asked` are in row r of `ids`, by their place in `order`; answers are by their
    place in `data`. Twice ``value`` times ``slack`` is a lower bound of the squared distance: candidates are measured
    from the lowest on, until none can be nearer.
    """
    k = out_ids.shape[1]
    for row in range(start, stop):
        own = turns[row]
        best, names = out_value[own], out_ids[own]
        best[:] = numpy.inf
        names[:] = -1
        turn = numpy.argsort(value[row])
        for t in turn:
            if ids[row, t] < 0 or 2 * value[row, t] * slack > best[k - 1]:
                break
            name = order[ids[row, t]]
            apart = squared_up_to(asked[own], data[name], best[k - 1])
            at = k
            while at > 0 and (apart < best[at - 1] or (apart == best[at - 1] and name < names[at - 1])):
                at -= 1
            for back in range(k - 1, at, -1):
                best[back], names[back] = best[back - 1], names[back - 1]
            if at < k:
                best[at], names[at] = apart, name
