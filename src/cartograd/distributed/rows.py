"""Rows spread over processes: moved to where fixed blocks of them belong, and fetched by number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy
import torch

from cartograd.distributed.group import Ranks, find_ranks


def all_rows(values: Any) -> Any:
    """The rows of all processes, in the order of their ranks, in each of them; of the kind of those given.

    For what looks at a map as a whole, such as `cartograd.metrics`, where each process has its own rows; every process
    must call. A process that is alone gets what it gave.

    Parameters
    ----------
    values : array-like, (m, ...)
        NumPy or torch; the processes may have different numbers of rows.

    Examples
    --------
    >>> all_rows(torch.arange(3)).tolist()
    [0, 1, 2]
    """
    ranks = find_ranks("auto")
    if ranks is None:
        return values
    with ranks.one_for_all("rows of all"):
        own = values if isinstance(values, torch.Tensor) else torch.as_tensor(numpy.asarray(values))
        whole = ranks.gathered(own.detach(), f"all rows, {own.dtype} of shape {tuple(own.shape[1:])}")
    return whole if isinstance(values, torch.Tensor) else whole.numpy()


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
