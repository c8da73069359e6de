"""Neighbours of new rows among rows that stay, with compiled kernels: what `query_cells` does, for float32 on a CPU.

Sketches of integers choose candidates (`sketch_cells`), which are measured on the rows themselves. Where sketches would
hide too many neighbours, and for queries so far out that no sketch says where they are, the cells of `query_cells` hold
whole rows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.core.lazy import lazy_attribute
from cartograd.kernels import cpu
from cartograd.neighbors.exact import search_exactly
from cartograd.neighbors.query_cells import BLOCK, EUCLIDEAN, Found, QueryCells, known_neighbours
from cartograd.neighbors.rows import PickedRows, TensorRows
from cartograd.neighbors.sketch import FACTORS
from cartograd.neighbors.sketch_cells import SketchCells
from cartograd.neighbors.whole_sketch import WholeSketch, hidden, whole_sketch
from cartograd.neighbors.workers import all_cores, spread

log = logging.getLogger("cartograd.neighbors")

SPARE = 8
LOST = 0.02
"""The share of true neighbours that sketches may hide."""
RANKED = 512


def query_cells(data: torch.Tensor, k: int, seed: int) -> CompiledQueries | QueryCells:
    """Rows ready to be asked for the nearest of them, in the fastest way that finds enough; see `QueryCells`."""
    served = data.device.type == "cpu" and data.dtype == torch.float32 and len(data) < 2**31
    with all_cores(data.device):
        made = compiled_queries(data.contiguous(), k, seed) if served and cpu.usable() else None
        return QueryCells(data, k, seed) if made is None else made


def compiled_queries(data: torch.Tensor, k: int, seed: int) -> CompiledQueries | None:
    """Cells of sketches of these rows; None where sketches would hide too many neighbours."""
    rows, generator = TensorRows(data), torch.Generator().manual_seed(seed)
    sketch = whole_sketch(rows, generator)
    short, _ = sketch.of(rows)
    known = known_neighbours(rows, k, generator)
    lost = hidden(short, *known, [_width(factor, k) for factor in FACTORS])
    factor = next((factor for factor, share in zip(FACTORS, lost, strict=True) if share <= LOST), None)
    if factor is None:
        log.info("new rows: sketches of %d columns hide %.3f of the neighbours, not used", short.shape[1], lost[-1])
        return None
    cells = SketchCells(short, k, known, generator)
    log.info("new rows: %d of %d cells each, %d candidates", cells.probes, len(cells.routing), _width(factor, k))
    return CompiledQueries(data, sketch, cells, factor, k, seed)


@dataclass(frozen=True)
class CompiledQueries:
    """Rows in cells, ready to be asked for the nearest of them by Euclidean distance.

    Parameters
    ----------
    data : torch.Tensor
        (n, d) float32, C-contiguous; kept, not copied.
    sketch : WholeSketch
        How sketches are made.
    cells : SketchCells
        The rows' sketches.
    factor : float
        How many times the wanted neighbours are kept as candidates.
    k : int
        How many neighbours all this was measured for.
    seed : int
        Of what is random.
    """

    data: torch.Tensor
    sketch: WholeSketch
    cells: SketchCells
    factor: float
    k: int
    seed: int

    def nearest(self, queries: torch.Tensor, k: int) -> Found:
        """The k nearest rows of each query, nearest first, (m, k) int64, and their distances."""
        parts = [self._block(part.contiguous(), k) for part in queries.split(BLOCK)]
        return torch.cat([ids for ids, _ in parts]), torch.cat([distances for _, distances in parts])

    def _block(self, queries: torch.Tensor, k: int) -> Found:
        asked = TensorRows(queries)
        short, far = self.sketch.of(asked)
        ids, raw = self._ranked(queries, k, *self.cells.candidates(short, min(_width(self.factor, k), len(self.data))))
        few = torch.nonzero((ids[:, -1] < 0) & ~far)[:, 0]
        if len(few):
            ids[few], exact = search_exactly(TensorRows(self.data), k, EUCLIDEAN, PickedRows(asked, few))
            raw[few] = exact.to(torch.float32)
        distances = EUCLIDEAN.finish(raw.to(torch.float64)).to(queries.dtype)
        if bool(far.any()):
            ids[far], distances[far] = self._whole_rows.nearest(queries[far], k)
        return ids, distances

    def _ranked(self, queries: torch.Tensor, k: int, turns: Any, value: Any, places: Any) -> Found:
        """The k best candidates, measured: ids and squared distances, -1 and infinity for none."""
        ids, raw = torch.empty(len(queries), k, dtype=torch.int64), torch.empty(len(queries), k)
        rank, asked, data, order = cpu.load("cells_join").rank, queries.numpy(), self.data.numpy(), self.cells.order

        def part(start: int) -> None:
            stop = min(start + RANKED, len(queries))
            # all candidates are measured: bounds by sketches would spare few of them
            rank(asked, turns, data, order, start, stop, value, places, 0.0, ids.numpy(), raw.numpy())

        for _ in spread(part, range(0, len(queries), RANKED)):
            pass
        return ids, raw

    @lazy_attribute
    def _whole_rows(self) -> QueryCells:
        return QueryCells(self.data, self.k, self.seed)


def _width(factor: float, k: int) -> int:
    return round(factor * k) + SPARE
