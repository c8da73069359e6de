r"""Repulsion from random points in the plane that moves both ends of each pair, for LargeVis and InfoTSNE.

Every row i draws `count` others j, by hashing (key of the step, i, number of the draw) as
`cartograd.embedding.sampling.Complement` does for rows that exclude themselves alone; nothing is stored. The derivative
of the loss by the squared distance s is

.. math:: -\frac{1}{n} \frac{1}{(1 + s)(2 + s)} \quad \text{(LargeVis)}, \qquad
    -\frac{1}{n} \frac{w^2}{\sum_j w_{ij}}, \; w = \frac{1}{1 + s} \quad \text{(InfoTSNE)}.

What a pair does to the row that drew it is summed in registers, in the order of the draws; what it does to the other is
added to memory as a whole number, so that the order in which programs come by does not matter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from cartograd.kernels.gpu.counting import hashed, hashed_in_torch
from cartograd.kernels.gpu.edges import place

LARGEST = 1 << 24
"""The most rows: draws have 31 random bits."""


def pushes(Z: torch.Tensor, key: int, count: int, contrastive: bool, **options: Any) -> torch.Tensor:
    """The gradient of the repulsion, (n, 2).

    Parameters
    ----------
    Z : torch.Tensor
        (n, 2) float32, contiguous; at most 2^24 rows.
    key : int
        Of the step's random numbers, 64 bits.
    count : int
        How many others each row draws.
    contrastive : bool
        Whether the loss is InfoTSNE's; otherwise LargeVis'.
    **options : Any
        Sizes to try: rows, lanes, warps.
    """
    n, rows = len(Z), options.get("rows", 4)
    own, theirs = torch.empty_like(Z), torch.zeros(n, 2, dtype=torch.int64, device=Z.device)
    unit = 2.0 ** (61 - (n * count).bit_length())
    signed = torch.full((1,), key - (1 << 64) if key >> 63 else key, dtype=torch.int64, device=Z.device)
    _pushes[(triton.cdiv(n, rows),)](
        Z.view(torch.int64), own, theirs, signed, n, count, unit, CONTRASTIVE=contrastive, ROWS=rows,
        LANES=options.get("lanes", 8 if count < 16 else 32), num_warps=options.get("warps", 1),
    )  # fmt: skip
    return (own - (theirs.to(torch.float64) / unit).to(torch.float32)) / n


@triton.jit
def _apart(places, key, draw, row, x, y, n, count):
    """Differences of rows and their draws, and squared distances, of (rows, draws)."""
    half = (count + 1) // 2
    first = draw < half
    bits = hashed(key, row.to(tl.int64)[:, None] * half + tl.where(first, draw, draw - half)[None, :])
    bits = tl.where(first[None, :], bits >> 33, bits & 0x7FFFFFFF)
    other = ((bits * (n - 1).to(tl.uint64)) >> 31).to(tl.int32)
    other += (other >= row[:, None]).to(tl.int32)
    here = (draw < count)[None, :] & (row < n)[:, None]
    x1, y1 = place(tl.load(places + other, mask=here, other=0))
    dx, dy = x[:, None] - x1, y[:, None] - y1
    return other, here, dx, dy, dx * dx + dy * dy


@triton.jit
def _pushes(
    places, own, theirs, keys, n, count, unit, CONTRASTIVE: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    key = tl.load(keys)
    row, lane = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, LANES)
    x, y = place(tl.load(places + row, mask=row < n, other=0))
    total = tl.zeros((ROWS, LANES), tl.float32)
    if CONTRASTIVE:
        for first in range(0, count, LANES):
            other, here, dx, dy, s = _apart(places, key, first + lane, row, x, y, n, count)
            total += tl.where(here, 1 / (1 + s), 0.0)
    share = 2 / tl.sum(total, 1)
    push_x, push_y = tl.zeros((ROWS, LANES), tl.float32), tl.zeros((ROWS, LANES), tl.float32)
    for first in range(0, count, LANES):
        other, here, dx, dy, s = _apart(places, key, first + lane, row, x, y, n, count)
        if CONTRASTIVE:
            slope = -share[:, None] / ((1 + s) * (1 + s))
        else:
            slope = -2 / ((1 + s) * (2 + s))
        fx, fy = tl.where(here, slope * dx, 0.0), tl.where(here, slope * dy, 0.0)
        push_x += fx
        push_y += fy
        whole_x, whole_y = (fx.to(tl.float64) * unit).to(tl.int64), (fy.to(tl.float64) * unit).to(tl.int64)
        tl.atomic_add(theirs + 2 * other, whole_x, mask=here, sem="relaxed")
        tl.atomic_add(theirs + 2 * other + 1, whole_y, mask=here, sem="relaxed")
    tl.store(own + 2 * row, tl.sum(push_x, 1), mask=row < n)
    tl.store(own + 2 * row + 1, tl.sum(push_y, 1), mask=row < n)


def drawn_in_torch(n: int, key: int, count: int, device: torch.device) -> torch.Tensor:
    """The others that each row draws, (n, count) int64."""
    half = (count + 1) // 2
    rows = torch.arange(n, device=device)[:, None]
    bits = hashed_in_torch(key, rows * half + torch.arange(half, device=device))
    both = torch.cat([(bits >> 33) & 0x7FFFFFFF, bits & 0x7FFFFFFF], 1)[:, :count]
    others = (both * (n - 1)) >> 31
    return others + (others >= rows)


def loss_in_torch(Z: torch.Tensor, key: int, count: int, contrastive: bool) -> torch.Tensor:
    r"""The loss of the repulsion, a float64 scalar.

    :math:`\frac1n \sum_{ij} \log \frac{2 + s_{ij}}{1 + s_{ij}}` of LargeVis, or InfoTSNE's
    :math:`\frac1n \sum_i \log \sum_j w_{ij}`.
    """
    others, total = drawn_in_torch(len(Z), key, count, Z.device), torch.zeros((), dtype=torch.float64, device=Z.device)
    step = max(1, (1 << 24) // max(count, 1))
    for start in range(0, len(Z), step):
        part = slice(start, start + step)
        s = (Z[part, None, :] - Z[others[part]]).square().sum(2)
        lost = torch.log((1 / (1 + s)).sum(1)) if contrastive else torch.log(2 + s) - torch.log1p(s)
        total += lost.sum(dtype=torch.float64)
    return total / len(Z)


def pushes_in_torch(Z: torch.Tensor, key: int, count: int, contrastive: bool) -> torch.Tensor:
    """The twin of `pushes`, in the precision of Z."""
    others = drawn_in_torch(len(Z), key, count, Z.device)
    apart = Z[:, None, :] - Z[others]
    s = apart.square().sum(2)
    w = 1 / (1 + s)
    slope = -2 * w * w / w.sum(1, keepdim=True) if contrastive else -2 / ((1 + s) * (2 + s))
    forces = slope[:, :, None] * apart
    theirs = torch.zeros_like(Z).index_add_(0, others.reshape(-1), forces.reshape(-1, 2))
    return (forces.sum(1) - theirs) / len(Z)
