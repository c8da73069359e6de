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

from cartograd.neighbors.lists import Lists, below_columns
from cartograd.neighbors.routing import Routing
from cartograd.neighbors.rows import Rows

SPARE = 3
"""Candidates kept beyond k."""

ROUNDING = 1e-6
"""Half squared distances below this part of |x|^2/2 are rounding of the product and taken as equal: of many equal rows
the same ones are then kept whatever the last bits."""


class Grouped:
    """Ids sorted by cell: ``of(c)`` are the ids in cell c, in rising order."""

    def __init__(self, cells: torch.Tensor, ids: torch.Tensor, count: int) -> None:
        self.ids = ids[torch.argsort(cells, stable=True)]
        ends = torch.bincount(cells, minlength=count).cumsum(0)
        self.bounds = [0, *ends.tolist()]

    def of(self, cell: int) -> torch.Tensor:
        """The ids in one cell."""
        return self.ids[self.bounds[cell] : self.bounds[cell + 1]]


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
        self.budget = 1 << (23 if device.type == "cpu" else 27)

    def __len__(self) -> int:
        return 2 * len(self.routing)

    def run(self) -> Iterator[int]:
        """Join one cell per step: first with the rows that are nearest to it, then with all its visitors."""
        for visitors, both in ((self.nearest, False), (self.visitors, self.within)):
            for cell in range(len(self.routing)):
                self._join(self.members.of(cell), visitors.of(cell), self.places[cell], both)
                yield 1
        self.lists.settle()

    def _join(self, members: torch.Tensor, visitors: torch.Tensor, place: torch.Tensor, both: bool) -> None:
        if not (len(members) and len(visitors)):
            return
        inside, half = _about(self.data, members, place)
        for ids in visitors.split(max(16, self.budget // max(len(members), self.data.width))):
            rows, rows_half = _about(self.queries, ids, place)
            tile = torch.addmm(half[None, :], rows, inside.T, alpha=-1).add_(rows_half[:, None])
            if self.within and self.without_self and not both:
                tile.masked_fill_(ids[:, None] == members[None, :], torch.inf)
            self.lists.offer(ids, members, tile, rows_half * ROUNDING)
            if both:
                self._offer_back(ids, members, tile, half * ROUNDING)

    def _offer_back(
        self, visitors: torch.Tensor, members: torch.Tensor, tile: torch.Tensor, floor: torch.Tensor
    ) -> None:
        """Offer the visitors to the members, but for pairs that the member finds when it visits in its turn."""
        if tile.device.type == "cpu":
            row, column, value = below_columns(tile, self.lists.worst[members], floor)
            one, other = members[column], visitors[row]
            new = ~(self.looks[one] == self.home[other][:, None]).any(dim=1)
            self.lists.add(one[new], other[new], value[new])
        else:
            count = min(self.lists.value.shape[1], len(visitors))
            value, place = torch.maximum(tile.T, floor[:, None]).topk(count, dim=1, largest=False)
            known = (self.looks[members][:, None, :] == self.home[visitors[place]][:, :, None]).any(dim=2)
            self.lists.merge(members, value.masked_fill(known, torch.inf), visitors[place])

    def candidates(self) -> torch.Tensor:
        """The best candidates of each row by id, (m, c) int64, -1 where there are fewer."""
        return torch.where(self.lists.value < torch.inf, self.lists.ids, -1).to(torch.int64)

    def order(self) -> torch.Tensor:
        """Queries in the order of their cells: neighbours in this order are neighbours in memory."""
        return self.members.ids if self.within else torch.arange(self.queries.count, device=self.data.device)


def _about(rows: Rows, ids: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows about a cell's centre in float32, and half their squared lengths: |x - y|^2/2 = |x|^2/2 + |y|^2/2 - x y."""
    moved = rows.take(ids).sub_(place).to(torch.float32)
    return moved, torch.linalg.vector_norm(moved, dim=1).square_().div_(2)
