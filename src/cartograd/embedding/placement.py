r"""New rows in a finished map: each finds its place among the fitted points, which stay where they are.

A row that was in the training set gets its fitted place. Any other starts at the weighted mean of its nearest training
rows' places and descends the method's own loss of one moving point, in which nothing depends on the other new rows:
sums run along one row in a fixed order, and random draws come from the row's own content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from cartograd.affinity.counter import hashed, integers, stream
from cartograd.embedding.rowkeys import row_keys
from cartograd.embedding.source import Source, picked
from cartograd.neighbors.rows import Rows

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher

PIECE = 1 << 21
SAMPLE = 1024
"""New points are pushed by at most this many of the fitted ones, the same for all."""
STEPS = 50
RATE = 0.5


@dataclass(frozen=True)
class Placement:
    """What a fitted map needs to place new rows.

    Parameters
    ----------
    source : Source
        The training rows.
    places : torch.Tensor
        (u, c) where each of them is.
    k : int
        How many neighbours a new row is placed by.
    scale : float
        The distance that counts as 1.
    seed : int
        Seed of what is random.
    more : dict
        What a method keeps besides.
    """

    source: Source
    places: torch.Tensor
    k: int = 1
    scale: float = 1.0
    seed: int = 0
    more: dict[str, Any] = field(default_factory=dict)


def place(model: AffinityMatcher, rows: Rows) -> torch.Tensor:
    """The places of these rows, (m, c)."""
    fitted = model._placement
    keys = row_keys(rows)
    known = fitted.source.register.find(keys)
    Z = fitted.places[known.clamp(min=0)]
    new = torch.nonzero(known < 0)[:, 0]
    if len(new):
        others = rows if len(new) == rows.count else picked(rows, new)
        Z[new] = model._place(others, keys[new])
    return Z


def ordered_sum(values: torch.Tensor) -> torch.Tensor:
    """Sums along axis 1 from left to right: the same bits whatever the other rows are."""
    return torch.cumsum(values, 1)[:, -1]


def mean_of_neighbours(places: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted mean of the neighbours' places, (m, c)."""
    total = ordered_sum(weights).clamp(min=torch.finfo(weights.dtype).tiny)
    return ordered_sum(places[indices] * weights[:, :, None]) / total[:, None]


def fixed_sample(n: int, seed: int, device: torch.device) -> torch.Tensor:
    """At most `SAMPLE` of the fitted points, drawn once."""
    if n <= SAMPLE:
        return torch.arange(n, device=device)
    return integers(stream(seed, "placement sample"), n, (SAMPLE,), device)


def own_draws(keys: torch.Tensor, n: int, count: int, seed: int, step: int) -> torch.Tensor:
    """`count` of the fitted points for each row, drawn by what is in the row, (m, count) int64."""
    places = keys[:, :1] + torch.arange(count, device=keys.device)
    bits = hashed(stream(seed, "placement", step), places)
    return ((bits >> 1) & ((1 << 62) - 1)) % n


def refine(
    Z: torch.Tensor,
    gradient: Callable[[torch.Tensor, slice, int], torch.Tensor],
    per_row: int,
    steps: int = STEPS,
    rate: float = RATE,
) -> torch.Tensor:
    r"""Descend from Z: :math:`z \leftarrow z - r (1 - t / T) g(z)`, in pieces of rows.

    Parameters
    ----------
    Z : torch.Tensor
        (m, c) starts; not changed.
    gradient : callable
        Of (points of a piece, which rows these are, step).
    per_row : int
        Elements the gradient holds for each row; says how many rows make a piece.
    steps, rate
        T and r.
    """
    piece = max(1, PIECE // max(per_row, 1))
    done = []
    for start in range(0, len(Z), piece):
        rows = slice(start, min(start + piece, len(Z)))
        z = Z[rows].clone()
        for step in range(steps):
            z -= rate * (1 - step / steps) * gradient(z, rows, step)
        done.append(z)
    return torch.cat(done)
