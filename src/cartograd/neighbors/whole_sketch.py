r"""Rows as short vectors of integers, whose products are the same bits whichever rows are multiplied together.

As in `routing`, rows are moved, scaled and rounded so that every partial sum of a product is an integer that float32
holds. Wide rows are then turned to their leading directions: those are rounded, too, and so short that the products
with them are exact, before their results are rounded. Lengths of differences are off by rounding, a few of `LIMIT`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.neighbors.directions import leading
from cartograd.neighbors.routing import half_squares, whole, whole_scale
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.sketch import SAMPLE, WIDE, WIDTH
from cartograd.neighbors.tiles import middle, tile_rows
from cartograd.neighbors.workers import spread

LENGTH = 5800.0
"""Of a direction as integers: times `LIMIT`, with room for rounding, it is below 2^24."""
ROOM = 1.5
"""Rows up to so many times as far out as those of a sample have sketches."""


@dataclass(frozen=True)
class WholeSketch:
    """The way from rows to integers.

    Parameters
    ----------
    centre : torch.Tensor
        Where rows are moved from, (d,).
    scale : float
        What they are multiplied by.
    directions : torch.Tensor or None
        Rounded directions of length `LENGTH`, (d, w); None where rows keep their columns.
    """

    centre: torch.Tensor
    scale: float
    directions: torch.Tensor | None

    def of(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Sketches, (n, w) int16, and which rows are too far out to have one that says where they are, (n,) bool."""
        width = rows.width if self.directions is None else self.directions.shape[1]
        out = torch.empty(rows.count, width, dtype=torch.int16)
        far = torch.empty(rows.count, dtype=torch.bool)
        step = tile_rows(rows.width)

        def part(start: int) -> None:
            stop = min(start + step, rows.count)
            block, far[start:stop] = whole(rows.block(start, stop), self.centre, self.scale)
            out[start:stop] = block if self.directions is None else (block @ self.directions).div_(LENGTH).round_()

        for _ in spread(part, range(0, rows.count, step)):
            pass
        return out, far


def whole_sketch(rows: Rows, generator: torch.Generator) -> WholeSketch:
    """The sketch for these rows and others like them; in leading directions of a part of them where they are wide."""
    centre = middle(rows)
    some = rows.take(torch.randperm(rows.count, generator=generator)[:SAMPLE])
    scale = whole_scale(some, centre) / ROOM
    if rows.width <= WIDE:
        return WholeSketch(centre, scale, None)
    V = leading(some - centre, WIDTH, generator)
    return WholeSketch(centre, scale, V.mul_(LENGTH).round_())


def hidden(short: torch.Tensor, sample: torch.Tensor, neighbours: torch.Tensor, counts: list[int]) -> list[float]:
    """The share of true neighbours that may not be among so many nearest sketches, equal ones in the worst order.

    Parameters
    ----------
    short : torch.Tensor
        (n, w) sketches.
    sample : torch.Tensor
        (s,) some rows.
    neighbours : torch.Tensor
        (s, k) their true neighbours.
    counts : list of int
        How many nearest.
    """
    own, near = short[sample].to(torch.float32), short[neighbours].to(torch.float32)
    wanted = (half_squares(near) - (near * own[:, None, :]).sum(2)).sort(dim=1).values
    as_near = torch.zeros(len(sample), neighbours.shape[1] + 1, dtype=torch.int64)
    for part in short.split(tile_rows(max(short.shape[1], 4 * len(sample)))):
        rows = part.to(torch.float32)
        place = torch.searchsorted(wanted, torch.addmm(half_squares(rows)[None, :], own, rows.T, alpha=-1))
        as_near.scatter_add_(1, place, torch.ones_like(place))
    rank = as_near.cumsum(1)[:, :-1] - 2  # but for the row itself and the neighbour
    return [float((rank >= count).to(torch.float64).mean()) for count in counts]
