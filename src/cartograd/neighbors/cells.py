"""The cell join: an approximate search by matrix products inside k-means cells.

Every row looks into its p nearest cells. All rows that look into one cell share one product with the cell's members,
and that tile is used twice: along its rows it gives each visitor its best among the members, along its columns it
gives each member its best among the visitors. A pair is thus seen if *either* row looks into the other's cell,
which on text vectors reaches with 10 cells what one direction needs 30 for. Values are taken about the cell's centre,
where a float32 product keeps its digits; the kept candidates are measured again as sums of squared differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from cartograd.neighbors.lists import Entries, Lists, below_columns, below_rows
from cartograd.neighbors.routing import Routing
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.workers import spread

SPARE = 3
"""Candidates kept beyond k."""

BATCH = 1 << 22
"""Pairs of rows between two settlings of the lists."""

ROUNDING = 1e-6
"""Half squared distances below this part of |x|^2/2 are rounding of the product and taken as equal: of many equal rows
the same ones are then kept whatever the last bits."""


def tile_budget(device: torch.device) -> int:
    """How many numbers a tile may have."""
    return 1 << (23 if device.type == "cpu" else 27)


class Grouped:
    """Ids sorted by cell: ``of(c)`` are the ids in cell c, in rising order."""

    def __init__(self, cells: torch.Tensor, ids: torch.Tensor, count: int) -> None:
        self.ids = ids[torch.argsort(cells, stable=True)]
        ends = torch.bincount(cells, minlength=count).cumsum(0)
        self.bounds = [0, *ends.tolist()]

    def of(self, cell: int) -> torch.Tensor:
        """The ids in one cell."""
        return self.ids[self.bounds[cell] : self.bounds[cell + 1]]


class Tile(NamedTuple):
    """Visitors (r,), members (m,), half squared distances (r, m), and what of them is rounding, (r,) and (m,)."""

    visitors: torch.Tensor
    members: torch.Tensor
    values: torch.Tensor
    floor: torch.Tensor
    members_floor: torch.Tensor


class CellJoin:
    """Candidates for the k nearest rows of `data`, of each row of `data` or of `queries`.

    Parameters
    ----------
    data : Rows
        The rows searched.
    k : int
        How many neighbours.
    routing : Routing
        The cells.
    probes : int
        How many cells a row looks into.
    queries : Rows, default=None
        Rows whose neighbours are sought; None for those of `data`.
    without_self : bool, default=True
        Whether a row of `data` is no candidate for itself.
    budget : int, default=None
        About how many numbers a tile has; None for as many as `tile_budget` says.
    """

    def __init__(
        self,
        data: Rows,
        k: int,
        routing: Routing,
        probes: int,
        queries: Rows | None = None,
        without_self: bool = True,
        budget: int | None = None,
    ) -> None:
        self.data, self.routing, self.without_self = data, routing, without_self
        self.queries = data if queries is None else queries
        self.within = queries is None
        cells, device = len(routing), data.device
        self.looks = routing.nearest(self.queries, probes)
        self.home = self.looks[:, 0] if self.within else routing.nearest(data, 1)[:, 0]
        ids = torch.arange(self.queries.count, device=device)
        self.members = Grouped(self.home, torch.arange(data.count, device=device), cells)
        self.nearest = self.members if self.within else Grouped(self.looks[:, 0], ids, cells)
        others = self.looks[:, 1:]
        self.visitors = Grouped(others.reshape(-1), ids[:, None].expand(others.shape).reshape(-1), cells)
        # Only compared from here on, many at a time: the fewer bytes the better.
        self.looks, self.home = self.looks.to(torch.int16), self.home.to(torch.int16)
        self.lists = Lists(self.queries.count, k + SPARE, device)
        self.places = routing.places()
        self.budget = tile_budget(device) if budget is None else budget

    def __len__(self) -> int:
        return 2 * len(self.routing)

    def run(self) -> Iterator[int]:
        """Join every cell with the rows that are nearest to it, then with all its visitors; one step per cell.

        In the second round cells are joined in batches. All of a batch see the lists as they were at its beginning, so
        it does not matter which is done first.
        """
        for _ in spread(self._join_nearest, range(len(self.routing))):
            yield 1
        for batch in self._batches():
            for entries in spread(self._join_visitors, batch):
                for entry in entries:
                    self.lists.add(*entry)
                yield 1
            self.lists.settle()

    def _batches(self) -> Iterator[list[int]]:
        """Cells in turn, about `BATCH` pairs of rows at a time."""
        batch, pairs = [], 0
        for cell in range(len(self.routing)):
            batch.append(cell)
            pairs += len(self.members.of(cell)) * len(self.visitors.of(cell))
            if pairs >= BATCH:
                yield batch
                batch, pairs = [], 0
        yield batch

    def _tiles(self, cell: int, visitors: torch.Tensor) -> Iterator[Tile]:
        """Half squared distances of visitors and members, a few visitors at a time."""
        members = self.members.of(cell)
        if len(members) and len(visitors):
            inside, half = _about(self.data, members, self.places[cell])
            for ids in visitors.split(max(16, self.budget // max(len(members), self.data.width))):
                rows, rows_half = _about(self.queries, ids, self.places[cell])
                values = torch.addmm(half[None, :], rows, inside.T, alpha=-1).add_(rows_half[:, None])
                yield Tile(ids, members, values, rows_half * ROUNDING, half * ROUNDING)

    def _join_nearest(self, cell: int) -> None:
        for tile in self._tiles(cell, self.nearest.of(cell)):
            values = torch.maximum(tile.values, tile.floor[:, None], out=tile.values)
            if self.within and self.without_self:
                values.masked_fill_(tile.visitors[:, None] == tile.members[None, :], torch.inf)
            self.lists.take_best(tile.visitors, tile.members, values)

    def _join_visitors(self, cell: int) -> list[Entries]:
        """Pairs that may be neighbours, in both directions: rows, candidates and values."""
        entries: list[Entries] = []
        for tile in self._tiles(cell, self.visitors.of(cell)):
            if self.data.device.type == "cpu":
                entries += self._picked(tile)
            else:
                self._take_best(tile)
        return entries

    def _picked(self, tile: Tile) -> Iterator[Entries]:
        row, column, value = below_rows(tile.values, self.lists.worst[tile.visitors], tile.floor)
        yield tile.visitors[row], tile.members[column], value
        if self.within:
            row, column, value = below_columns(tile.values, self.lists.worst[tile.members], tile.members_floor)
            one, other = tile.members[column], tile.visitors[row]
            new = ~(self.looks[one] == self.home[other][:, None]).any(dim=1)
            yield one[new], other[new], value[new]

    def _take_best(self, tile: Tile) -> None:
        """The same by ``topk``, which a GPU prefers."""
        values = torch.maximum(tile.values, tile.floor[:, None], out=tile.values)
        self.lists.take_best(tile.visitors, tile.members, values)
        if self.within:
            count = min(self.lists.value.shape[1], len(tile.visitors))
            value, place = values.T.topk(count, dim=1, largest=False)
            other = tile.visitors[place]
            known = (self.looks[tile.members][:, None, :] == self.home[other][:, :, None]).any(dim=2)
            self.lists.merge(tile.members, value.masked_fill(known, torch.inf), other)

    def candidates(self) -> torch.Tensor:
        """The best candidates of each row by id, (m, c) int64, -1 where there are fewer."""
        return self.lists.candidates()

    def order(self) -> torch.Tensor:
        """Queries in the order of their cells: neighbours in this order are neighbours in memory."""
        return self.members.ids if self.within else torch.arange(self.queries.count, device=self.data.device)


def _about(rows: Rows, ids: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows about a cell's centre in float32, and half their squared lengths: |x - y|^2/2 = |x|^2/2 + |y|^2/2 - x y."""
    moved = rows.take(ids).sub_(place).to(torch.float32)
    return moved, torch.linalg.vector_norm(moved, dim=1).square_().div_(2)
