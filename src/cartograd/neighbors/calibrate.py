"""How many cells to look into: measured on a sample of rows, before the join and again after it."""

from __future__ import annotations

import logging
import math

import torch

from cartograd.neighbors import fused_cells
from cartograd.neighbors.cells import CellJoin, tile_budget
from cartograd.neighbors.compiled_search import serves, solve_compiled
from cartograd.neighbors.exact import Found
from cartograd.neighbors.measure import measured
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.progress import steps
from cartograd.neighbors.routing import Routing, train
from cartograd.neighbors.sample import fewest_probes, needed_cells
from cartograd.neighbors.sample import recall_of as sample_recall
from cartograd.neighbors.shrinking import shrinking
from cartograd.neighbors.workers import all_cores

log = logging.getLogger("cartograd.neighbors")

SAMPLE = 300
"""Rows on which recall is estimated; its standard error is then about 0.005."""


SAMPLE_ON_GPU = 1000
STAGE = "neighbours, cells"
LEAST_BUDGET = 1 << 20
"""The fewest numbers of a tile."""


def cell_count(n: int, k: int) -> int:
    """About 1.5 sqrt(n) cells balances finding the cells against searching them; a cell holds 2k rows or more."""
    return max(1, min(round(1.5 * math.sqrt(n)), n // (2 * k)))


def solve_by_cells(problem: Problem) -> Found:
    """Approximate neighbours by the cell join, exact ones where cells would be no faster."""
    with all_cores(problem.data.device):
        if fused_cells.serves(problem):
            return _solve_on_gpu(problem)
        found = solve_compiled(problem) if serves(problem) else None
        return _solve(problem) if found is None else repaired(problem, *found)


def _solve_on_gpu(problem: Problem) -> Found:
    # a source of its own: the first rows that `problem.generator()` draws become centres of cells, and such rows find
    # more of their neighbours than others
    generator = torch.Generator().manual_seed(problem.seed + 1)
    sample = torch.randperm(problem.asked.count, generator=generator)[:SAMPLE_ON_GPU].to(problem.data.device)
    truth = solve_exactly(problem, sample)
    try:
        found = fused_cells.solve_by_fused_cells(problem, sample, truth)
    except torch.OutOfMemoryError:
        log.info("cells: out of memory for the kernel, joining cells by tiles")
        return _solve(problem)
    if found is None:
        log.info("cells: recall %.2f would need too many cells per row; searching exactly", problem.recall)
        return solve_exactly(problem)
    return repaired(problem, *found)


def _solve(problem: Problem) -> Found:
    generator = problem.generator()
    routing = train(problem.data, cell_count(problem.data.count, problem.k), generator)
    sample = torch.randperm(problem.asked.count, generator=generator)[:SAMPLE].to(problem.data.device)
    truth = solve_exactly(problem, sample)
    needed = needed_cells(problem, routing, sample, truth[0])
    probes = fewest_probes(needed, problem.recall, len(routing))
    while probes <= len(routing) / 3:
        found = _join(problem, routing, probes)
        recall = recall_of((found[0][sample], found[1][sample]), truth)
        log.info("cells: %d of %d cells per row, recall %.3f on a sample", probes, len(routing), recall)
        if recall >= problem.recall:
            return found
        probes = math.ceil(1.5 * probes)
    log.info(
        "cells: recall %.2f would need %d of %d cells per row; searching exactly", problem.recall, probes, len(routing)
    )
    return solve_exactly(problem)


def _join(problem: Problem, routing: Routing, probes: int) -> Found:
    budget = tile_budget(problem.data.device)
    ids, order = shrinking(lambda size: _joined(problem, routing, probes, size), budget, LEAST_BUDGET, STAGE)
    if problem.own is not None and problem.queries is not None:
        ids.masked_fill_(ids == problem.own[:, None], -1)
    single = problem.data.dtype == torch.float32
    return repaired(problem, *measured(problem.metric, problem.data, problem.asked, ids, order, exact=not single))


def _joined(problem: Problem, routing: Routing, probes: int, budget: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates of each query, and the order in which they are near each other, by tiles of so many numbers."""
    join = CellJoin(problem.data, problem.k, routing, probes, problem.queries, problem.own is not None, budget)
    for _ in steps(join.run(), len(join), STAGE, problem.verbose):
        pass
    return join.candidates(), join.order()


def repaired(problem: Problem, ids: torch.Tensor, raw: torch.Tensor) -> Found:
    """The k best of sorted candidates; rows of which fewer were found are searched exactly."""
    ids, raw = ids[:, : problem.k].contiguous(), raw[:, : problem.k].contiguous()
    short = torch.nonzero((ids < 0).any(dim=1)).squeeze(1)
    if len(short):
        log.info("%d rows had fewer than %d candidates and were searched exactly", len(short), problem.k)
        ids[short], raw[short] = solve_exactly(problem, short)
    return ids, raw


def recall_of(found: Found, truth: Found) -> float:
    """The share of true neighbours found; one as near as the farthest true neighbour counts as one of them."""
    return sample_recall(found, truth)[0]
