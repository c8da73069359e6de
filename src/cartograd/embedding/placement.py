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
from cartograd.affinity.data import MetricLike
from cartograd.embedding.rowkeys import row_keys
from cartograd.embedding.source import Source, largest_value, picked
from cartograd.neighbors.distances import METRICS
from cartograd.neighbors.rows import Rows, SparseRows, TensorRows
from cartograd.neighbors.tiles import tile_rows

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher

PIECE = 1 << 21
SAMPLE = 1024
"""New points are pushed by at most this many of the fitted ones, the same for all."""
STEPS = 50
RATE = 0.5
GROUP = 64
"""New rows are placed in multiples of so many: at an odd end of an array, powers and exponentials round otherwise."""
REACH = 1e9
"""A new row is at most this many times as large as the training rows, which are all equally far from there."""


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
    if fitted.source.n == 1:
        return fitted.places.expand(rows.count, -1).clone()
    keys = row_keys(rows)
    known = fitted.source.register.find(keys)
    Z = fitted.places[known.clamp(min=0)]
    new = torch.nonzero(known < 0)[:, 0]
    if len(new):
        filled = torch.cat([new, new[-1:].expand(-len(new) % GROUP)])
        others = rows if len(filled) == len(new) == rows.count else picked(rows, filled)
        others = within_reach(others, fitted.source.metric, fitted.source.largest)
        Z[new] = model._place(others, keys[filled])[: len(new)]
    return Z


def within_reach(rows: Rows, metric: MetricLike, largest: float) -> Rows:
    """The rows, those that are very far from the training rows pulled in to where squares are still in range.

    A row far out would otherwise decide how all that are placed with it are scaled.

    Parameters
    ----------
    rows : Rows
        New rows.
    metric : str or callable
        How they are compared with the training rows.
    largest : float
        The largest absolute value in those.
    """
    kind = METRICS.get(metric) if isinstance(metric, str) else None
    limit = REACH * (largest or 1.0)
    if kind is None or not (kind.degree or kind.unit) or largest_value(rows) <= limit:
        return rows
    if isinstance(rows, SparseRows):
        from scipy.sparse import diags_array

        sizes = abs(rows.matrix).max(axis=1).toarray().ravel()
        matrix = diags_array(limit / sizes.clip(min=limit)) @ rows.matrix
        return SparseRows(matrix.tocsr(), rows.dtype, rows.device)
    step = tile_rows(rows.width)
    blocks = (rows.block(start, min(start + step, rows.count)) for start in range(0, rows.count, step))
    return TensorRows(
        torch.cat([part * (limit / part.abs().amax(1, keepdim=True).clamp(min=limit)) for part in blocks])
    )


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
    forces: Callable[[slice], Callable[[torch.Tensor, int], torch.Tensor]],
    per_row: int,
    steps: int = STEPS,
    rate: float = RATE,
) -> torch.Tensor:
    r"""Descend from Z: :math:`z \leftarrow z - r (1 - t / T) g(z)`, in pieces of rows.

    Parameters
    ----------
    Z : torch.Tensor
        (m, c) starts; not changed.
    forces : callable
        For some of the rows, a function of (their points, step) that gives the gradient.
    per_row : int
        Elements the gradient holds for each row; says how many rows make a piece.
    steps, rate
        T and r.
    """
    piece = max(1, PIECE // max(per_row, 1) // GROUP) * GROUP
    done = []
    for start in range(0, len(Z), piece):
        rows = slice(start, min(start + piece, len(Z)))
        z = Z[rows].clone()
        gradient = forces(rows)
        for step, length in enumerate(step_lengths(steps, rate)):
            z -= length * gradient(z, step)
        done.append(z)
    return torch.cat(done)


def step_lengths(steps: int, rate: float) -> list[float]:
    r"""The rates of a descent that ends gently: :math:`r (1 - t / T)`, t from 0."""
    return [rate * (1 - step / steps) for step in range(steps)]
