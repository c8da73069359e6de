"""The search that `cells` makes of many rows of float32 on a CPU: sketches, cells, descent, measured in full.

A join over few cells finds most neighbours; a pass of descent finds most of the rest at a fraction of what more cells
would cost. Recall on a sample of rows says after each step whether it is enough.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import torch

from cartograd.kernels.cpu import prepare
from cartograd.neighbors.compiled_cells import CompiledJoin
from cartograd.neighbors.exact import Found
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.progress import steps
from cartograd.neighbors.routing import train
from cartograd.neighbors.rows import Rows, ScaledRows, TensorRows, UnitRows
from cartograd.neighbors.sample import fewest_probes, needed_cells, recall_of
from cartograd.neighbors.sketch import sketched
from cartograd.neighbors.tiles import tile_rows

log = logging.getLogger("cartograd.neighbors")

FROM_ROWS = 16_000
"""Fewer rows are not worth a compiler's time."""
COPIED = 1 << 28
"""Elements up to which rows that are made on the way (unit rows) are held in memory."""
SAMPLE = 200
SPARE = 3
PASSES = 4
BESIDE = 12
"""Candidates of a row whose own candidates it is offered in a pass; more where many neighbours are wanted."""
LARGE = 70_000
"""Up to so many rows there are 0.75 sqrt(n) cells; then more, or the cells would grow too large."""


def serves(problem: Problem) -> bool:
    """Whether the kernels can make this search."""
    rows = problem.data
    if rows.device.type != "cpu" or rows.dtype != torch.float32 or problem.queries is not None:
        return False
    in_memory = isinstance(rows, TensorRows) or (_is_made(rows) and rows.count * rows.width <= COPIED)
    return in_memory and FROM_ROWS <= rows.count < 2**31 and problem.k <= rows.count // 20


def cell_count(n: int, k: int) -> int:
    """Fewer and larger cells than without kernels, which have less to do around each tile."""
    return max(1, min(round(0.75 * math.sqrt(n) * max(1.0, n / LARGE) ** 0.2), n // (2 * k)))


def solve_compiled(problem: Problem) -> Found | None:
    """Approximate neighbours, or None where the recall asked for was not reached."""
    prepare("cells_join", "descent")
    data, k = _whole(problem.data), problem.k
    generator = problem.generator()
    sample = torch.randperm(problem.data.count, generator=generator)[:SAMPLE]
    truth = solve_exactly(problem, sample)
    sketch = sketched(problem, sample, truth)
    rows, width = (data, k + SPARE) if sketch is None else (sketch.rows, sketch.candidates)
    routing = train(TensorRows(rows), cell_count(len(rows), k), generator)
    needed = needed_cells(replace(problem, data=TensorRows(rows)), routing, sample, truth[0])
    probes = max(2, fewest_probes(needed, 1 - 2 * (1 - problem.recall), len(routing), errors=0.0))
    if probes > len(routing) / 3:
        return None
    join = CompiledJoin(rows, width, routing, probes, problem.own is not None)
    for _ in steps(join.run(), len(join), "neighbours, cells", problem.verbose):
        pass
    for passes in range(PASSES + 1):
        recall, error = recall_of(join.ranked(data, k, sample), truth)
        log.info(
            "cells: %d of %d cells per row, %d passes of descent, recall %.3f on a sample; rows of %d columns",
            *(probes, len(routing), passes, recall, rows.shape[1]),
        )
        if recall - error >= problem.recall or recall == 1.0:
            return join.ranked(data, k)
        if passes < PASSES:
            join.descend(min(width, max(BESIDE, k // 5)))
    return None


def _is_made(rows: Rows) -> bool:
    while isinstance(rows, (UnitRows, ScaledRows)):
        rows = rows.rows
    return isinstance(rows, TensorRows)


def _whole(rows: Rows) -> torch.Tensor:
    """All rows as one contiguous tensor."""
    if isinstance(rows, TensorRows):
        return rows.data.contiguous()
    tile = tile_rows(rows.width)
    return torch.cat([rows.block(start, min(start + tile, rows.count)) for start in range(0, rows.count, tile)])
