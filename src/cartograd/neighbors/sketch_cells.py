"""Cells of integer sketches: the candidates of a query are the nearest sketches in the cells nearest to its own.

Products of integers are exact, so a query's candidates do not depend on what it is asked with. In round r every query
looks into the r-th nearest of its cells: within a round the cells are visited in parallel, and each query's heap of
candidates is written by one of them.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from cartograd.kernels import cpu
from cartograd.neighbors.cells import Grouped
from cartograd.neighbors.compiled_search import cell_count
from cartograd.neighbors.query_cells import Found, needed_probes
from cartograd.neighbors.routing import half_squares, train
from cartograd.neighbors.rows import FileRows, TensorRows
from cartograd.neighbors.workers import spread

RECALL = 0.94
"""The share of true neighbours that must lie in the cells looked into."""
PART = 4096
"""Rows that are worked on together."""


class SketchCells:
    """Sketches in cells.

    Parameters
    ----------
    short : torch.Tensor
        (n, w) int16 sketches.
    k : int
        How many neighbours will be asked for.
    known : Found
        Some rows, (s,) int64, and their true neighbours, (s, k): they tell how many cells must be looked into.
    generator : torch.Generator
        Source of what is random.

    Attributes
    ----------
    order : numpy.ndarray
        (n,) int32 the rows in the order of their cells: candidates are places in it.
    """

    def __init__(self, short: torch.Tensor, k: int, known: Found, generator: torch.Generator) -> None:
        rows = FileRows(short.numpy(), torch.float32, short.device)  # converted a piece at a time
        self.routing = train(rows, cell_count(len(short), k), generator)
        home = self.routing.nearest(rows, 1)[:, 0]
        sample, near = known
        self.probes = needed_probes(self.routing.scores(rows.take(sample)), home[near], RECALL)
        grouped = Grouped(home, torch.arange(len(short)), len(self.routing))
        self.bounds, self.order = grouped.bounds, grouped.ids.to(torch.int32).numpy()
        self.short = short[grouped.ids]
        self.half = torch.cat([half_squares(part.to(torch.float32)) for part in self.short.split(PART)])

    def candidates(self, asked: torch.Tensor, width: int) -> tuple[Any, Any, Any]:
        """The `width` best of what each sketch asked (m, w) sees.

        Returns
        -------
        turns : (m,) int32
            The order in which the answers are: those of one cell follow each other.
        value, ids : (m, width) float32 and int32
            Half squared distances of sketches, and places in `order`; infinity and -1 for none. Not sorted.
        """
        asked = asked.to(torch.float32)
        looks = self.routing.nearest(TensorRows(asked), self.probes)
        turns = torch.argsort(looks[:, 0], stable=True)
        asked, looks = asked[turns], looks[turns]
        value = numpy.full((len(asked), width), numpy.inf, numpy.float32)
        ids = numpy.full((len(asked), width), -1, numpy.int32)
        for number in range(self.probes):
            visitors = Grouped(looks[:, number], torch.arange(len(asked)), len(self.routing))
            self._round(asked, visitors, value, ids)
        return turns.to(torch.int32).numpy(), value, ids

    def _round(self, asked: torch.Tensor, visitors: Grouped, value: Any, ids: Any) -> None:
        offer, half = cpu.load("cells_join").offer_members, half_squares(asked)

        def visit(cell: int) -> None:
            first, last = self.bounds[cell : cell + 2]
            inside, half_inside = self.short[first:last].to(torch.float32), self.half[None, first:last]
            for part in visitors.of(cell).split(PART):
                tile = torch.addmm(half_inside, asked[part], inside.T, beta=-1).numpy()  # xy - |y|^2/2
                offer(tile, half[part].numpy(), part.to(torch.int32).numpy(), first, 0.0, False, value, ids)

        for _ in spread(visit, [cell for cell in range(len(self.routing)) if len(visitors.of(cell))]):
            pass
