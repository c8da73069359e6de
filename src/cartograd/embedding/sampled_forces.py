"""Repulsion from sampled points that moves both ends of each pair, added up in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from cartograd.distributed import Part, row_bounds
from cartograd.distributed.part import tree_sum
from cartograd.embedding.edge_clock import sums_of_runs
from cartograd.neighbors.workers import spread

LANES = 4
"""Parts of the rows that each add up what they do to all others: what 1, 2 or 4 processes hold are whole ones."""
PIECE_PAIRS, GPU_PIECE_PAIRS = 1 << 18, 1 << 26


def push_both_ends(
    Z: torch.Tensor, others: torch.Tensor, slope: Callable[[torch.Tensor], torch.Tensor], part: Part | None = None
) -> torch.Tensor:
    r"""The gradient of :math:`\sum_{i} f_i(s_{i1}, s_{i2}, \dots)` of squared distances to sampled points, (n, c).

    .. math:: \nabla z_i \mathrel{+}= 2 f_{it} (z_i - z_j), \qquad \nabla z_j \mathrel{-}= 2 f_{it} (z_i - z_j),
        \qquad j = \text{others}_{it}

    Parameters
    ----------
    Z : torch.Tensor
        (n, c) points.
    others : torch.Tensor
        (n, m) int64, the points sampled for each.
    slope : callable
        Gives the derivatives f (r, m) of the loss by the squared distances (r, m) of some rows.
    part : Part, default=None
        Where `others` are those of one process's rows: what all others' rows push is got from their processes.
    """
    n, m = len(Z), others.shape[1]
    own = slice(0, n) if part is None else part.own
    step = max(1, (PIECE_PAIRS if Z.device.type == "cpu" else GPU_PIECE_PAIRS) // max(m, 1))
    planes = Z.T.contiguous()  # a coordinate at a time: (r, m) matrices are twice as fast as (r, m, c) ones

    def piece(rows: slice) -> tuple[torch.Tensor, list[tuple[int, torch.Tensor]]]:
        columns = others[rows.start - own.start : rows.stop - own.start]
        apart = [here[rows, None] - here.index_select(0, columns.reshape(-1)).view(columns.shape) for here in planes]
        squared = apart[0].square()
        for difference in apart[1:]:
            squared.addcmul_(difference, difference)
        strength = slope(squared).mul_(2)
        forces = torch.stack([difference.mul_(strength) for difference in apart])
        theirs = []
        for lane, start, stop in lanes(n, rows):
            inside = slice(start - rows.start, stop - rows.start)
            pushed = forces[:, inside].reshape(len(planes), -1)
            theirs.append((lane, scattered(pushed, columns[inside].reshape(-1), n)))
        return forces.sum(2), theirs

    pieces = list(spread(piece, _pieces(n, own, step)))
    by_lane: dict[int, torch.Tensor] = {}
    for _, theirs in pieces:
        for lane, pushed in theirs:
            by_lane[lane] = by_lane[lane] + pushed if lane in by_lane else pushed
    pulled = torch.cat([forces for forces, _ in pieces], 1) if pieces else Z.new_zeros(Z.shape[1], 0)
    total = tree_sum([by_lane.get(lane) for lane in range(LANES)]) if by_lane else torch.zeros_like(planes)
    if part is None:
        return (pulled - total).T.contiguous()
    return part.placed(pulled.T - part.sums_of_own(total.T.contiguous(), "forces on others"), n)


def _pieces(n: int, own: slice, step: int) -> list[slice]:
    """The rows of a process in pieces of at most `step`, cut where lanes are."""
    if own.stop - own.start <= step:
        return [own] if own.start < own.stop else []
    return [slice(a, min(a + step, stop)) for _, start, stop in lanes(n, own) for a in range(start, stop, step)]


def lanes(n: int, own: slice) -> list[tuple[int, int, int]]:
    """(number, start, stop) of the parts of n rows whose forces on others are added up by themselves, those owned."""
    bounds = row_bounds(n, LANES)
    found = [(lane, max(a, own.start), min(b, own.stop)) for lane, (a, b) in enumerate(pairwise(bounds))]
    return [(lane, start, stop) for lane, start, stop in found if start < stop]


def scattered(values: torch.Tensor, places: torch.Tensor, n: int) -> torch.Tensor:
    """Sums of the values (c, m) that go to each of n places, in the order of m, (c, n)."""
    if values.device.type == "cpu":
        sums = torch.zeros(len(values), n, dtype=values.dtype)
        for total, part in zip(sums, values, strict=True):
            total.scatter_add_(0, places, part)
        return sums
    sorted_places, order = torch.sort(places, stable=True)  # atomics would add in another order each time
    return sums_of_runs(values[:, order], sorted_places, n)
