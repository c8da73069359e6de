r"""Points in the plane spread over a regular grid by B-splines of order 5, and potentials read off at them.

A point at place p (in units of the spacing, half a unit added) belongs to the nodes floor(p) to floor(p) + 4 of each
dimension, with the weights of the quartic B-spline of their distances :math:`r = |t + 3/2 - j|`, t = p - floor(p):

.. math:: \frac{115}{192} - \frac58 r^2 + \frac14 r^4, \qquad \frac{55 + 20 r - 120 r^2 + 80 r^3 - 16 r^4}{96}, \qquad
    \frac{(5/2 - r)^4}{24}

for r up to 1/2, 3/2 and 5/2. Weights are added to the nodes as whole numbers, so that their order does not matter. The
twins of these kernels are the methods of `cartograd.embedding.forces.grid.Grid`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

POINTS = 128


def charges(points: torch.Tensor, low: torch.Tensor, spacing: float, side: int, dtype: torch.dtype) -> torch.Tensor:
    """Every point's unit of charge spread over the nodes around it, (side, side).

    Parameters
    ----------
    points : torch.Tensor
        (n, 2) float32, all within the grid.
    low : torch.Tensor
        (2,) float64, the lowest corner of the grid.
    spacing : float
        The distance between nodes.
    side : int
        Nodes in each dimension.
    dtype : torch.dtype
        Of the answer.
    """
    n = len(points)
    unit = 2.0 ** (62 - n.bit_length())
    counted = torch.zeros(side * side, dtype=torch.int64, device=points.device)
    _charges[(triton.cdiv(n, POINTS),)](points, low, counted, n, spacing, unit, side, POINTS=POINTS, num_warps=4)
    return (counted.to(torch.float64) / unit).to(dtype).view(side, side)


def read(potential: torch.Tensor, points: torch.Tensor, low: torch.Tensor, spacing: float) -> torch.Tensor:
    """The potential and its two derivatives at points, (3, n) float64, of coefficients (side, side) on the nodes."""
    n = len(points)
    out = torch.empty(3, n, dtype=torch.float64, device=points.device)
    grid = (triton.cdiv(n, POINTS),)
    _read[grid](potential, points, low, out, n, spacing, potential.stride(0), POINTS=POINTS, num_warps=4)
    return out


@triton.jit
def _cell(points, low, index, here, spacing, AXIS: tl.constexpr):
    """The first node of each point in one dimension, and where in its cell the point is."""
    value = tl.load(points + 2 * index + AXIS, mask=here, other=0.0).to(tl.float64)
    place = (value - tl.load(low + AXIS)) / spacing + 0.5
    cell = tl.floor(place)
    return cell.to(tl.int32), place - cell


@triton.jit
def _weight(t, j: tl.constexpr):
    """The weight of the j-th node."""
    r = t + 1.5 - j
    if j == 2:
        weight = 115.0 / 192 + r * r * (r * r / 4 - 5.0 / 8)
    elif j == 1:
        weight = (55 + r * (20 + r * (-120 + r * (80 - 16 * r)))) / 96
    elif j == 3:
        weight = (55 - r * (20 + r * (120 + r * (80 + 16 * r)))) / 96
    else:
        far = 1 - t if j == 0 else t
        weight = far * far * far * far / 24
    return weight


@triton.jit
def _slope(t, j: tl.constexpr):
    """Its derivative by t."""
    r = t + 1.5 - j
    if j == 2:
        slope = r * (r * r - 5.0 / 4)
    elif j == 1:
        slope = (20 + r * (-240 + r * (240 - 64 * r))) / 96
    elif j == 3:
        slope = -(20 + r * (240 + r * (240 + 64 * r))) / 96
    else:
        far = 1 - t if j == 0 else t
        slope = far * far * far / 6
        if j == 0:
            slope = -slope
    return slope


@triton.jit
def _charges(points, low, counted, n, spacing, unit, side, POINTS: tl.constexpr):
    index = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    here = index < n
    row, t = _cell(points, low, index, here, spacing, 0)
    column, u = _cell(points, low, index, here, spacing, 1)
    for i in tl.static_range(5):
        along = _weight(t, i) * unit
        for j in tl.static_range(5):
            value = (along * _weight(u, j) + 0.5).to(tl.int64)
            tl.atomic_add(counted + (row + i) * side + column + j, value, mask=here, sem="relaxed")


@triton.jit
def _read(potential, points, low, out, n, spacing, stride, POINTS: tl.constexpr):
    index = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    here = index < n
    row, t = _cell(points, low, index, here, spacing, 0)
    column, u = _cell(points, low, index, here, spacing, 1)
    value, down, across = tl.zeros_like(t), tl.zeros_like(t), tl.zeros_like(t)
    for i in tl.static_range(5):
        along, rise = tl.zeros_like(t), tl.zeros_like(t)
        for j in tl.static_range(5):
            node = tl.load(potential + (row + i) * stride + column + j, mask=here, other=0.0).to(tl.float64)
            along += node * _weight(u, j)
            rise += node * _slope(u, j)
        value += along * _weight(t, i)
        down += along * _slope(t, i)
        across += rise * _weight(t, i)
    tl.store(out + index, value, mask=here)
    tl.store(out + n + index, down / spacing, mask=here)
    tl.store(out + 2 * n + index, across / spacing, mask=here)
