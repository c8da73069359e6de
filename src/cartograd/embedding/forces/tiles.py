"""Tiles of all pairs of rows: their differences and squared distances, a few rows against all points at a time.

Tiles are cut by the sizes of the data alone and each is computed by one thread, so sums have the same bits for any
number of threads. The columns are filled up to a whole number of vector registers: every number of a row is then
computed in the same way wherever in a tile the row stands, and a row's sums do not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.neighbors.shrinking import shrinking
from cartograd.neighbors.workers import spread

LANES = 64
TILE, GPU_TILE = 1 << 17, 1 << 24
"""Pairs in a tile: on a CPU what stays in the nearest caches."""


def planes(points: torch.Tensor) -> torch.Tensor:
    """The coordinates one after the other, (c, n filled up with zeros to a multiple of `LANES`)."""
    n, c = points.shape
    filled = torch.zeros(c, -(-n // LANES) * LANES, dtype=points.dtype, device=points.device)
    filled[:, :n] = points.T
    return filled


@dataclass(frozen=True)
class Tile:
    """Some queries against all points.

    Parameters
    ----------
    rows : slice
        Which queries.
    apart : list of torch.Tensor
        For each coordinate the differences query - point, (r, n filled up).
    squared : torch.Tensor
        Squared distances (r, n filled up), plus the offset asked for; infinite where there is no pair.
    n : int
        How many points there are.
    own : bool
        Whether the queries are points.
    first : int
        Which point the first query is.
    """

    rows: slice
    apart: list[torch.Tensor]
    squared: torch.Tensor
    n: int
    own: bool
    first: int

    def blank(self, values: torch.Tensor, value: float) -> torch.Tensor:
        """Put the value where there is no pair, in place."""
        values[:, self.n :] = value
        if self.own:
            values.diagonal(self.first + self.rows.start).fill_(value)
        return values

    def pulls(self, factors: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum_j f_{ij} (x_i - y_j)`, (r, c). The differences are used up."""
        return torch.stack([part.mul_(factors).sum(1) for part in self.apart], 1)


class Pairs:
    """All pairs of queries and points.

    Parameters
    ----------
    queries, points : torch.Tensor
        (m, c) and (n, c), of one dtype and on one device.
    own : bool
        Whether the queries are points, one after the other: each then leaves itself out.
    offset : float, default=0.0
        Added to the squared distances.
    buffers : int, default=1
        How much more than the simplest the function to be called holds at a time: tiles are as much smaller.
    first : int, default=0
        Which of the points the first query is, where they are points.
    """

    def __init__(
        self,
        queries: torch.Tensor,
        points: torch.Tensor,
        own: bool,
        offset: float = 0.0,
        buffers: int = 1,
        first: int = 0,
    ) -> None:
        self.buffers, self.first = buffers, first
        self.m, self.n, self.own = len(queries), len(points), own
        self.queries, self.points = queries.T.contiguous(), planes(points)
        self.offset = torch.tensor(offset, dtype=points.dtype, device=points.device)

    def each(self, function: Callable[[Tile], None]) -> None:
        """Call the function with every tile; it writes what it finds into the tile's rows of what it was made with.

        Nothing is returned, because small results that outlive the buffers of their tiles keep the allocator from
        using the same memory for the next: that came to as much as all pairs would take. Where memory runs out all is
        done again with smaller tiles; what was written before is written again.
        """

        def all_tiles(step: int) -> None:
            for _ in spread(lambda start: function(self.tile(start, start + step)), range(0, self.m, step)):
                pass

        elements = TILE if self.points.device.type == "cpu" else GPU_TILE
        width = self.points.shape[1] * max(1, len(self.points) // 2) * self.buffers
        shrinking(all_tiles, max(1, elements // max(width, 1)), 1, "all pairs")

    def tile(self, start: int, stop: int) -> Tile:
        """The queries from `start` to `stop`."""
        rows = slice(start, min(stop, self.m))
        apart = [own[rows, None] - all_ for own, all_ in zip(self.queries, self.points, strict=True)]
        squared = torch.addcmul(self.offset, apart[0], apart[0])
        for part in apart[1:]:
            squared.addcmul_(part, part)
        tile = Tile(rows, apart, squared, self.n, self.own, self.first)
        tile.blank(squared, torch.inf)
        return tile
