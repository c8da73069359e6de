r"""One step of UMAP's layout: every row gathers its own forces and moves; nothing is written twice.

The formulas are those of `cartograd.embedding.umap_forces`, which edges act those of `cartograd.embedding.edge_clock`
in whole numbers: with the rate :math:`R = 2^{24} w / w_{\max}` an edge acts at step t where

.. math:: (t R \bmod 2^{24}) + R \ge 2^{24}

and the q-th negative of edge e is found by hashing (key of the step, e rate + q). Rows are worked on in groups that
begin at multiples of 256 rows: what a row gets does not depend on the range it is in, as long as that does, too.

A group goes through a few flat loops over its acting edges, which fit the nearest cache and become vector code.
Coordinates are moved as words of two, because two small reads cost twice one large: maps have 2 columns, or 4, the last
of which is 0 in a map of three dimensions. The number of words is a constant of each copy of the kernel, so its loops
over columns are unrolled. An index that could be negative would be tested for that every time: hence the casts to
unsigned numbers.
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
def draw_places(words, key, edges, owners, count, first, rate, q, theirs, width):  # type: ignore[no-untyped-def]
    """Write the coordinates of the q-th negative of each edge."""
    others = u8(len(words) - 1)
    for k in range(count):
        j = i4(((hashed(key, (first + edges[k]) * rate + q) >> u8(32)) * others) >> u8(32))
        j += i4(j >= owners[k])
        for w in range(width):
            theirs[k, w] = words[u4(j), w]


@numba.njit(**INLINED)
def squared(own, other, k, width):  # type: ignore[no-untyped-def]
    """Return the squared distance of the k-th pair."""
    s = f4(0)
    for d in range(2 * width):
        s += (own[k, d] - other[k, d]) * (own[k, d] - other[k, d])
    return s


@numba.njit(**INLINED)
def move_by(indptr, rows, columns, rates, Z, out, start, stop, step, key, rate, a, b, pull, push, moving, lr, width):  # type: ignore[no-untyped-def]
    """Do what `move` does, for places of `width` words."""
    most, dims = room(indptr, start, stop), 2 * width
    due, edges, owners = numpy.empty(most, u4), numpy.empty(most, i4), numpy.empty(most, i4)
    own, other = numpy.empty((most, dims), f4), numpy.empty((most, dims), f4)
    pulled, pushed = numpy.empty((dims, most), f4), numpy.empty((dims, most), f4)
    sums = numpy.empty((GROUP, 2 * dims), f4)
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
            for w in range(width):
                mine[k, w] = words[u4(rows[e]), w]
                theirs[k, w] = words[u4(columns[e]), w]
        for k in range(count):
            s = max(squared(own, other, k, width), f4(TINY))
            p = power(s, b)
            slope = up * p / (s * (f4(1) + a * p))
            for d in range(dims):
                pulled[d, k] = clipped(slope * (own[k, d] - other[k, d]), clip)
                pushed[d, k] = f4(0)
        for q in range(rate):
            draw_places(words, key, edges, owners, count, first, rate, q, theirs, width)
            for k in range(count):
                s = squared(own, other, k, width)
                slope = down / ((f4(1e-3) + s) * (f4(1) + a * power(s, b)))
                for d in range(dims):
                    pushed[d, k] += clipped(slope * (own[k, d] - other[k, d]), clip)
        sums[: high - low] = f4(0)
        for k in range(count):
            i = owners[k] - low
            for d in range(dims):
                sums[i, d] += pulled[d, k]
                sums[i, dims + d] += pushed[d, k]
        for i in range(low, high):
            for d in range(dims):
                g = pull * clipped(sums[i - low, d], clip) - clipped(sums[i - low, dims + d], clip)
                out[i, d] = Z[i, d] - lr * g if moving else g
        low = high


@numba.njit(
    "void(i8[::1],i4[::1],i4[::1],u4[::1],f4[:,::1],f4[:,::1],i8,i8,i8,u8,i8,f4,f4,f4,f4,b1,f4)",
    **KERNEL,
)
def move(indptr, rows, columns, rates, Z, out, start, stop, step, key, rate, a, b, pull, push, moving, lr):  # type: ignore[no-untyped-def]
    """Write z - lr g into `out` for the rows from start to stop, or g itself, their gradients at Z, if not `moving`.

    The step has the bits of torch's gradient descent with that gradient, which also multiplies and adds in one.
    """
    if Z.shape[1] == 2:
        move_by(indptr, rows, columns, rates, Z, out, start, stop, step, key, rate, a, b, pull, push, moving, lr, 1)
    else:
        move_by(indptr, rows, columns, rates, Z, out, start, stop, step, key, rate, a, b, pull, push, moving, lr, 2)


@numba.njit(**INLINED)
def losses_by(indptr, rows, columns, rates, Z, start, stop, step, key, rate, a, b, width):  # type: ignore[no-untyped-def]
    """Do what `losses` does, for places of `width` words."""
    most = room(indptr, start, stop)
    due, edges, owners = numpy.empty(most, u4), numpy.empty(most, i4), numpy.empty(most, i4)
    own, other = numpy.empty((most, 2 * width), f4), numpy.empty((most, 2 * width), f4)
    words, mine, theirs = Z.view(u8), own.view(u8), other.view(u8)
    attraction, repulsion, low = 0.0, 0.0, start
    while low < stop:
        high = group_end(indptr, low, stop)
        first = indptr[low]
        count = collect(rates, step, first, indptr[high], due, edges)
        for k in range(count):
            e = first + edges[k]
            owners[k] = rows[e]
            for w in range(width):
                mine[k, w] = words[u4(rows[e]), w]
                theirs[k, w] = words[u4(columns[e]), w]
            attraction += f8(log2(f4(1) + a * power(squared(own, other, k, width), b)))
        for q in range(rate):
            draw_places(words, key, edges, owners, count, first, rate, q, theirs, width)
            for k in range(count):
                s = squared(own, other, k, width)
                if s > 0:
                    repulsion += f8(log2(f4(1) + f4(1) / (a * power(s, b))))
        low = high
    return attraction * numpy.log(2.0), repulsion * numpy.log(2.0)


@numba.njit("UniTuple(f8,2)(i8[::1],i4[::1],i4[::1],u4[::1],f4[:,::1],i8,i8,i8,u8,i8,f4,f4)", **KERNEL)
def losses(indptr, rows, columns, rates, Z, start, stop, step, key, rate, a, b):  # type: ignore[no-untyped-def]
    """The sums of log(1 + a s^b) over the rows' acting edges, and of log(1 + 1 / (a s^b)) over their negatives."""
    if Z.shape[1] == 2:
        return losses_by(indptr, rows, columns, rates, Z, start, stop, step, key, rate, a, b, 1)
    return losses_by(indptr, rows, columns, rates, Z, start, stop, step, key, rate, a, b, 2)
