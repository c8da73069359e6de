"""Neighbours of new rows among rows that stay: k-means cells that are made once and asked many times.

A query looks into its nearest cells; their number is measured once, on rows of the data, so what a query gets depends
neither on how many are asked together nor on which. Products about a cell's centre choose the candidates, differences
measure them, as in the cell join; queries that see fewer than k rows are searched exactly.
"""

from __future__ import annotations

import torch

from cartograd.neighbors.calibrate import cell_count
from cartograd.neighbors.distances import METRICS
from cartograd.neighbors.exact import search_exactly
from cartograd.neighbors.measure import measured
from cartograd.neighbors.routing import Routing, train
from cartograd.neighbors.rows import PickedRows, TensorRows
from cartograd.neighbors.workers import spread

SAMPLE = 200
"""Rows on which the number of cells is measured."""
RECALL = 0.92
"""The share of true neighbours that must lie in the cells looked into."""
SPARE = 2
"""Candidates measured beyond k."""
BLOCK = 1 << 14
"""Queries that are worked on together."""
EUCLIDEAN = METRICS["euclidean"]

Found = tuple[torch.Tensor, torch.Tensor]


def known_neighbours(rows: TensorRows, k: int, generator: torch.Generator) -> Found:
    """A sample of the rows, (s,) int64, and the ids of their true neighbours, (s, k)."""
    sample = torch.randperm(rows.count, generator=generator)[:SAMPLE].to(rows.device)
    return sample, search_exactly(rows, k, EUCLIDEAN, PickedRows(rows, sample), sample)[0]


def needed_probes(scores: torch.Tensor, homes: torch.Tensor, recall: float) -> int:
    """How many cells some rows must look into to see this share of their neighbours.

    Parameters
    ----------
    scores : torch.Tensor
        (s, C) the rows' scores of all cells.
    homes : torch.Tensor
        (s, k) the cells of their neighbours.
    recall : float
        The share.
    """
    theirs = scores.gather(1, homes)
    needed = torch.stack([(scores < column[:, None]).sum(1) for column in theirs.T], 1).reshape(-1) + 1
    return int(needed.sort().values[min(int(recall * len(needed)), len(needed) - 1)])


class QueryCells:
    """Rows in cells, ready to be asked for the nearest of them by Euclidean distance.

    Parameters
    ----------
    data : torch.Tensor
        (n, d) the rows; kept, not copied.
    k : int
        How many neighbours the number of cells is measured for.
    seed : int
        Of what is random.
    """

    def __init__(self, data: torch.Tensor, k: int, seed: int) -> None:
        self.data, self.rows = data, TensorRows(data)
        generator = torch.Generator().manual_seed(seed)
        self.routing: Routing = train(self.rows, cell_count(len(data), k), generator)
        self.places = self.routing.places()
        home = self.routing.nearest(self.rows, 1)[:, 0]
        self.members = torch.argsort(home, stable=True)
        self.bounds = [0, *torch.bincount(home, minlength=len(self.routing)).cumsum(0).tolist()]
        sample, near = known_neighbours(self.rows, k, generator)
        self.probes = needed_probes(self.routing.scores(data[sample]), home[near], RECALL)

    def nearest(self, queries: torch.Tensor, k: int) -> Found:
        """The k nearest rows of each query, nearest first, (m, k) int64, and their distances."""
        parts = [self._block(part, k) for part in queries.split(BLOCK)]
        return torch.cat([ids for ids, _ in parts]), torch.cat([distances for _, distances in parts])

    def _block(self, queries: torch.Tensor, k: int) -> Found:
        asked = TensorRows(queries)
        looks = self.routing.nearest(asked, self.probes)
        candidates = self._candidates(asked, looks, k + SPARE)
        order = torch.argsort(looks[:, 0], stable=True)  # those of one cell have much the same candidates
        ids, raw = measured(EUCLIDEAN, self.rows, asked, candidates, order, exact=False)
        ids, raw = ids[:, :k].contiguous(), raw[:, :k].contiguous()
        short = torch.nonzero(ids[:, -1] < 0)[:, 0]
        if len(short):
            ids[short], raw[short] = search_exactly(self.rows, k, EUCLIDEAN, PickedRows(asked, short))
        return ids, EUCLIDEAN.finish(raw).to(queries.dtype)

    def _candidates(self, asked: TensorRows, looks: torch.Tensor, width: int) -> torch.Tensor:
        """The best of the members of the cells looked into (m, p), (m, width) int64, -1 where there are fewer."""
        m, probes = looks.shape
        visits = torch.argsort(looks.reshape(-1), stable=True)
        bounds = [0, *torch.bincount(looks.reshape(-1), minlength=len(self.routing)).cumsum(0).tolist()]
        values = torch.full((m * probes, width), torch.inf, device=asked.device)
        ids = torch.full((m * probes, width), -1, dtype=torch.int32, device=asked.device)

        def join(cell: int) -> None:
            visit, members = visits[bounds[cell] : bounds[cell + 1]], self._of(cell)
            if len(visit) and len(members):
                best, place = self._tile(cell, asked.take(visit // probes), members, width)
                values[visit, : best.shape[1]] = best
                ids[visit, : best.shape[1]] = members[place].to(torch.int32)

        for _ in spread(join, range(len(self.routing))):
            pass
        _, place = values.view(m, -1).topk(width, dim=1, largest=False, sorted=False)
        return ids.view(m, -1).gather(1, place).to(torch.int64)

    def _of(self, cell: int) -> torch.Tensor:
        return self.members[self.bounds[cell] : self.bounds[cell + 1]]

    def _tile(self, cell: int, visitors: torch.Tensor, members: torch.Tensor, width: int) -> Found:
        r"""The lowest of :math:`|x|^2/2 + |y|^2/2 - x \cdot y` about the cell's centre, where visitors are moved to."""
        inside = self.rows.take(members).sub_(self.places[cell]).to(torch.float32)
        visitors = visitors.sub_(self.places[cell]).to(torch.float32)
        half = torch.linalg.vector_norm(inside, dim=1).square_().div_(2)
        tile = torch.addmm(half[None, :], visitors, inside.T, alpha=-1)
        best, place = tile.topk(min(width, len(members)), dim=1, largest=False, sorted=False)
        return best.add_(torch.linalg.vector_norm(visitors, dim=1).square_().div_(2)[:, None]), place
