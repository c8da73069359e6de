r"""Repulsion from random points in the plane that moves both ends of each pair, for LargeVis and InfoTSNE.

Rows draw each other on a ring (see `cartograd.embedding.ring`, where the twins are): draw s of every row is the one
:math:`b_s` places further, so a row is drawn by the one :math:`b_s` places back. It sums what both pairs do to it in
registers, in the order of the draws, and nothing is written twice. Neighbours on the ring read neighbouring places. The
derivative of the loss by the squared distance s is

.. math:: -\frac{1}{n} \frac{1}{(1 + s)(2 + s)} \quad \text{(LargeVis)}, \qquad
    -\frac{1}{n} \frac{w^2}{\sum_j w_{ij}}, \; w = \frac{1}{1 + s} \quad \text{(InfoTSNE)},

with the sum over the draws of the row that drew: a first kernel writes it down for the second.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from cartograd.kernels.gpu.counting import below, hashed
from cartograd.kernels.gpu.edges import place

DRAWS = 128
"""Draws of a program that finds them."""


def shifts(keys: torch.Tensor, count: int, n: int) -> torch.Tensor:
    """How many places further the draws of steps with these keys (m,) int64 are on a ring of n rows, (m, count) int32.

    The twin is `cartograd.embedding.ring.shifts`.
    """
    found = torch.empty(len(keys), count, dtype=torch.int32, device=keys.device)
    _shifts[(len(keys), triton.cdiv(count, DRAWS))](keys, found, count, n, DRAWS=DRAWS)
    return found


def pushes(
    around: torch.Tensor, order: torch.Tensor, shift: torch.Tensor, contrastive: bool, factor: float,
    out: torch.Tensor, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Add the gradient of the repulsion, times a factor, to `out` (n, 2).

    The twin is `cartograd.embedding.ring.pushes`.

    Parameters
    ----------
    around : torch.Tensor
        (n, 2) float32, contiguous, the places of the rows in the order of the ring; at most 2^24 rows.
    order : torch.Tensor
        (n,) int32, the rows in that order.
    shift : torch.Tensor
        (count,) int32, of the draws of a step.
    contrastive : bool
        Whether the loss is InfoTSNE's; otherwise LargeVis'.
    factor : float
        Of the repulsion.
    out : torch.Tensor
        (n, 2) float32, in the rows' own order.
    **options : Any
        Sizes to try: rows, lanes, warps.
    """
    n, count = len(around), len(shift)
    few = count < 32
    sizes = {
        "ROWS": options.get("rows", 64 if few else 32), "LANES": options.get("lanes", 8 if few else 32),
        "num_warps": options.get("warps", 2 if few else 4),
    }  # fmt: skip
    grid, places = (triton.cdiv(n, sizes["ROWS"]),), around.view(torch.int64)
    shares = torch.empty(n, dtype=torch.float32, device=around.device)
    if contrastive:
        _shares[grid](places, shift, shares, n, count, **sizes)
    _pushes[grid](places, order, shift, shares, out, n, count, -factor / n, CONTRASTIVE=contrastive, **sizes)
    return out


@triton.jit
def _shifts(keys, out, count, n, DRAWS: tl.constexpr):
    step, draw = tl.program_id(0), tl.program_id(1) * DRAWS + tl.arange(0, DRAWS)
    bits = hashed(tl.load(keys + step), draw.to(tl.int64))
    tl.store(out + step * count + draw, below(bits >> 32, n - 1).to(tl.int32) + 1, mask=draw < count)


@triton.jit
def _squared(places, at, here, x, y):
    """Differences of rows and those at these places, and their squared lengths, (draws, rows)."""
    x1, y1 = place(tl.load(places + at, mask=here, other=0))
    dx, dy = x[None, :] - x1, y[None, :] - y1
    return dx, dy, dx * dx + dy * dy


@triton.jit
def _draws(shift, first, row, n, count, LANES: tl.constexpr):
    """Places of the rows drawn and of those that drew, and which there are, of the draws from `first` on."""
    draw = first + tl.arange(0, LANES)
    b = tl.load(shift + draw, mask=draw < count, other=0)[:, None]
    further, back = row[None, :] + b, row[None, :] - b
    further, back = tl.where(further >= n, further - n, further), tl.where(back < 0, back + n, back)
    return further, back, (draw < count)[:, None] & (row < n)[None, :]


@triton.jit(do_not_specialize=["shift"])  # by its alignment, which differs from step to step
def _shares(places, shift, out, n, count, ROWS: tl.constexpr, LANES: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x, y = place(tl.load(places + row, mask=row < n, other=0))
    total = tl.zeros((LANES, ROWS), tl.float32)
    for first in range(0, count, LANES):
        further, _back, here = _draws(shift, first, row, n, count, LANES)
        _dx, _dy, s = _squared(places, further, here, x, y)
        total += tl.where(here, 1 / (1 + s), 0.0)
    tl.store(out + row, 2 / tl.sum(total, 0), mask=row < n)


@triton.jit(do_not_specialize=["shift"])
def _pushes(
    places, order, shift, shares, out, n, count, factor,
    CONTRASTIVE: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x, y = place(tl.load(places + row, mask=row < n, other=0))
    if CONTRASTIVE:
        own = tl.load(shares + row, mask=row < n, other=0.0)[None, :]
    push_x, push_y = tl.zeros((LANES, ROWS), tl.float32), tl.zeros((LANES, ROWS), tl.float32)
    for first in range(0, count, LANES):
        further, back, here = _draws(shift, first, row, n, count, LANES)
        dx, dy, s = _squared(places, further, here, x, y)
        ex, ey, t = _squared(places, back, here, x, y)
        if CONTRASTIVE:
            slope = own / ((1 + s) * (1 + s))
            theirs = tl.load(shares + back, mask=here, other=0.0) / ((1 + t) * (1 + t))
        else:
            slope, theirs = 2 / ((1 + s) * (2 + s)), 2 / ((1 + t) * (2 + t))
        push_x += tl.where(here, slope * dx + theirs * ex, 0.0)
        push_y += tl.where(here, slope * dy + theirs * ey, 0.0)
    to = out + 2 * tl.load(order + row, mask=row < n, other=0)
    gx = tl.load(to, mask=row < n, other=0.0) + factor * tl.sum(push_x, 0)
    gy = tl.load(to + 1, mask=row < n, other=0.0) + factor * tl.sum(push_y, 0)
    tl.store(to, gx, mask=row < n)
    tl.store(to + 1, gy, mask=row < n)
