r"""The gradients of LargeVis and InfoTSNE: attraction along weighted edges, repulsion from random rows.

With :math:`s = |z_i - z_j|^2` every row gathers its attraction from a symmetric graph,

.. math:: \nabla z_i = 4 \sum_j \frac{P_{ij}}{c + s_{ij}} (z_i - z_j)

and the pairs of row i with its random rows j push both ends by :math:`\mp 2 f_{ij} (z_i - z_j) / n` with

.. math:: f_{ij} = \frac{1}{(1 + s_{ij}) (2 + s_{ij})} \quad\text{(LargeVis)}, \qquad
    f_{ij} = \frac{(1 + s_{ij})^{-2}}{\sum_{j'} (1 + s_{ij'})^{-1}} \quad\text{(InfoTSNE)}

What other rows get is added up for each part of the rows by itself; the parts, which the number of rows decides, are
then added in their order. Random rows are those of ``cartograd.affinity.counter.small_integers``. Maps have 2 columns,
or 4, the last of which is 0.
"""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.counting import hashed
from cartograd.kernels.cpu.power import INLINED, KERNEL, log2

f4, i4, u4, u8, f8 = numpy.float32, numpy.int32, numpy.uint32, numpy.uint64, numpy.float64
MOST = 1024


@numba.njit(**INLINED)
def pull_by(indptr, columns, weights, Z, out, start, stop, c, factor, in_space):  # type: ignore[no-untyped-def]
    """Do what `pull` does, in the plane or `in_space`."""
    for row in range(start, stop):
        x, y, z, gx, gy, gz = Z[row, 0], Z[row, 1], f4(0), f4(0), f4(0), f4(0)
        if in_space:
            z = Z[row, 2]
        for e in range(indptr[row], indptr[row + 1]):
            other = u4(columns[e])
            dx, dy, dz = x - Z[other, 0], y - Z[other, 1], f4(0)
            s = c + dx * dx + dy * dy
            if in_space:
                dz = z - Z[other, 2]
                s += dz * dz
            strength = weights[e] / s
            gx += strength * dx
            gy += strength * dy
            if in_space:
                gz += strength * dz
        out[row, 0], out[row, 1] = factor * gx, factor * gy
        if in_space:
            out[row, 2], out[row, 3] = factor * gz, f4(0)


@numba.njit("void(i8[::1],i4[::1],f4[::1],f4[:,::1],f4[:,::1],i8,i8,f4,f4)", **KERNEL)
def pull(indptr, columns, weights, Z, out, start, stop, c, factor):  # type: ignore[no-untyped-def]
    """Write the attraction of the rows, multiplied by `factor`."""
    if Z.shape[1] == 2:
        pull_by(indptr, columns, weights, Z, out, start, stop, c, factor, False)
    else:
        pull_by(indptr, columns, weights, Z, out, start, stop, c, factor, True)


@numba.njit("f8(i8[::1],i4[::1],f4[::1],f4[:,::1],i8,i8,f4)", **KERNEL)
def pull_loss(indptr, columns, weights, Z, start, stop, c):  # type: ignore[no-untyped-def]
    """The sum of P log(c + s) over the rows' edges."""
    total = f8(0)
    for row in range(start, stop):
        for e in range(indptr[row], indptr[row + 1]):
            s = c
            for d in range(Z.shape[1]):
                s += (Z[row, d] - Z[columns[e], d]) * (Z[row, d] - Z[columns[e], d])
            total += f8(weights[e] * log2(s))
    return total * numpy.log(2.0)


@numba.njit(**INLINED)
def draw_rows(key, low, high, count, n, others):  # type: ignore[no-untyped-def]
    """Random rows other than itself, `count` for each of the rows."""
    half, left = (count + 1) // 2, u8(n - 1)
    for row in range(low, high):
        first = (row - low) * count
        for t in range(half):
            bits = hashed(key, row * half + t)
            other = i4(((bits >> u8(33)) * left) >> u8(31))
            others[first + t] = other + i4(other >= row)
            other = i4(((bits & u8(0x7FFFFFFF)) * left) >> u8(31))
            others[first + half + t] = other + i4(other >= row)  # one too many of an odd number is overwritten


@numba.njit(**INLINED)
def measure(Z, low, high, count, others, apart, near, width):  # type: ignore[no-untyped-def]
    """Differences of each row and its random rows, and 1 / (1 + s); places are `width` words."""
    words, places = Z.view(u8), apart.view(u8)
    pairs = (high - low) * count
    for k in range(pairs):
        for w in range(width):
            places[k, w] = words[u4(others[k]), w]
    for row in range(low, high):
        for k in range((row - low) * count, (row - low + 1) * count):
            for d in range(2 * width):
                apart[k, d] = Z[row, d] - apart[k, d]
    for k in range(pairs):
        s = f4(1)
        for d in range(2 * width):
            s += apart[k, d] * apart[k, d]
        near[k] = f4(1) / s


@numba.njit(**INLINED)
def push_by(Z, out, theirs, start, stop, key, count, contrast, factor, width):  # type: ignore[no-untyped-def]
    """Do what `push` does, for places of `width` words."""
    n, dims = Z.shape[0], 2 * width
    rows = max(1, MOST // count)
    others, near = numpy.empty(rows * count + 1, i4), numpy.empty(rows * count, f4)
    apart, force = numpy.empty((rows * count, dims), f4), numpy.empty(rows * count, f4)
    theirs[:] = f4(0)
    loss, scale, low = f8(0), f4(2) * factor, start
    while low < stop:
        high = min(low + rows, stop)
        draw_rows(key, low, high, count, n, others)
        measure(Z, low, high, count, others, apart, near, width)
        for row in range(low, high):
            first, last = (row - low) * count, (row - low + 1) * count
            if contrast:
                total = f4(0)
                for k in range(first, last):
                    total += near[k]
                loss += f8(log2(total))
                share = scale / total
                for k in range(first, last):
                    force[k] = near[k] * near[k] * share
            else:
                for k in range(first, last):
                    loss += f8(log2(f4(1) + near[k]))
                    force[k] = near[k] * near[k] / (f4(1) + near[k]) * scale
            gx, gy, gz = f4(0), f4(0), f4(0)
            for k in range(first, last):
                fx, fy = force[k] * apart[k, 0], force[k] * apart[k, 1]
                gx += fx
                gy += fy
                theirs[u4(others[k]), 0] += fx
                theirs[u4(others[k]), 1] += fy
                if width > 1:
                    fz = force[k] * apart[k, 2]
                    gz += fz
                    theirs[u4(others[k]), 2] += fz
            out[row, 0] -= gx
            out[row, 1] -= gy
            if width > 1:
                out[row, 2] -= gz
        low = high
    return loss * numpy.log(2.0)


@numba.njit("f8(f4[:,::1],f4[:,::1],f4[:,::1],i8,i8,u8,i8,b1,f4)", **KERNEL)
def push(Z, out, theirs, start, stop, key, count, contrast, factor):  # type: ignore[no-untyped-def]
    """Add the repulsion of the rows from their random rows to `out`, write what those get into `theirs`.

    Both multiplied by `factor`; `contrast` for InfoTSNE's. Returns the sum of log(1 + 1 / (1 + s)), or with
    `contrast` that of the logarithm of the sum of 1 / (1 + s).
    """
    if Z.shape[1] == 2:
        return push_by(Z, out, theirs, start, stop, key, count, contrast, factor, 1)
    return push_by(Z, out, theirs, start, stop, key, count, contrast, factor, 2)
