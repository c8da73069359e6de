"""The walk over all pairs of rows, one square tile at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.neighbors.distances import Metric
from cartograd.neighbors.rows import Rows

TILE_ROWS = 2048
GPU_TILE_ROWS = 8192
TILE_ELEMENTS = 1 << 25
"""The most elements of a block of rows (rows x columns)."""
FEWEST_ROWS = 64
"""The smallest tile."""


def tile_rows(width: int, device: torch.device | None = None) -> int:
    """How many rows a tile takes: fewer where rows are very wide; never a function of the thread count."""
    most = TILE_ROWS if device is None or device.type == "cpu" else GPU_TILE_ROWS
    return max(FEWEST_ROWS, min(most, TILE_ELEMENTS // max(width, 1)))


def middle(rows: Rows) -> torch.Tensor:
    """The median of each column over an even sample of rows, (d,): a centre that outliers do not move."""
    ids = torch.linspace(0, rows.count - 1, min(rows.count, 1023), dtype=torch.float64).round().to(torch.int64)
    return rows.take(ids.to(rows.device)).median(dim=0).values


@dataclass(frozen=True)
class Side:
    """One block of rows of a tile: where they come from, which they are, and their (moved) values."""

    rows: Rows
    start: int
    stop: int
    values: torch.Tensor

    def ids(self, within: torch.Tensor | None = None) -> torch.Tensor:
        """The ids of all rows of the block, or of those at the given positions."""
        if within is None:
            return torch.arange(self.start, self.stop, device=self.values.device)
        return within + self.start


class Tiles:
    """All tiles of a search: blocks of queries against blocks of rows.

    Parameters
    ----------
    data : Rows
        The rows searched.
    metric : Metric
        How distances are measured.
    queries : Rows or None
        Rows whose neighbours are sought; None for those of `data`.
    own : torch.Tensor or None
        For each query the id in `data` that is left out, (m,) int64.
    size : int, default=None
        How many rows a tile takes on either side; None for as many as `tile_rows` says.
    """

    def __init__(
        self, data: Rows, metric: Metric, queries: Rows | None, own: torch.Tensor | None, size: int | None = None
    ) -> None:
        self.data, self.metric, self.own = data, metric, own
        self.queries = data if queries is None else queries
        self.within = queries is None
        self.centre = middle(data) if metric.centred else None
        self.size = tile_rows(data.width, data.device) if size is None else size

    def starts(self, rows: Rows, first: int = 0) -> range:
        """Where the blocks of `rows` begin."""
        return range(first, rows.count, self.size)

    def side(self, rows: Rows, start: int) -> Side:
        """One block."""
        stop = min(start + self.size, rows.count)
        return Side(rows, start, stop, self.moved(rows.block(start, stop)))

    def moved(self, values: torch.Tensor) -> torch.Tensor:
        """Values about the centre, where the metric wants that."""
        return values if self.centre is None else values - self.centre

    def scores(self, a: Side, b: Side) -> torch.Tensor:
        """Raw values of the tile, (r, m), infinite for a row and itself."""
        scores = self.metric.tile(a.values, b.values)
        if self.own is not None:
            place = self.own[a.start : a.stop] - b.start
            row = torch.nonzero((place >= 0) & (place < b.stop - b.start)).squeeze(1)
            scores[row, place[row]] = torch.inf
        return scores
