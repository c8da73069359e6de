"""How many cells to look into: measured on a sample of rows, before the join and again after it."""

from __future__ import annotations

import logging
import math

import torch

from cartograd.neighbors.cells import CellJoin
from cartograd.neighbors.compiled_search import serves, solve_compiled
from cartograd.neighbors.exact import Found
from cartograd.neighbors.measure import measured
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.progress import steps
from cartograd.neighbors.routing import Routing, train
from cartograd.neighbors.sample import fewest_probes, needed_cells
from cartograd.neighbors.sample import recall_of as sample_recall
from cartograd.neighbors.workers import all_cores

log = logging.getLogger("cartograd.neighbors")

SAMPLE = 300
"""Rows on which recall is estimated; its standard error is then about 0.005."""


def cell_count(n: int, k: int) -> int:
    """About 1.5 sqrt(n) cells balances finding the cells against searching them; a cell holds 2k rows or more."""
    return max(1, min(round(1.5 * math.sqrt(n)), n // (2 * k)))


def solve_by_cells(problem: Problem) -> Found:
    """Approximate neighbours by the cell join, exact ones where cells would be no faster."""
    with all_cores(problem.data.device):
        found = solve_compiled(problem) if serves(problem) else None
        return _solve(problem) if found is None else repaired(problem, *found)


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
    join = CellJoin(problem.data, problem.k, routing, probes, problem.queries, problem.own is not None)
    for _ in steps(join.run(), len(join), "neighbours, cells", problem.verbose):
        pass
    ids = join.candidates()
    if problem.own is not None and problem.queries is not None:
        ids.masked_fill_(ids == problem.own[:, None], -1)
    order = join.order()
    del join
    single = problem.data.dtype == torch.float32
    return repaired(problem, *measured(problem.metric, problem.data, problem.asked, ids, order, exact=not single))


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
