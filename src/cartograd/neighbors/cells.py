"""The cell join: an approximate search by matrix products inside k-means cells.

Every row looks into its p nearest cells. All rows that look into one cell share one product with the cell's members,
and that tile is used twice: along its rows it gives each visitor its best among the members, along its columns it
gives each member its best among the visitors. A pair is therefore seen if *either* row looks into the other's cell,
which on text vectors reaches with 10 cells what one direction needs 30 for. Values are taken about the cell's centre,
where a float32 product keeps its digits; the kept candidates are measured again as sums of squared differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from cartograd.neighbors.routing import Routing
from cartograd.neighbors.rows import Rows

SPARE = 3
"""Candidates kept beyond k."""


class Grouped:
    """Ids sorted by cell: ``of(c)`` are the ids in cell c, in rising order."""

    def __init__(self, cells: torch.Tensor, ids: torch.Tensor, count: int) -> None:
        self.ids = ids[torch.argsort(cells, stable=True)]
        ends = torch.bincount(cells, minlength=count).cumsum(0)
        self.bounds = [0, *ends.tolist()]

    def of(self, cell: int) -> torch.Tensor:
        """The ids in one cell."""
        return self.ids[self.bounds[cell] : self.bounds[cell + 1]]


class Lists:
    """Candidates of every row, in no order: ``value`` (n, c) float32 and ``ids`` (n, c) int32, -1 for none."""

    def __init__(self, count: int, width: int, device: torch.device) -> None:
        self.value = torch.full((count, width), torch.inf, device=device)
        self.ids = torch.full((count, width), -1, dtype=torch.int32, device=device)

    def offer(self, rows: torch.Tensor, tile: torch.Tensor, lift: torch.Tensor, names: torch.Tensor) -> None:
        """Take in the best of a tile (r, m): its values plus `lift` (r,), its columns called `names` (m,)."""
        width = self.value.shape[1]
        old = self.value.index_select(0, rows)
        if tile.device.type == "cpu":  # on a GPU the question costs more than the answer saves
            live = torch.nonzero(tile.amin(dim=1) + lift < old.amax(dim=1)).squeeze(1)
            rows, tile, lift, old = rows[live], tile[live], lift[live], old[live]
        value, place = tile.topk(min(width, tile.shape[1]), dim=1, largest=False, sorted=False)
        value = torch.cat([value.add_(lift[:, None]), old], dim=1)
        ids = torch.cat([names.to(torch.int32)[place], self.ids.index_select(0, rows)], dim=1)
        value, place = value.topk(width, dim=1, largest=False, sorted=False)
        self.value.index_copy_(0, rows, value)
        self.ids.index_copy_(0, rows, ids.gather(1, place))


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
    """

    def __init__(
        self,
        data: Rows,
        k: int,
        routing: Routing,
        probes: int,
        queries: Rows | None = None,
        without_self: bool = True,
    ) -> None:
        self.data, self.routing, self.without_self = data, routing, without_self
        self.queries = data if queries is None else queries
        self.within = queries is None
        cells, device = len(routing), data.device
        looks = routing.nearest(self.queries, probes)
        home = looks[:, 0] if self.within else routing.nearest(data, 1)[:, 0]
        if self.within:
            looks = looks[:, 1:]  # the members of a cell are its first visitors in any case
        ids = torch.arange(self.queries.count, device=device)[:, None].expand(looks.shape)
        self.visitors = Grouped(looks.reshape(-1), ids.reshape(-1), cells)
        self.members = Grouped(home, torch.arange(data.count, device=device), cells)
        self.found = Lists(self.queries.count, k + SPARE, device)
        self.visited = Lists(data.count, k + SPARE, device) if self.within else None
        self.places = routing.places()
        self.budget = 1 << (23 if device.type == "cpu" else 27)

    def run(self) -> Iterator[int]:
        """Join one cell per step: first its members with each other, then all cells with their visitors.

        In the second round most rows know k near ones already, and what a cell cannot improve need not be sorted.
        """
        for cell in range(len(self.routing) if self.within else 0):
            self._meet(self.members.of(cell), self.places[cell])
            yield 1
        for cell in range(len(self.routing)):
            self._visit(self.members.of(cell), self.visitors.of(cell), self.places[cell])
            yield 1

    def __len__(self) -> int:
        return len(self.routing) * (2 if self.within else 1)

    def _meet(self, members: torch.Tensor, place: torch.Tensor) -> None:
        inside, half = _about(self.data, members, place)
        for start in range(0, len(members), self._step(len(members))):
            part = slice(start, start + self._step(len(members)))
            tile = _tile(inside[part], half[part], inside, half)
            if self.without_self:
                tile.diagonal(start).fill_(torch.inf)
            self.found.offer(members[part], tile, half[part], members)

    def _visit(self, members: torch.Tensor, visitors: torch.Tensor, place: torch.Tensor) -> None:
        if not (len(members) and len(visitors)):
            return
        inside, half = _about(self.data, members, place)
        for ids in visitors.split(self._step(len(members))):
            rows, rows_half = _about(self.queries, ids, place)
            tile = _tile(rows, rows_half, inside, half)
            self.found.offer(ids, tile, rows_half, members)
            if self.visited is not None:
                across = torch.add(tile.T, rows_half - half[:, None]).contiguous()
                self.visited.offer(members, across, half, ids)

    def _step(self, members: int) -> int:
        return max(16, self.budget // max(members, self.data.width))

    def candidates(self) -> torch.Tensor:
        """The best candidates of each row by id, (m, c) int64, -1 where there are fewer."""
        if self.visited is None:
            return self.found.ids.to(torch.int64)
        count = self.found.value.shape[1]
        out = torch.empty(self.found.ids.shape, dtype=torch.int64, device=self.data.device)
        for start in range(0, len(out), 1 << 13):
            part = slice(start, start + (1 << 13))
            ids = torch.cat([self.found.ids[part], self.visited.ids[part]], dim=1)
            value = torch.cat([self.found.value[part], self.visited.value[part]], dim=1)
            twice = (ids[:, count:, None] == ids[:, None, :count]).any(dim=2)
            value[:, count:].masked_fill_(twice, torch.inf)
            place = value.topk(count, dim=1, largest=False).indices
            out[part] = torch.where(value.gather(1, place) < torch.inf, ids.gather(1, place), -1)
        return out

    def order(self) -> torch.Tensor:
        """Queries in the order of their cells: neighbours in this order are neighbours in memory."""
        return self.members.ids if self.within else torch.arange(self.queries.count, device=self.data.device)


def _about(rows: Rows, ids: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows about a cell's centre in float32, and half their squared lengths."""
    moved = rows.take(ids).sub_(place).to(torch.float32)
    return moved, (moved * moved).sum(1).div_(2)


def _tile(rows: torch.Tensor, rows_half: torch.Tensor, inside: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
    """Half squared distances less the rows' own |x|^2/2, (r, m).

    Values within rounding of zero distance are made equal, so that of many equal rows the same ones are taken whatever
    the last bits of the product.
    """
    tile = torch.addmm(half[None, :], rows, inside.T, alpha=-1)
    return torch.maximum(tile, rows_half.mul(-1 + 1e-6)[:, None], out=tile)
