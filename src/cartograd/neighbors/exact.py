"""Exact search in square tiles: a matrix product finds the candidates, exact distances rank them.

For a metric that is a matrix product in disguise, a tile of ``|a|^2 + |b|^2 - 2ab`` in the data's precision is computed
on data moved to their median; of every row's tile the best k and a few spare are taken, and only those that can still
enter the row's list are measured again, as ``sum (a - b)^2`` in float64. Rows whose spare candidates do not outlast
the rounding of the product (near-duplicates far from the median) get their tile again in float64. Memory is
O(n k + tile), and a symmetric metric computes only half of the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from cartograd.neighbors.best import SPARE, Best, lowest_by_id
from cartograd.neighbors.distances import Metric
from cartograd.neighbors.rows import Rows

TILE_ROWS = 4096
TILE_ELEMENTS = 1 << 25
"""The most elements of a block of rows (rows x columns)."""


def tile_rows(width: int) -> int:
    """How many rows a tile takes: fewer where rows are very wide; never a function of the thread count."""
    return max(64, min(TILE_ROWS, TILE_ELEMENTS // max(width, 1)))


def middle(rows: Rows) -> torch.Tensor:
    """The median of each column over an even sample of rows, (d,): a centre that outliers do not move."""
    ids = torch.linspace(0, rows.count - 1, min(rows.count, 1023), dtype=torch.float64).round().to(torch.int64)
    return rows.take(ids.to(rows.device)).median(dim=0).values


@dataclass(frozen=True)
class Side:
    """One block of rows of a tile."""

    rows: Rows
    start: int
    stop: int
    values: torch.Tensor

    def ids(self, within: torch.Tensor | None = None) -> torch.Tensor:
        """The ids of all rows of the block, or of those at the given positions."""
        if within is None:
            return torch.arange(self.start, self.stop, device=self.values.device)
        return within + self.start


class ExactSearch:
    """The exact k nearest rows of `data`, of each row of `data` itself or of `queries`.

    Parameters
    ----------
    data : Rows
        The rows searched.
    k : int
        How many neighbours.
    metric : Metric
        How distances are measured.
    queries : Rows, default=None
        Rows whose neighbours are sought; None for those of `data`.
    own : torch.Tensor, default=None
        For each query the id of the row of `data` that it is and that is left out, (m,) int64; None for none.
        For a search of `data` in itself it must be None or all ids.
    """

    def __init__(
        self, data: Rows, k: int, metric: Metric, queries: Rows | None = None, own: torch.Tensor | None = None
    ) -> None:
        self.data, self.metric, self.k = data, metric, k
        self.queries = data if queries is None else queries
        self.within, self.own = queries is None, own
        self.centre = middle(data) if metric.centred else None
        self.best = Best(self.queries.count, k, data.device)
        self.tile = tile_rows(data.width)

    def tiles(self) -> int:
        """How many tiles `run` works through."""
        across = -(-self.data.count // self.tile)
        if self.within and self.metric.symmetric:
            return across * (across + 1) // 2
        return across * -(-self.queries.count // self.tile)

    def run(self) -> Iterator[int]:
        """Work through the tiles, one per step; `best` holds the answer at the end."""
        half = self.within and self.metric.symmetric
        for a in self._sides(self.queries, 0):
            for b in self._sides(self.data, a.start if half else 0):
                yield self._tile(a, b, both=half and b.start > a.start)

    def _sides(self, rows: Rows, first: int) -> Iterator[Side]:
        for start in range(first, rows.count, self.tile):
            stop = min(start + self.tile, rows.count)
            yield Side(rows, start, stop, self._moved(rows.block(start, stop)))

    def _moved(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.centre is None else values - self.centre

    def _tile(self, a: Side, b: Side, both: bool) -> int:
        scores = self.metric.tile(a.values, b.values)
        self._leave_out_self(scores, a, b)
        self._offer(a, b, scores)
        if both:
            self._offer(b, a, scores.T.contiguous())
        return 1

    def _leave_out_self(self, scores: torch.Tensor, a: Side, b: Side, within: torch.Tensor | None = None) -> None:
        if self.own is None:
            return
        own = self.own[a.start : a.stop] if within is None else self.own[a.ids(within)]
        place = own - b.start
        here = (place >= 0) & (place < b.stop - b.start)
        row = torch.nonzero(here).squeeze(1)
        scores[row, place[row]] = torch.inf

    def _offer(self, a: Side, b: Side, scores: torch.Tensor) -> None:
        """Take this tile's best candidates of every row of `a` into the lists."""
        width = scores.shape[1]
        k, count = min(self.k, width), min(self.k + SPARE, width)
        values, positions = scores.topk(count, dim=1, largest=False)
        slack = self._slack(a.values, values[:, k - 1])
        if count < width:
            crowded = torch.nonzero(values[:, -1] <= values[:, k - 1] + 2 * slack).squeeze(1)
            if len(crowded):
                values = values.to(torch.float64)
                positions[crowded] = chosen = self._uncrowd(a, b, scores, crowded, k, count)
                values[crowded] = scores[crowded].gather(1, chosen).to(torch.float64)
        positions, order = torch.sort(positions, dim=1)
        values = values.gather(1, order)
        hopeful = (values <= (self.best.worst(slice(a.start, a.stop)) + 2 * slack)[:, None]) & (values < torch.inf)
        self._measure(a, b, values, positions, hopeful)

    def _slack(self, a: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
        edge = torch.where(edge < torch.inf, edge, torch.zeros_like(edge))
        return torch.zeros_like(edge) if self.metric.slack is None else self.metric.slack(a, edge)

    def _uncrowd(
        self, a: Side, b: Side, scores: torch.Tensor, crowded: torch.Tensor, k: int, count: int
    ) -> torch.Tensor:
        """Choose again, by float64 scores and then by id, where too many candidates are within rounding."""
        if self.metric.slack is None or scores.dtype == torch.float64:
            rows = scores[crowded]
            values = a.values[crowded]
        else:
            values = self._moved(a.rows.exact(a.ids(crowded)))
            rows = self.metric.tile(values, self._moved(b.rows.exact(b.ids())))
            own_rows = torch.isinf(scores[crowded])
            rows = rows.masked_fill_(own_rows, torch.inf)
        edge = torch.kthvalue(rows, k, dim=1).values
        return lowest_by_id(rows, k, count, self._slack(values, edge))

    def _measure(
        self, a: Side, b: Side, values: torch.Tensor, positions: torch.Tensor, hopeful: torch.Tensor
    ) -> None:
        raw = torch.where(hopeful, values.to(torch.float64), torch.inf)
        if self.metric.slack is not None:
            row, column = torch.nonzero(hopeful, as_tuple=True)
            left, right = a.ids(row), b.ids(positions[row, column])
            raw[row, column] = exact_pairs(self.metric, a.rows, left, b.rows, right)
        some = torch.nonzero(hopeful.any(dim=1)).squeeze(1)
        self.best.merge(a.ids(some), raw[some], b.ids(positions[some]))


def exact_pairs(
    metric: Metric, a: Rows, left: torch.Tensor, b: Rows, right: torch.Tensor, rounded: bool = False
) -> torch.Tensor:
    """Raw values of the pairs (left, right), (m,) float64; from float32 differences where `rounded`."""
    budget = 1 << (19 if a.device.type == "cpu" else 26)  # on a CPU: two blocks that stay in the cache
    step = max(1, budget // a.width)
    out = torch.empty(len(left), dtype=torch.float64, device=a.device)
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        if rounded:
            out[part] = metric.pairs(a.take(left[part]), b.take(right[part])).to(torch.float64)
        else:
            out[part] = metric.pairs(a.exact(left[part]), b.exact(right[part])).to(torch.float64)
    return out
