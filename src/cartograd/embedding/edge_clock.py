r"""Which edges act at which step: an edge acts in proportion to its weight, at exact periods.

Edge e with weight w has the rate :math:`r = w / w_{\max}` and acts at step t (from 0) where

.. math:: \lfloor (t + 1) r \rfloor > \lfloor t r \rfloor

or, in whole numbers with :math:`R = 2^{24} r`, where :math:`(t R \bmod 2^{24}) + R \ge 2^{24}`: once in every 1 / r
steps (umap-learn's epochs per sample), without any state to carry from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch

from cartograd.core.lazy import lazy_attribute
from cartograd.neighbors import Graph

PIECE_EDGES, GPU_PIECE_EDGES = 1 << 17, 1 << 26
GRID = 2.0**24
"""Rates are rounded to this: an edge of the largest weight but for the last digit acts at every step, too."""


@dataclass(frozen=True)
class Piece:
    """The edges of some consecutive rows.

    Parameters
    ----------
    start, stop : int
        The rows.
    first : int
        The number of their first edge among all edges.
    rows, columns : torch.Tensor
        (e,) int64, the ends of each edge.
    rates : torch.Tensor
        (e,) float64.
    counts : sequence of int, default=()
        How many act at each step, where that was counted beforehand: finding them then waits for no GPU.
    """

    start: int
    stop: int
    first: int
    rows: torch.Tensor
    columns: torch.Tensor
    rates: torch.Tensor
    counts: Sequence[int] = ()

    def acting(self, step: int) -> torch.Tensor:
        """Which edges of the piece act at this step, (a,) int64, rising."""
        if self.rows.device.type == "cpu":  # NumPy finds what is not zero four times as fast
            rates = self._whole_rates.numpy()
            due = rates * numpy.int32(step)  # all modulo 2^32
            due &= numpy.int32(int(GRID) - 1)
            due += rates
            return torch.from_numpy(numpy.flatnonzero(due >= numpy.int32(GRID)))
        moved = (self._whole_rates * step).bitwise_and_(int(GRID) - 1).add_(self._whole_rates)
        now = moved >= int(GRID)
        return chosen(now, self.counts[step]) if step < len(self.counts) else torch.nonzero(now)[:, 0]

    @lazy_attribute
    def _whole_rates(self) -> torch.Tensor:
        return (self.rates * GRID).to(torch.int32)

    def at(self, step: int) -> Acting:
        """The edges of the piece that act at this step."""
        edges = self.acting(step)
        return Acting(self, edges, self.rows.index_select(0, edges), self.columns.index_select(0, edges))


@dataclass(frozen=True)
class Acting:
    """The edges of a piece that act at a step.

    Parameters
    ----------
    piece : Piece
        Whose they are.
    edges : torch.Tensor
        Which of the piece's, (a,) int64, rising.
    rows, columns : torch.Tensor
        Their ends, (a,) int64.
    """

    piece: Piece
    edges: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor

    def numbers(self, each: int) -> torch.Tensor:
        """A number of its own for each of `each` draws of each edge, (each, a) int64: none is another's at any step."""
        draws = torch.arange(each, device=self.edges.device)
        return ((self.piece.first + self.edges) * each)[None, :] + draws[:, None]

    def row_sums(self, values: torch.Tensor) -> torch.Tensor:
        """Sums of values (c, a) by their rows, each from left to right, (stop - start, c)."""
        first, count = self.piece.start, self.piece.stop - self.piece.start
        if values.device.type == "cpu":  # one after the other, at half the time of runs of equal rows
            return values.new_zeros(len(values), count).index_add_(1, self.rows - first, values).T
        return sums_of_runs(values, self.rows - first, count).T


def sums_of_runs(values: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    """Sums of values (c, a) by rows (a,) that rise, (c, count), each from left to right; waits for no GPU."""
    offsets = torch.searchsorted(rows, torch.arange(count + 1, device=rows.device)).expand(len(values), -1)
    return torch.segment_reduce(values, "sum", offsets=offsets, axis=1, initial=0.0)


def chosen(due: torch.Tensor, count: int) -> torch.Tensor:
    """The places of the `count` trues, (count,) int64, rising: `torch.nonzero` where their number is known."""
    place = torch.where(due, torch.cumsum(due, 0) - 1, count)
    places = torch.arange(len(due), device=due.device)
    return torch.empty(count + 1, dtype=torch.int64, device=due.device).scatter_(0, place, places)[:count]


def counted(rates: torch.Tensor, steps: int) -> list[int]:
    """How many edges with these rates act at each of the first steps: differences of the sums of floor(t r)."""
    whole = (rates * GRID).to(torch.int64)
    upto = torch.stack([(whole * step).bitwise_right_shift_(24).sum() for step in range(steps + 1)])
    return [int(count) for count in upto.diff().tolist()]


def shares(weights: torch.Tensor, largest: float | None = None) -> torch.Tensor:
    """The rates of edges with these weights, (e,) float64; `largest` is that of all edges, where these are some."""
    rates = weights.to(torch.float64)
    return torch.round(rates / (rates.max() if largest is None else largest) * GRID) / GRID if len(rates) else rates


def clock(graph: Graph, steps: int, largest: float | None = None) -> list[Piece]:
    """The edges of a symmetric graph in pieces, without those that would not act once in that many steps."""
    rates = shares(graph.weights, largest)
    kept = torch.floor(rates * steps) >= 1
    rows, columns, rates = graph.rows()[kept], graph.indices[kept], rates[kept]
    most = PIECE_EDGES if rows.device.type == "cpu" else GPU_PIECE_EDGES
    indptr = torch.cat([rows.new_zeros(1), torch.cumsum(torch.bincount(rows, minlength=graph.n), 0)])
    pieces = []
    start = 0
    while start < graph.n:
        reach = int(indptr[start]) + most
        stop = max(start + 1, int(torch.searchsorted(indptr, torch.tensor(reach, device=rows.device), right=True)) - 1)
        stop = min(stop, graph.n)
        edges = slice(int(indptr[start]), int(indptr[stop]))
        counts = () if rows.device.type == "cpu" else counted(rates[edges], steps)
        pieces.append(Piece(start, stop, edges.start, rows[edges], columns[edges], rates[edges], counts))
        start = stop
    return pieces
