r"""One step of UMAP's layout in the plane: every row gathers its own forces and moves; nothing is written twice.

The formulas are those of `cartograd.embedding.umap_forces`, which edges act those of `cartograd.embedding.edge_clock`
in whole numbers: with the rate :math:`R = 2^{24} w / w_{\max}` an edge acts at step t where

.. math:: (t R \bmod 2^{24}) + R \ge 2^{24}

and the q-th negative of edge e is found by hashing (key of the step, e rate + q). Rows are worked on in groups that
begin at multiples of 256 rows: what a row gets does not depend on the range it is in, as long as that does, too.

A group goes through a few flat loops over its acting edges, which fit the nearest cache and become vector code; places
are moved as one word each, because two small reads cost twice one large. An index that could be negative would be
looked at for that every time: hence the casts to unsigned numbers.
"""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.counting import hashed
from cartograd.kernels.cpu.power import INLINED, KERNEL, log2, power

f4, i4, u4, u8, f8 = numpy.float32, numpy.int32, numpy.uint32, numpy.uint64, numpy.float64
MOST, GROUP = 1024, 256
TINY = 1e-30


@numba.njit(**INLINED)
def clipped(value, most):  # type: ignore[no-untyped-def]
    """The value, or what is nearest to it from -most to most."""
    return min(max(value, -most), most)


@numba.njit(**INLINED)
def room(indptr, start, stop):  # type: ignore[no-untyped-def]
    """How many edges there are in a group at most."""
    most = MOST
    for row in range(start, stop):
        most = max(most, indptr[row + 1] - indptr[row])
    return most


@numba.njit(**INLINED)
def group_end(indptr, low, stop):  # type: ignore[no-untyped-def]
    """The end of the group that begins at row `low`: it has at most `MOST` edges, or one row."""
    high = low + 1
    while high < stop and high % GROUP != 0 and indptr[high + 1] - indptr[low] <= MOST:
        high += 1
    return high


@numba.njit(**INLINED)
def collect(rates, step, first, last, due, edges):  # type: ignore[no-untyped-def]
    """The edges from `first` to `last` that act, counted from `first`; how many."""
    t = u4(step)
    for e in range(last - first):
        rate = rates[first + e]
        due[e] = u4(u4(u4(t * rate) & u4(0xFFFFFF)) + rate) >> u4(24)
    count = 0
    for e in range(last - first):
        edges[count] = e
        count += due[e]
    return count


@numba.njit(**INLINED)
def draw_places(words, key, edges, owners, count, first, rate, q, theirs):  # type: ignore[no-untyped-def]
    """The places of the q-th negative of each edge."""
    others = u8(len(words) - 1)
    for k in range(count):
        j = i4(((hashed(key, (first + edges[k]) * rate + q) >> u8(32)) * others) >> u8(32))
        j += i4(j >= owners[k])
        theirs[k, 0] = words[u4(j), 0]


@numba.njit(
    "void(i8[::1],i4[::1],i4[::1],u4[::1],f4[:,::1],f4[:,::1],i8,i8,i8,u8,i8,f4,f4,f4,f4,b1,f4)",
    **KERNEL,
)
def move(indptr, rows, columns, rates, Z, out, start, stop, step, key, rate, a, b, pull, push, moving, lr):  # type: ignore[no-untyped-def]
    """Write z - lr g into `out` for the rows from start to stop, or g itself, their gradients at Z, if not `moving`.

    The step has the bits of torch's gradient descent with that gradient, which also multiplies and adds in one.
    """
    most = room(indptr, start, stop)
    due, edges, owners = numpy.empty(most, u4), numpy.empty(most, i4), numpy.empty(most, i4)
    own, other = numpy.empty((most, 2), f4), numpy.empty((most, 2), f4)
    pulled, pushed, sums = numpy.empty((2, most), f4), numpy.empty((2, most), f4), numpy.empty((GROUP, 4), f4)
    words, mine, theirs = Z.view(u8), own.view(u8), other.view(u8)
    clip, up, down = f4(4), f4(2) * a * b, f4(2) * b * push
    low = start
    while low < stop:
        high = group_end(indptr, low, stop)
        first = indptr[low]
        count = collect(rates, step, first, indptr[high], due, edges)
        for k in range(count):
            e = first + edges[k]
            owners[k] = rows[e]
            mine[k, 0] = words[u4(rows[e]), 0]
            theirs[k, 0] = words[u4(columns[e]), 0]
        for k in range(count):
            dx, dy = own[k, 0] - other[k, 0], own[k, 1] - other[k, 1]
            s = max(dx * dx + dy * dy, f4(TINY))
            p = power(s, b)
            slope = up * p / (s * (f4(1) + a * p))
            pulled[0, k], pulled[1, k] = clipped(slope * dx, clip), clipped(slope * dy, clip)
            pushed[0, k], pushed[1, k] = f4(0), f4(0)
        for q in range(rate):
            draw_places(words, key, edges, owners, count, first, rate, q, theirs)
            for k in range(count):
                dx, dy = own[k, 0] - other[k, 0], own[k, 1] - other[k, 1]
                s = dx * dx + dy * dy
                slope = down / ((f4(1e-3) + s) * (f4(1) + a * power(s, b)))
                pushed[0, k] += clipped(slope * dx, clip)
                pushed[1, k] += clipped(slope * dy, clip)
        sums[: high - low] = f4(0)
        for k in range(count):
            i = owners[k] - low
            sums[i, 0] += pulled[0, k]
            sums[i, 1] += pulled[1, k]
            sums[i, 2] += pushed[0, k]
            sums[i, 3] += pushed[1, k]
        for i in range(low, high):
            for d in range(2):
                g = pull * clipped(sums[i - low, d], clip) - clipped(sums[i - low, 2 + d], clip)
                out[i, d] = Z[i, d] - lr * g if moving else g
        low = high


@numba.njit("UniTuple(f8,2)(i8[::1],i4[::1],i4[::1],u4[::1],f4[:,::1],i8,i8,i8,u8,i8,f4,f4)", **KERNEL)
def losses(indptr, rows, columns, rates, Z, start, stop, step, key, rate, a, b):  # type: ignore[no-untyped-def]
    """The sums of log(1 + a s^b) over the rows' acting edges, and of log(1 + 1 / (a s^b)) over their negatives."""
    most = room(indptr, start, stop)
    due, edges, owners = numpy.empty(most, u4), numpy.empty(most, i4), numpy.empty(most, i4)
    other = numpy.empty((most, 2), f4)
    words, theirs = Z.view(u8), other.view(u8)
    attraction, repulsion, low = 0.0, 0.0, start
    while low < stop:
        high = group_end(indptr, low, stop)
        first = indptr[low]
        count = collect(rates, step, first, indptr[high], due, edges)
        for k in range(count):
            e = first + edges[k]
            owners[k] = rows[e]
            dx, dy = Z[rows[e], 0] - Z[columns[e], 0], Z[rows[e], 1] - Z[columns[e], 1]
            attraction += f8(log2(f4(1) + a * power(dx * dx + dy * dy, b)))
        for q in range(rate):
            draw_places(words, key, edges, owners, count, first, rate, q, theirs)
            for k in range(count):
                dx, dy = Z[owners[k], 0] - other[k, 0], Z[owners[k], 1] - other[k, 1]
                s = dx * dx + dy * dy
                if s > 0:
                    repulsion += f8(log2(f4(1) + f4(1) / (a * power(s, b))))
        low = high
    return attraction * numpy.log(2.0), repulsion * numpy.log(2.0)
