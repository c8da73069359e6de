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

POINTS = 64


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
    _read[grid](
        potential, points, low, out, n, spacing, potential.stride(0), len(potential), POINTS=POINTS, num_warps=4
    )
    return out


@triton.jit
def _cell(points, low, index, here, spacing, side, AXIS: tl.constexpr):
    """The first node of each point in one dimension, and where in its cell the point is; always within the grid."""
    value = tl.load(points + 2 * index + AXIS, mask=here, other=0.0).to(tl.float64)
    place = (value - tl.load(low + AXIS)) / spacing + 0.5
    place = tl.minimum(tl.maximum(place, 0.0), side - 5.5)
    cell = tl.floor(place)
    return cell.to(tl.int32), place - cell


@triton.jit
def _weights(r):
    """The weights of nodes at these distances from points, 0 from 5/2 on."""
    r = tl.abs(r)
    near = 115.0 / 192 + r * r * (r * r / 4 - 5.0 / 8)
    next_to = (55 + r * (20 + r * (-120 + r * (80 - 16 * r)))) / 96
    far = tl.maximum(2.5 - r, 0.0)
    return tl.where(r <= 0.5, near, tl.where(r <= 1.5, next_to, far * far * far * far / 24))


@triton.jit
def _slopes(r):
    """Their derivatives by the place of the point, which is where r grows."""
    size = tl.abs(r)
    near = size * (size * size - 5.0 / 4)
    next_to = (20 + size * (-240 + size * (240 - 64 * size))) / 96
    far = tl.maximum(2.5 - size, 0.0)
    slope = tl.where(size <= 0.5, near, tl.where(size <= 1.5, next_to, -far * far * far / 6))
    return tl.where(r < 0, -slope, slope)


@triton.jit
def _charges(points, low, counted, n, spacing, unit, side, POINTS: tl.constexpr):
    index, j = tl.program_id(0) * POINTS + tl.arange(0, POINTS), tl.arange(0, 8)[None, :]
    here = index < n
    row, t = _cell(points, low, index, here, spacing, side, 0)
    column, u = _cell(points, low, index, here, spacing, side, 1)
    across = _weights(u[:, None] + 1.5 - j) * unit
    for i in tl.static_range(5):
        value = (_weights(t + 1.5 - i)[:, None] * across + 0.5).to(tl.int64)
        node = ((row + i) * side + column)[:, None] + j
        tl.atomic_add(counted + node, value, mask=here[:, None] & (j < 5), sem="relaxed")


@triton.jit
def _read(potential, points, low, out, n, spacing, stride, side, POINTS: tl.constexpr):
    index, j = tl.program_id(0) * POINTS + tl.arange(0, POINTS), tl.arange(0, 8)[None, :]
    here = index < n
    row, t = _cell(points, low, index, here, spacing, side, 0)
    column, u = _cell(points, low, index, here, spacing, side, 1)
    weights, slopes = _weights(u[:, None] + 1.5 - j), _slopes(u[:, None] + 1.5 - j)
    value, down = tl.zeros_like(weights), tl.zeros_like(weights)
    for i in tl.static_range(5):
        place = ((row + i) * stride + column)[:, None] + j
        node = tl.load(potential + place, mask=here[:, None] & (j < 5), other=0.0).to(tl.float64)
        weight, slope = _weights(t + 1.5 - i)[:, None], _slopes(t + 1.5 - i)[:, None]
        value += node * weight
        down += node * slope
    tl.store(out + index, tl.sum(value * weights, 1), mask=here)
    tl.store(out + n + index, tl.sum(down * weights, 1) / spacing, mask=here)
    tl.store(out + 2 * n + index, tl.sum(value * slopes, 1) / spacing, mask=here)
