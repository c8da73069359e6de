r"""Pulls along the edges of a graph in the plane: every row gathers its own, so nothing is written twice.

.. math:: g_i = \sum_j w_{ij} \, f(s_{ij}) (z_i - z_j), \qquad f(s) = \frac{a}{(b + s)^p}, \qquad s_{ij} = |z_i - z_j|^2

with p = 1 for t-SNE, InfoTSNE (b = 1) and LargeVis (b = 2), and p = 2 for the pairs of PaCMAP. Rows of like degree are
worked on together, and each row's sum runs in the order of its edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl


class Edges(NamedTuple):
    """A graph as the kernel takes it.

    Parameters
    ----------
    order : torch.Tensor
        (n,) int32, the rows from the largest degree to the smallest.
    indptr : torch.Tensor
        (n + 1,) int64, where each row's edges begin.
    columns : torch.Tensor
        (e,) int32.
    weights : torch.Tensor
        (e,) float32.
    """

    order: torch.Tensor
    indptr: torch.Tensor
    columns: torch.Tensor
    weights: torch.Tensor


def edges_of(indptr: torch.Tensor, columns: torch.Tensor, weights: torch.Tensor) -> Edges:
    """The edges of a graph in compressed sparse rows."""
    order = torch.argsort(indptr.diff(), descending=True, stable=True).to(torch.int32)
    return Edges(order, indptr, columns.to(torch.int32), weights.to(torch.float32))


def pulls(
    Z: torch.Tensor, edges: Edges, a: float | torch.Tensor, b: float, power: int, out: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:  # fmt: skip
    """The pulls on all rows, (n, 2).

    Parameters
    ----------
    Z : torch.Tensor
        (n, 2) float32, contiguous.
    edges : Edges
        The graph.
    a, b : float
        Of f; a may lie on the device, a tensor (1,) float32, so that launches can be replayed with another.
    power : int
        p, 1 or 2.
    out : torch.Tensor, default=None
        (n, 2), to which the pulls are added; None for a new tensor.
    **options : Any
        Sizes to try: rows, lanes, warps.
    """
    rows, lanes = options.get("rows", 4), options.get("lanes", 32)
    result = torch.empty_like(Z) if out is None else out
    _pulls[(triton.cdiv(len(Z), rows),)](
        Z.view(torch.int64), result, *edges, len(Z), a, b,
        LOADED=isinstance(a, torch.Tensor), POWER=power, ADD=out is not None, ROWS=rows, LANES=lanes,
        num_warps=options.get("warps", 1),
    )  # fmt: skip
    return result


@triton.jit
def place(words):
    """x and y of places read as one 64-bit word each."""
    return (
        (words & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True),
        ((words >> 32) & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True),
    )


@triton.jit(do_not_specialize=["a"])  # by its alignment, which differs from step to step
def _pulls(
    places, out, order, indptr, columns, weights, n, a, b,
    LOADED: tl.constexpr, POWER: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    strength = tl.load(a) if LOADED else a
    lane = tl.arange(0, LANES)
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.load(order + at, mask=at < n, other=0)
    start = tl.load(indptr + row)
    degree = tl.where(at < n, tl.load(indptr + row + 1) - start, 0).to(tl.int32)
    x, y = place(tl.load(places + row))
    pull_x, pull_y = tl.zeros((ROWS, LANES), tl.float32), tl.zeros((ROWS, LANES), tl.float32)
    for first in range(0, tl.max(degree, 0), LANES):
        edge = start[:, None] + (first + lane)[None, :]
        here = (first + lane)[None, :] < degree[:, None]
        weight = tl.load(weights + edge, mask=here, other=0.0)
        x1, y1 = place(tl.load(places + tl.load(columns + edge, mask=here, other=0), mask=here, other=0))
        dx, dy = x[:, None] - x1, y[:, None] - y1
        soft = b + dx * dx + dy * dy
        force = weight * strength / (soft if POWER == 1 else soft * soft)
        pull_x += force * dx
        pull_y += force * dy
    gx, gy = tl.sum(pull_x, 1), tl.sum(pull_y, 1)
    if ADD:
        gx += tl.load(out + 2 * row, mask=at < n, other=0.0)
        gy += tl.load(out + 2 * row + 1, mask=at < n, other=0.0)
    tl.store(out + 2 * row, gx, mask=at < n)
    tl.store(out + 2 * row + 1, gy, mask=at < n)


def totals(Z: torch.Tensor, edges: Edges, b: float, logarithm: bool) -> torch.Tensor:
    r""":math:`\sum_{ij} w_{ij} \log(b + s_{ij})`, or :math:`\sum_{ij} w_{ij} / (b + s_{ij})`, a float64 scalar."""
    sums = torch.empty(len(Z), dtype=torch.float32, device=Z.device)
    _totals[(triton.cdiv(len(Z), 4),)](
        Z.view(torch.int64), sums, *edges, len(Z), b, LOG=logarithm, ROWS=4, LANES=32, num_warps=1
    )
    return sums.to(torch.float64).sum()


@triton.jit
def _totals(
    places, out, order, indptr, columns, weights, n, b, LOG: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    lane = tl.arange(0, LANES)
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.load(order + at, mask=at < n, other=0)
    start = tl.load(indptr + row)
    degree = tl.where(at < n, tl.load(indptr + row + 1) - start, 0).to(tl.int32)
    x, y = place(tl.load(places + row))
    total = tl.zeros((ROWS, LANES), tl.float32)
    for first in range(0, tl.max(degree, 0), LANES):
        edge = start[:, None] + (first + lane)[None, :]
        here = (first + lane)[None, :] < degree[:, None]
        weight = tl.load(weights + edge, mask=here, other=0.0)
        x1, y1 = place(tl.load(places + tl.load(columns + edge, mask=here, other=0), mask=here, other=0))
        dx, dy = x[:, None] - x1, y[:, None] - y1
        soft = b + dx * dx + dy * dy
        total += weight * (tl.log(soft) if LOG else 1 / soft)
    tl.store(out + row, tl.sum(total, 1), mask=at < n)


def pulls_in_torch(Z: torch.Tensor, edges: Edges, a: float, b: float, power: int) -> torch.Tensor:
    """The twin of `pulls`, in the precision of Z."""
    n = len(Z)
    rows = torch.repeat_interleave(torch.arange(n, device=Z.device), edges.indptr.diff())
    apart = Z[rows] - Z[edges.columns.to(torch.int64)]
    force = edges.weights.to(Z.dtype) * a / (b + apart.square().sum(1)) ** power
    return torch.zeros_like(Z).index_add_(0, rows, force[:, None] * apart)


def totals_in_torch(Z: torch.Tensor, edges: Edges, b: float, logarithm: bool) -> torch.Tensor:
    """The twin of `totals`."""
    rows = torch.repeat_interleave(torch.arange(len(Z), device=Z.device), edges.indptr.diff())
    soft = b + (Z[rows] - Z[edges.columns.to(torch.int64)]).square().sum(1)
    return (edges.weights.to(Z.dtype) * (torch.log(soft) if logarithm else 1 / soft)).sum()
