"""Rows spread over processes: moved to where fixed blocks of them belong, and fetched by number."""

from __future__ import annotations

from itertools import pairwise

import torch

from cartograd.distributed.group import Ranks


def moved(ranks: Ranks, values: torch.Tensor, held: list[int], bounds: list[int], what: str) -> torch.Tensor:
    """The rows bounds[rank] to bounds[rank + 1], from processes that hold those of `held` (as bounds are written).

    Most rows stay where they are where both are cut into nearly equal parts.
    """
    start, stop = held[ranks.rank], held[ranks.rank + 1]
    parts = []
    for a, b in pairwise(bounds):
        low, high = max(a, start), min(b, stop)
        parts.append(values[low - start : max(high, low) - start])
    return torch.cat(ranks.exchanged(parts, what))


def fetched(ranks: Ranks, values: torch.Tensor, bounds: list[int], ids: torch.Tensor, what: str) -> torch.Tensor:
    """The rows with these numbers, (len(ids), ...), each from the process that owns it; all processes must ask."""
    edges = torch.tensor(bounds[1:-1], dtype=torch.int64, device=ids.device)
    owner = torch.bucketize(ids, edges, right=True)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=ranks.size).tolist()
    asked = ranks.exchanged(ids[order].split(counts), f"numbers of {what}")
    start = bounds[ranks.rank]
    answers = torch.cat(ranks.exchanged([values[one - start] for one in asked], what))
    found = torch.empty_like(answers)
    found[order] = answers
    return found
