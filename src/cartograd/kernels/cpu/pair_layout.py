r"""The gradient of PaCMAP's layout: three kinds of pairs that stay the same, from both ends of each.

With :math:`s = |z_i - z_j|^2` a pair of kind k adds

.. math:: \nabla z_i \mathrel{+}= 2 a_k \frac{z_i - z_j}{(b_k + s)^2}

The pairs of row i and kind k are the columns from ``indptr[3 i + k]`` to ``indptr[3 i + k + 1]``. Maps have 2
columns, or 4, the last of which is 0.
"""

from __future__ import annotations

import numba
import numpy

from cartograd.kernels.cpu.power import INLINED, KERNEL

f4, u4, f8 = numpy.float32, numpy.uint32, numpy.float64


@numba.njit("void(i4[:,::1],i8,i8[::1])", **KERNEL)
def count_ends(others, kind, counts):  # type: ignore[no-untyped-def]
    """Add to ``counts[3 i + kind]`` how many pairs of the kind row i has, those of others with it included."""
    for row in range(others.shape[0]):
        for t in range(others.shape[1]):
            counts[3 * row + kind] += 1
            counts[3 * others[row, t] + kind] += 1


@numba.njit("void(i4[:,::1],i8,i8[::1],i4[::1])", **KERNEL)
def list_ends(others, kind, places, columns):  # type: ignore[no-untyped-def]
    """Write the other end of each pair at the next place of its row and kind; `places` is moved on."""
    for row in range(others.shape[0]):
        for t in range(others.shape[1]):
            other = others[row, t]
            columns[places[3 * row + kind]] = other
            places[3 * row + kind] += 1
            columns[places[3 * other + kind]] = row
            places[3 * other + kind] += 1


@numba.njit(**INLINED)
def gradient_by(indptr, columns, Z, out, start, stop, a, b, sums, in_space):  # type: ignore[no-untyped-def]
    """Do what `gradient` does, in the plane or `in_space`."""
    for row in range(start, stop):
        x, y, z, gx, gy, gz = Z[row, 0], Z[row, 1], f4(0), f4(0), f4(0), f4(0)
        if in_space:
            z = Z[row, 2]
        for kind in range(3):
            first, last = indptr[3 * row + kind], indptr[3 * row + kind + 1]
            px, py, pz, total = f4(0), f4(0), f4(0), f4(0)
            if a[kind] != 0:
                for e in range(first, last):
                    other = u4(columns[e])  # a signed index would be tested for being negative
                    dx, dy, dz = x - Z[other, 0], y - Z[other, 1], f4(0)
                    s = b[kind] + dx * dx + dy * dy
                    if in_space:
                        dz = z - Z[other, 2]
                        s += dz * dz
                    near = f4(1) / s
                    px += near * near * dx
                    py += near * near * dy
                    if in_space:
                        pz += near * near * dz
                    total += near
            gx += a[kind] * px
            gy += a[kind] * py
            gz += a[kind] * pz
            sums[kind] += f8(total)
        out[row, 0], out[row, 1] = f4(2) * gx, f4(2) * gy
        if in_space:
            out[row, 2], out[row, 3] = f4(2) * gz, f4(0)


@numba.njit("void(i8[::1],i4[::1],f4[:,::1],f4[:,::1],i8,i8,f4[::1],f4[::1],f8[::1])", **KERNEL)
def gradient(indptr, columns, Z, out, start, stop, a, b, sums):  # type: ignore[no-untyped-def]
    """Write the gradients of the rows, and add to ``sums[k]`` their pairs' 1 / (b_k + s)."""
    if Z.shape[1] == 2:
        gradient_by(indptr, columns, Z, out, start, stop, a, b, sums, False)
    else:
        gradient_by(indptr, columns, Z, out, start, stop, a, b, sums, True)
