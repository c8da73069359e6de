"""How many cells to look into: measured on a sample of rows, before the join and again after it."""

from __future__ import annotations

import logging
import math

import torch

from cartograd.neighbors.cells import CellJoin
from cartograd.neighbors.exact import Found
from cartograd.neighbors.measure import measured
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.progress import steps
from cartograd.neighbors.routing import Routing, train
from cartograd.neighbors.workers import all_cores

log = logging.getLogger("cartograd.neighbors")

SAMPLE = 300
"""Rows on which recall is estimated; its standard error is then about 0.005."""

RANKS = 15
"""At most so many of a sample row's true neighbours are looked up."""


def cell_count(n: int, k: int) -> int:
    """About 1.5 sqrt(n) cells balances finding the cells against searching them; a cell holds 2k rows or more."""
    return max(1, min(round(1.5 * math.sqrt(n)), n // (2 * k)))


def solve_by_cells(problem: Problem) -> Found:
    """Approximate neighbours by the cell join, exact ones where cells would be no faster."""
    with all_cores(problem.data.device):
        return _solve(problem)


def _solve(problem: Problem) -> Found:
    generator = problem.generator()
    routing = train(problem.data, cell_count(problem.data.count, problem.k), generator)
    sample = torch.randperm(problem.asked.count, generator=generator)[:SAMPLE].to(problem.data.device)
    truth = solve_exactly(problem, sample)
    needed = _needed(problem, routing, sample, truth[0])
    probes = _probes(needed, problem.recall, len(routing))
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


def _needed(problem: Problem, routing: Routing, sample: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
    """How many cells must be looked into for each true neighbour of each sample row to be seen, (s, r)."""
    ranks = torch.linspace(0, neighbours.shape[1] - 1, min(RANKS, neighbours.shape[1])).round().to(torch.int64)
    neighbours = neighbours[:, ranks.to(neighbours.device)]
    size = neighbours.shape
    near = routing.scores(problem.data.take(neighbours.reshape(-1)))
    own = routing.scores(problem.asked.take(sample))
    cells = near.argmin(1).view(size)
    forward = torch.stack([(own < own.gather(1, cells[:, i : i + 1])).sum(1) for i in range(size[1])], dim=1)
    if problem.queries is not None:
        return forward + 1
    home = own.argmin(1)[:, None].expand(size).reshape(-1, 1)
    backward = (near < near.gather(1, home)).sum(1).view(size)
    return torch.minimum(forward, backward) + 1


def _probes(needed: torch.Tensor, recall: float, cells: int) -> int:
    """The fewest cells for which the sample's recall is above `recall` by one and a half standard errors."""
    for probes in range(1, cells):
        share = (needed <= probes).to(torch.float64).mean(1)
        error = float(share.std()) / math.sqrt(len(share)) if len(share) > 1 else 0.0
        if float(share.mean()) - 1.5 * error >= recall:
            return probes
    return cells


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
    same = (found[0][:, :, None] == truth[0][:, None, :]).any(dim=2)
    as_near = found[1] <= truth[1][:, -1:] * (1 + 1e-5)
    return float((same | as_near).to(torch.float64).mean())
