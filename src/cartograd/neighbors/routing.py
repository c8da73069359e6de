r"""Which cells a row belongs to and should look into: k-means whose every product is a sum of whole numbers.

Data are moved to their median, scaled and rounded so that rows are vectors of integers no longer than `LIMIT`. Then
:math:`|c|^2/2 - x \cdot c` is an integer below :math:`2^{24}` in every partial sum, float32 computes it without
rounding in whatever order, and the cells come out the same bits at any thread count, with any BLAS, on any device.
Rounding to some 2,800 steps costs nothing here: cells only say where to look.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.neighbors.rows import Rows
from cartograd.neighbors.tiles import middle, tile_rows
from cartograd.neighbors.workers import spread

LIMIT = 2800.0
"""Longest integer row: LIMIT^2 * 3/2, with room for rounding, is below 2^24."""

TRAINING_ROWS = 20
"""Rows per cell that k-means is trained on."""

ROUNDS = 4


@dataclass(frozen=True)
class Routing:
    """Cells and the way to them.

    Parameters
    ----------
    centre : torch.Tensor
        Where the data were moved from, (d,).
    scale : float
        What they were multiplied by before rounding.
    cells : torch.Tensor
        The cells' centres as integer rows, (C, d) float32.
    """

    centre: torch.Tensor
    scale: float
    cells: torch.Tensor

    def __len__(self) -> int:
        return len(self.cells)

    def places(self) -> torch.Tensor:
        """The cells' centres among the data, (C, d)."""
        return self.cells.to(self.centre.dtype) / self.scale + self.centre

    def scores(self, rows: torch.Tensor) -> torch.Tensor:
        r""":math:`|c|^2/2 - x \cdot c`, (r, C): orders the cells of a row by distance."""
        half = half_squares(self.cells)
        return torch.addmm(half[None, :], whole(rows, self.centre, self.scale)[0], self.cells.T, alpha=-1)

    def nearest(self, rows: Rows, count: int) -> torch.Tensor:
        """The `count` nearest cells of every row, nearest first, (n, count) int64."""
        out = torch.empty(rows.count, count, dtype=torch.int64, device=rows.device)
        step = tile_rows(max(rows.width, len(self)))

        def block(start: int) -> None:
            stop = min(start + step, rows.count)
            out[start:stop] = self.scores(rows.block(start, stop)).topk(count, dim=1, largest=False).indices

        for _ in spread(block, range(0, rows.count, step)):
            pass
        return out


def train(rows: Rows, count: int, generator: torch.Generator) -> Routing:
    """k-means with `count` cells on a random part of the rows."""
    centre = middle(rows)
    chosen = torch.randperm(rows.count, generator=generator)[: TRAINING_ROWS * count].to(rows.device)
    sample = rows.take(chosen)
    scale = whole_scale(sample, centre)
    sample = whole(sample, centre, scale)[0]
    routing = Routing(centre, scale, sample[:count].clone())
    for _ in range(ROUNDS):
        routing = Routing(centre, scale, _means(sample, _assign(routing, sample), routing.cells))
    return routing


def _assign(routing: Routing, sample: torch.Tensor) -> torch.Tensor:
    half = (routing.cells * routing.cells).sum(1).div_(2).floor_()
    parts = sample.split(tile_rows(max(sample.shape[1], len(routing))))
    return torch.cat(
        list(spread(lambda part: torch.addmm(half[None, :], part, routing.cells.T, alpha=-1).argmin(1), parts))
    )


def _means(sample: torch.Tensor, cell: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """The rounded mean of each cell's rows; sums of integers in float64 do not depend on their order."""
    sums = torch.zeros(old.shape, dtype=torch.float64, device=old.device).index_add_(0, cell, sample.to(torch.float64))
    members = torch.bincount(cell, minlength=len(old))[:, None]
    return torch.where(members > 0, sums.div_(members.clamp(min=1)).round_().to(old.dtype), old)


def half_squares(rows: torch.Tensor) -> torch.Tensor:
    """Half the squared lengths of rows of integers (..., w), rounded down to integers: exact sums."""
    return rows.square().sum(-1).div_(2).floor_()


def whole_scale(sample: torch.Tensor, centre: torch.Tensor) -> float:
    """So that all but far outliers end up within `LIMIT`."""
    lengths = torch.linalg.vector_norm(sample - centre, dim=1).to(torch.float64).sort().values
    radius = min(float(lengths[-1]), 3 * float(lengths[int(0.99 * (len(lengths) - 1))]) or float(lengths[-1]))
    return LIMIT / radius if radius > 0 else 1.0


def whole(rows: torch.Tensor, centre: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as integers, (r, d) float32, and which of them were longer than `LIMIT` and pulled in to it, (r,)."""
    moved = ((rows - centre) * scale).to(torch.float32)
    length = torch.linalg.vector_norm(moved, dim=1, keepdim=True)
    return moved.mul_(LIMIT / length.clamp(min=LIMIT)).round_(), length[:, 0] > LIMIT
