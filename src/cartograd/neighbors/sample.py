"""What a sample of rows with known neighbours tells: how many cells are needed, and how many neighbours were found."""

from __future__ import annotations

import math

import torch

from cartograd.neighbors.exact import Found
from cartograd.neighbors.problem import Problem
from cartograd.neighbors.routing import Routing

RANKS = 15
"""At most so many of a sample row's true neighbours are looked up."""


def needed_cells(problem: Problem, routing: Routing, sample: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
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


def fewest_probes(needed: torch.Tensor, recall: float, cells: int, errors: float = 1.5) -> int:
    """The fewest cells for which the sample's recall is above `recall` by so many standard errors."""
    for probes in range(1, cells):
        share = (needed <= probes).to(torch.float64).mean(1)
        error = float(share.std()) / math.sqrt(len(share)) if len(share) > 1 else 0.0
        if float(share.mean()) - errors * error >= recall:
            return probes
    return cells


def recall_of(found: Found, truth: Found) -> tuple[float, float]:
    """The share of true neighbours found, and its standard error over the rows.

    One as near as the farthest true neighbour counts as one of them.
    """
    same = (found[0][:, :, None] == truth[0][:, None, :]).any(dim=2)
    as_near = found[1] <= truth[1][:, -1:] * (1 + 1e-5)
    share = (same | as_near).to(torch.float64).mean(1)
    return float(share.mean()), float(share.std()) / math.sqrt(len(share)) if len(share) > 1 else 0.0
