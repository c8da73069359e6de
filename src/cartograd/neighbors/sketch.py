r"""Wide rows in fewer columns: their scores along the leading directions of a sample.

An orthogonal projection makes no distance longer, so those of sketches are lower bounds of the distances of the rows,
and near rows have near sketches. A search among sketches for more candidates than are wanted, which are then measured
in full, does with a part of the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.neighbors.directions import leading
from cartograd.neighbors.exact import Found
from cartograd.neighbors.problem import Problem
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.workers import spread

WIDTH = 192
"""Columns of a sketch."""
WIDE = 2 * WIDTH
"""Rows up to this width are searched as they are: measured, sketches of half their width save nothing."""
SAMPLE = 1536
TILE = 1024
FACTORS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0)
"""How many times the wanted neighbours may be kept as candidates."""
SHARE = 0.4
"""Of the neighbours that may be missed, the part that sketches may hide."""


@dataclass(frozen=True)
class Sketch:
    """Rows to search among, and how many candidates to keep.

    Parameters
    ----------
    rows : torch.Tensor
        (n, w) float32.
    candidates : int
        How many to keep for each row.
    lost : float
        The share of true neighbours that are not among so many nearest sketches, on a sample.
    """

    rows: torch.Tensor
    candidates: int
    lost: float


def sketched(problem: Problem, sample: torch.Tensor, truth: Found) -> Sketch | None:
    """Sketches of the rows of a search, or None where too many of the sample's true neighbours would be hidden.

    Parameters
    ----------
    problem : Problem
        The search, of rows among themselves.
    sample : torch.Tensor
        Ids of some rows, (s,).
    truth : Found
        Their true neighbours.
    """
    rows, k = problem.data, problem.k
    if rows.width <= WIDE:
        return None
    chosen = torch.randperm(rows.count, generator=problem.generator())[:SAMPLE]
    some = rows.take(chosen)
    mean = some.mean(0)
    short = _projected(rows, mean, leading(some - mean, WIDTH, problem.generator()))
    rank = _ranks(short, sample, truth[0])
    for factor in FACTORS:
        count = round(factor * k) + 8
        lost = float((rank >= count).to(torch.float64).mean())
        if lost <= SHARE * (1 - problem.recall):
            return Sketch(short, min(count, rows.count), lost)
    return None


def _projected(rows: Rows, mean: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    out = torch.empty(rows.count, V.shape[1])
    offset = mean @ V

    def part(start: int) -> None:
        stop = min(start + TILE, rows.count)
        torch.sub(rows.block(start, stop) @ V, offset, out=out[start:stop])

    for _ in spread(part, range(0, rows.count, TILE)):
        pass
    return out


def _ranks(short: torch.Tensor, sample: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
    """How many other sketches are nearer to a sample row's than each true neighbour's, (s, k)."""
    half = short.square().sum(1) / 2
    parts = []
    for ids, near in zip(sample.split(50), neighbours.split(50), strict=True):
        apart = torch.addmm(half[None, :], short[ids], short.T, alpha=-1)
        apart[torch.arange(len(ids)), ids] = torch.inf
        wanted, place = apart.gather(1, near).sort(dim=1)
        below = torch.searchsorted(wanted, apart, right=True)  # how many true neighbours are at least as near
        counts = torch.zeros(len(ids), near.shape[1] + 1, dtype=torch.int64)
        counts.scatter_add_(1, below, torch.ones_like(below))
        parts.append(torch.empty_like(near).scatter_(1, place, counts.cumsum(1)[:, :-1]))
    return torch.cat(parts)
