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

    def add(self, rows: torch.Tensor, value: torch.Tensor, ids: torch.Tensor) -> None:
        """Offer new candidates to some rows, each row named once."""
        width = self.value.shape[1]
        value = torch.cat([value, self.value.index_select(0, rows)], dim=1)
        ids = torch.cat([ids.to(torch.int32), self.ids.index_select(0, rows)], dim=1)
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
    """

    def __init__(self, data: Rows, k: int, routing: Routing, probes: int, queries: Rows | None = None) -> None:
        self.data, self.routing = data, routing
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
        """Join one cell per step."""
        for cell in range(len(self.routing)):
            members, visitors = self.members.of(cell), self.visitors.of(cell)
            if len(members):
                self._join(members, visitors, self.places[cell])
            yield 1

    def _join(self, members: torch.Tensor, visitors: torch.Tensor, place: torch.Tensor) -> None:
        inside = self._about(self.data.take(members), place)
        half = (inside * inside).sum(1).div_(2)
        step = max(16, self.budget // max(len(members), self.data.width))
        if self.within:
            for start in range(0, len(members), step):
                part = slice(start, start + step)
                self._tile(members[part], inside[part], half[part], members, inside, half, start)
        for chosen in visitors.split(step):
            rows = self._about(self.queries.take(chosen), place)
            self._tile(chosen, rows, (rows * rows).sum(1).div_(2), members, inside, half, None)

    @staticmethod
    def _about(rows: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return rows.sub_(place).to(torch.float32)

    def _tile(
        self,
        ids: torch.Tensor,
        rows: torch.Tensor,
        rows_half: torch.Tensor,
        members: torch.Tensor,
        inside: torch.Tensor,
        half: torch.Tensor,
        diagonal: int | None,
    ) -> None:
        """Half squared distances less the visitor's own |x|^2/2, then both directions.

        Values within rounding of zero are made equal, so that of many equal rows the same ones are taken whatever
        the last bits of the product.
        """
        tile = torch.addmm(half[None, :], rows, inside.T, alpha=-1)
        torch.maximum(tile, rows_half.mul(-1 + 1e-6)[:, None], out=tile)
        if diagonal is not None:
            tile.diagonal(diagonal).fill_(torch.inf)
        count = min(self.found.value.shape[1], len(members))
        value, place = tile.topk(count, dim=1, largest=False, sorted=False)
        self.found.add(ids, value.add_(rows_half[:, None]), members[place])
        if diagonal is None and self.visited is not None:
            across = torch.add(tile.T, rows_half[None, :]).contiguous()
            value, place = across.topk(min(count, len(ids)), dim=1, largest=False, sorted=False)
            self.visited.add(members, value.add_(0), ids[place])

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


def measured(
    data: Rows, queries: Rows, ids: torch.Tensor, order: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k nearest of each row's candidates by squared differences: ids (m, k) and values (m, k) float64, ties by id."""
    count = ids.shape[1]
    best_ids = torch.empty(len(ids), k, dtype=torch.int64, device=ids.device)
    best = torch.empty(len(ids), k, dtype=torch.float64, device=ids.device)
    step = max(1, (1 << (20 if ids.device.type == "cpu" else 26)) // (data.width * count))
    for rows in order.split(step):
        names = torch.sort(ids.index_select(0, rows), dim=1).values
        apart = data.take(names.clamp(min=0).reshape(-1)).view(len(rows), count, data.width)
        value = apart.sub_(queries.take(rows)[:, None, :]).square_().sum(dim=2)
        value, place = torch.sort(value.masked_fill_(names < 0, torch.inf), dim=1, stable=True)
        best.index_copy_(0, rows, value[:, :k].to(torch.float64))
        best_ids.index_copy_(0, rows, names.gather(1, place[:, :k]))
    return best_ids, best
