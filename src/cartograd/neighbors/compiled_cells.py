"""The cell join of `cells` with compiled kernels: for rows of float32 among themselves, on a CPU.

In round r every row looks into the r-th nearest of its cells. In one round a row looks into one cell, so the cells of a
round are joined in parallel, and each visitor's heap is written by one of them. What a tile has for the members of its
cell is picked out meanwhile and put into their heaps afterwards, cell by cell again. Rows are kept in the order of
their cells: members of a cell lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch

from cartograd.kernels.cpu import load
from cartograd.neighbors.cells import ROUNDING, Grouped
from cartograd.neighbors.exact import Found
from cartograd.neighbors.routing import Routing
from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.workers import spread

BATCH = 64
"""Cells that are joined between two looks at how good the members' candidates are."""
MOST = 1 << 21
"""Elements of a tile."""
RANKED = 1024
DESCENDED = 4096
SLACK = 0.9999
"""Twice a sketch's half squared distance, times this, is no longer than the squared distance, whatever the rounding."""

Picked = tuple[Any, Any, Any]
"""Places in a tile, values, and the tile's visitors."""


class CompiledJoin:
    """Candidates for the nearest rows of each row.

    Parameters
    ----------
    rows : torch.Tensor
        (n, w) float32, C-contiguous: the rows, or sketches of them.
    candidates : int
        How many to keep.
    routing : Routing
        The cells, of these rows.
    probes : int
        How many cells a row looks into.
    without_self : bool
        Whether a row is no candidate for itself.
    """

    def __init__(
        self, rows: torch.Tensor, candidates: int, routing: Routing, probes: int, without_self: bool = True
    ) -> None:
        self.kernels = load("cells_join")
        self.routing, self.probes, self.without_self = routing, probes, without_self
        looks = routing.nearest(TensorRows(rows), probes)
        n, cells = len(rows), len(routing)
        grouped = Grouped(looks[:, 0], torch.arange(n), cells)
        self.order, self.bounds = grouped.ids, grouped.bounds
        self.rows = rows.index_select(0, self.order)
        self.looks = looks.index_select(0, self.order).to(torch.int16 if cells < 2**15 else torch.int32)
        self.places = routing.places()
        self.value = numpy.full((n, candidates), numpy.inf, numpy.float32)
        self.ids = numpy.full((n, candidates), -1, numpy.int32)
        self.worst = torch.full((n,), torch.inf)

    def __len__(self) -> int:
        return self.probes * len(self.routing)

    def run(self) -> Iterator[int]:
        """Join all cells, one step per cell and round."""
        cells = range(len(self.routing))
        for number in range(self.probes):
            visitors = Grouped(self.looks[:, number].to(torch.int64), torch.arange(len(self.rows)), len(self.routing))
            for start in range(0, len(cells), BATCH):
                batch = cells[start : start + BATCH]
                found = list(spread(lambda cell: self._join(cell, visitors.of(cell), number > 0), batch))
                for _ in spread(self._settle, zip(batch, found, strict=True)):
                    yield 1

    def _join(self, cell: int, visitors: torch.Tensor, both: bool) -> list[Picked]:
        """Give the visitors their best among the members, and collect what the members may want of them."""
        first, last = self.bounds[cell : cell + 2]
        if first == last or len(visitors) == 0:
            return []
        inside, half = self._about(self.rows[first:last], cell)
        picked: list[Picked] = []
        for part in visitors.split(max(16, MOST // (last - first))):
            rows, rows_half = self._about(self.rows.index_select(0, part), cell)
            tile = torch.addmm(half[None, :], rows, inside.T, beta=-1).numpy()  # xy - |y|^2/2
            names = part.to(torch.int32).numpy()
            self.kernels.offer_members(
                tile, rows_half.numpy(), names, first, ROUNDING, self.without_self, self.value, self.ids
            )
            if both:
                picked.append((*self._pick(tile, rows_half.numpy(), self.worst[first:last].numpy()), names))
        return picked

    def _pick(self, tile: Any, half: Any, limit: Any) -> tuple[Any, Any]:
        room = max(1024, tile.size // 8)
        while True:
            place, value = numpy.empty(room, numpy.int32), numpy.empty(room, numpy.float32)
            count = self.kernels.pick_for_members(tile, half, limit, place, value)
            if count <= room:
                return place[:count].copy(), value[:count].copy()
            room = count

    def _settle(self, work: tuple[int, list[Picked]]) -> None:
        cell, picked = work
        first, last = self.bounds[cell : cell + 2]
        if picked:
            least = (self._about(self.rows[first:last], cell)[1] * ROUNDING).numpy()
            for place, value, names in picked:
                self.kernels.offer_visitors(place, value, names, first, last - first, least, self.value, self.ids)
        self.worst[first:last] = torch.from_numpy(self.value[first:last, 0])

    def _about(self, rows: torch.Tensor, cell: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows about a cell's centre, and half their squared lengths."""
        moved = rows - self.places[cell]
        return moved, torch.linalg.vector_norm(moved, dim=1).square_().div_(2)

    def descend(self, count: int) -> None:
        """Offer every row what lies beside its `count` best candidates and beside rows whose best it is."""
        n, kernels = len(self.rows), load("descent")
        best, back = numpy.empty((n, count), numpy.int32), numpy.full((n, count), -1, numpy.int32)
        starts = range(0, n, DESCENDED)

        def first(start: int) -> None:
            kernels.nearest(self.value, self.ids, start, min(start + DESCENDED, n), best)

        for _ in spread(first, starts):
            pass
        kernels.turned(best, back)
        beside = numpy.concatenate([best, back], 1)

        def then(start: int) -> None:
            seen = numpy.zeros(n, numpy.int32)
            kernels.descend(self.rows.numpy(), beside, start, min(start + DESCENDED, n), seen, self.value, self.ids)

        for _ in spread(then, starts):
            pass

    def ranked(self, data: torch.Tensor, k: int, only: torch.Tensor | None = None) -> Found:
        """The k best candidates of each row, or of `only` some, measured on `data` (n, d): ids, squared distances."""
        ids = torch.empty(len(data), k, dtype=torch.int64)
        value = torch.empty(len(data), k)
        named = data.numpy(), self.order.to(torch.int32).numpy()

        def part(start: int, stop: int) -> None:
            lists = self.value, self.ids, SLACK, ids.numpy(), value.numpy()
            self.kernels.rank(*named, *named, start, stop, *lists)

        if only is not None:
            for place in torch.argsort(self.order)[only].tolist():
                part(place, place + 1)
            return ids[only], value[only].to(torch.float64)
        for _ in spread(lambda start: part(start, min(start + RANKED, len(data))), range(0, len(data), RANKED)):
            pass
        return ids, value.to(torch.float64)
