"""Approximate search on a GPU: the rows of a cell against those of the cells near to it, all in one kernel.

Rows are put in the order of their k-means cells. Which cells are near to a cell is put to the vote of some of its rows,
each for the few cells nearest to itself; cells without votes come after, by the distance of their centres. How many of
them are looked into is read off a sample of rows whose neighbours are known. The kernel finds about twice as many
candidates as are wanted, from bfloat16 products, and those are measured in float64.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from cartograd.kernels import gpu
from cartograd.neighbors import fused
from cartograd.neighbors.exact import Found
from cartograd.neighbors.problem import Problem
from cartograd.neighbors.routing import Routing, train
from cartograd.neighbors.sample import fewest_probes, recall_of
from cartograd.neighbors.tiles import middle

log = logging.getLogger("cartograd.neighbors")

TILE = 128
"""Rows of a tile of the kernel."""
ROWS_A_CELL = 1024
VOTERS, VOTES = 128, 16
"""Rows of a cell that vote, on average, and how many cells each votes for."""
SCORES = 1 << 27
"""Numbers of a block of scores."""
MOST = 0.4
"""The share of all cells above which an exact search is the faster one."""


def serves(problem: Problem) -> bool:
    """Whether the kernel can do this search: the rows of the data among themselves."""
    return problem.queries is None and fused.serves(problem.data, problem.k, problem.metric, None)


@dataclass(frozen=True)
class Order:
    """Rows in the order of their cells, each cell filled up to whole tiles.

    Parameters
    ----------
    home : torch.Tensor
        (n,) int64, the cell of each row.
    places : torch.Tensor
        (n,) int64, where each row is.
    names : torch.Tensor
        (rows filled up,) int32, which row is where; -1 for none.
    first : torch.Tensor
        (cells + 1,) int64, the first tile of each cell.
    """

    home: torch.Tensor
    places: torch.Tensor
    names: torch.Tensor
    first: torch.Tensor

    @classmethod
    def of(cls, home: torch.Tensor, count: int, generator: torch.Generator) -> Order:
        """Rows of a cell come in a random order."""
        n, device = len(home), home.device
        mixed = torch.randperm(n, generator=generator).to(device)
        rows = mixed[torch.argsort(home[mixed], stable=True)]
        sizes = torch.bincount(home, minlength=count)
        first = torch.nn.functional.pad(((sizes + TILE - 1) // TILE).cumsum(0), (1, 0))
        cell = home[rows]
        rank = torch.arange(n, device=device) - (sizes.cumsum(0) - sizes)[cell]
        spots = first[cell] * TILE + rank
        names = torch.full((int(first[-1]) * TILE,), -1, dtype=torch.int32, device=device)
        names[spots] = rows.to(torch.int32)
        return cls(home, torch.empty_like(rows).index_copy_(0, rows, spots), names, first)


def solve_by_fused_cells(problem: Problem, sample: torch.Tensor, truth: Found) -> Found | None:
    """Approximate neighbours; None where so many cells would be needed that an exact search is faster.

    Parameters
    ----------
    problem : Problem
        One that `serves`.
    sample : torch.Tensor
        (s,) int64, some rows.
    truth : tuple of torch.Tensor
        Their exact neighbours.
    """
    data, generator = problem.data, problem.generator()
    cells = max(1, data.count // ROWS_A_CELL)
    routing = train(data, cells, generator)
    order = Order.of(_homes(problem, routing), cells, generator)
    near = _near_cells(problem, routing, order)
    rank = torch.empty_like(near).scatter_(1, near, torch.arange(cells, device=near.device).expand_as(near))
    needed = rank[order.home[sample][:, None], order.home[truth[0]]] + 1
    probes = fewest_probes(needed, problem.recall, cells)
    while probes <= MOST * cells:
        found = _found(problem, order, near[:, :probes])
        share = recall_of((found[0][sample], found[1][sample]), truth)[0]
        log.info("cells: %d of %d cells per row by one kernel, recall %.3f on a sample", probes, cells, share)
        if share >= problem.recall:
            return found
        probes = 2 * probes
    return None


def _blocks(problem: Problem, routing: Routing, ids: torch.Tensor | None = None) -> list[tuple[slice, torch.Tensor]]:
    n = problem.data.count if ids is None else len(ids)
    step = max(1, SCORES // max(len(routing), problem.data.width))
    parts = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    return [(part, torch.arange(part.start, part.stop, device=problem.data.device) if ids is None else ids[part])
            for part in parts]  # fmt: skip


def _homes(problem: Problem, routing: Routing) -> torch.Tensor:
    """The nearest cell of each row, (n,) int64."""
    home = torch.empty(problem.data.count, dtype=torch.int64, device=problem.data.device)
    for part, _ in _blocks(problem, routing):
        home[part] = routing.scores(problem.data.block(part.start, part.stop)).argmin(1)
    return home


def _near_cells(problem: Problem, routing: Routing, order: Order) -> torch.Tensor:
    """All cells for each cell, (C, C) int64, the nearest first, beginning with itself."""
    cells, device = len(routing), order.home.device
    step = max(1, problem.data.count // (VOTERS * cells))
    voters = torch.arange(0, problem.data.count, step, device=device)
    votes = torch.zeros(cells * cells, dtype=torch.float64, device=device)
    for _, ids in _blocks(problem, routing, voters):
        chosen = routing.scores(problem.data.take(ids)).topk(min(VOTES, cells), dim=1, largest=False).indices
        pairs = (order.home[ids][:, None] * cells + chosen).reshape(-1)
        votes += torch.bincount(pairs, minlength=cells * cells)
    votes = votes.view(cells, cells) + votes.view(cells, cells).T
    apart = torch.cdist(routing.cells.to(torch.float64), routing.cells.to(torch.float64))
    score = votes - apart / (1 + apart.max())  # votes are whole numbers: distances decide among equals
    score.fill_diagonal_(torch.inf)
    return torch.argsort(score, dim=1, descending=True, stable=True)


def _found(problem: Problem, order: Order, near: torch.Tensor) -> Found:
    """Neighbours among the rows of the cells that are near."""
    kernels, ranking, visiting = gpu.load("nearest"), gpu.load("ranking"), gpu.load("visiting")
    X = fused._values(problem.data)
    values, squares = _laid_out(kernels, X, middle(problem.data), order)
    found = visiting.candidates(values, squares, visits_of(order, near), kernels.list_length(problem.k))
    del values, squares
    found = found.index_select(0, order.places)  # back into the order of the rows
    names = torch.where(found >= 0, order.names[found.clamp(min=0)], -1)
    names = torch.sort(names, dim=1).values
    raw, place = torch.sort(ranking.measured(X, X, names, problem.own), dim=1, stable=True)
    raw = raw[:, : problem.k].contiguous()
    ids = names.gather(1, place[:, : problem.k]).to(torch.int64)
    return ids.masked_fill_(torch.isinf(raw), -1), raw


def _laid_out(
    kernels: object, X: torch.Tensor, centre: torch.Tensor, order: Order, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows rounded, in their order, and their squared lengths."""
    plain = kernels.prepared(X, centre, None, dtype or torch.bfloat16)  # type: ignore[attr-defined]
    values = torch.zeros(len(order.names), plain.values.shape[1], dtype=plain.values.dtype, device=X.device)
    squares = torch.full((len(order.names),), float(kernels._FAR), device=X.device)  # type: ignore[attr-defined]
    n = len(X)
    return values.index_copy_(0, order.places, plain.values[:n]), squares.index_copy_(
        0, order.places, plain.squares[:n]
    )


def visits_of(order: Order, near: torch.Tensor) -> object:
    """The tiles of the near cells, cell by cell, as the kernel takes them."""
    cells, sizes = len(near), order.first.diff()
    counts = sizes[near]
    bounds = torch.nn.functional.pad(counts.sum(1).cumsum(0), (1, 0))
    flat = counts.reshape(-1)
    starts = order.first[:-1][near].reshape(-1) - (flat.cumsum(0) - flat)
    tiles = torch.repeat_interleave(starts, flat) + torch.arange(int(bounds[-1]), device=near.device)
    of_tile = torch.repeat_interleave(torch.arange(cells, device=near.device), sizes)
    return gpu.load("visiting").Visits(of_tile.to(torch.int32), bounds.to(torch.int32), tiles.to(torch.int32))
