"""PaCMAP's pairs: near ones by a rescaled distance, mid-near and far ones drawn once, by counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cartograd.affinity import data
from cartograd.affinity.counter import stream, uniform
from cartograd.neighbors.intake import Given
from cartograd.neighbors.measure import measured
from cartograd.neighbors.ready import make_ready
from cartograd.neighbors.rows import PickedRows

MID_CANDIDATES = 6
"""A mid-near pair is the second nearest of this many rows drawn at random."""


def local_scales(distances: torch.Tensor) -> torch.Tensor:
    r""":math:`\sigma_i` of rows with these distances to their neighbours, (n,) float64."""
    k = distances.shape[1]
    return distances.to(torch.float64)[:, min(3, k - 1) : 6].mean(1).clamp(min=1e-10)


def rescaled_neighbours(
    indices: torch.Tensor, distances: torch.Tensor, n_neighbors: int, scales: torch.Tensor | None = None
) -> data.Neighbours:
    r"""The `n_neighbors` candidates of each row with the smallest :math:`d_{ij}^2 / (\sigma_i \sigma_j)`.

    :math:`\sigma_i` is the mean distance to the 4th, 5th and 6th neighbour (to the last of them where there are fewer).

    Parameters
    ----------
    indices, distances : torch.Tensor
        (n, k) candidates of each row, nearest first, the row itself left out.
    n_neighbors : int
        How many to keep, at most k.
    scales : torch.Tensor, default=None
        :math:`\sigma` of all rows, where those given are some; None for that of those given.

    Returns
    -------
    indices, scaled : torch.Tensor
        (n, n_neighbors), and their rescaled squared distances, smallest first; of equal ones the nearer first.
    """
    D, sigma = distances.to(torch.float64), local_scales(distances)
    scaled = D.square() / (sigma[:, None] * (sigma if scales is None else scales)[indices])
    scaled, order = torch.sort(scaled, dim=1, stable=True)
    return indices.gather(1, order[:, :n_neighbors]), scaled[:, :n_neighbors].to(distances.dtype)


def distinct(key: int, available: int, count: int, rows: int, device: torch.device, first: int = 0) -> torch.Tensor:
    """`count` different numbers below `available` for each row, (rows, count) int64, every subset equally likely.

    Floyd's algorithm: the t-th draw is below ``available - count + t + 1``, and where it is there already that bound's
    predecessor is taken, which cannot be. `first` is the number of the first row, so that rows can be drawn in pieces.
    """
    drawn = torch.empty(rows, count, dtype=torch.int64, device=device)
    high = torch.arange(available - count + 1, available + 1, device=device)
    fresh = (uniform(key, (rows, count), device, first * count) * high).to(torch.int64)
    for t in range(count):
        there = (drawn[:, :t] == fresh[:, t : t + 1]).any(1)
        drawn[:, t] = torch.where(there, available - count + t, fresh[:, t])
    return drawn


def outside(excluded: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
    """The rank-th number (from 0) that is not excluded, row by row.

    With the exclusions e_0 < e_1 < ... it is ``rank + #{t : e_t - t <= rank}``.

    Parameters
    ----------
    excluded : torch.Tensor
        (n, m) int64, rising and distinct within each row.
    ranks : torch.Tensor
        (n, c) int64.
    """
    keys = excluded - torch.arange(excluded.shape[1], device=excluded.device)
    return ranks + torch.searchsorted(keys.contiguous(), ranks.contiguous(), right=True)


def far_pairs(neighbours: torch.Tensor, count: int, seed: int, first: int = 0, n: int | None = None) -> torch.Tensor:
    """`count` rows for each row that are neither itself nor among its neighbours, all different, (n, count).

    Fewer, for all, where there are not that many.

    Parameters
    ----------
    neighbours : torch.Tensor
        (n, k) int64, distinct, the row itself left out.
    count : int
        How many to draw for each row.
    seed : int
        Seed of the draw.
    first : int, default=0
        Which row the first of those given is.
    n : int, default=None
        How many rows there are in all; None for those given.
    """
    rows, k = neighbours.shape
    n = rows if n is None else n
    own = torch.arange(first, first + rows, device=neighbours.device)[:, None]
    excluded = torch.sort(torch.cat([own, neighbours], 1), dim=1).values
    available = n - k - 1
    ranks = distinct(stream(seed, "far pairs"), available, min(count, available), rows, neighbours.device, first)
    return outside(excluded, ranks)


def mid_near_pairs(
    X: Any, count: int, seed: int, metric: data.MetricLike = "euclidean", rows: slice | None = None
) -> torch.Tensor:
    """`count` different rows for each row, each the second nearest of six drawn at random, (n, count).

    Fewer where there are not that many rows; with a single other row, that one.

    Parameters
    ----------
    X : array-like, (n, d)
        Anything `cartograd.neighbors.search` takes.
    count : int
        How many to draw for each row.
    seed : int
        Seed of the draw.
    metric : str or callable, default="euclidean"
        By which they are ranked.
    rows : slice, default=None
        The rows whose pairs are wanted; None for all.
    """
    _, given = data.opened(X, metric, None)
    n, device = given.rows.count, given.rows.device
    own = torch.arange(n, device=device)[slice(None) if rows is None else rows]
    return drawn_mid_near(own, n, count, seed, _ranker(given, metric, own))


def drawn_mid_near(
    own: torch.Tensor, n: int, count: int, seed: int, rank: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The same for the rows `own` of n, one after the other; `rank` puts candidates (m, c) of each nearest first."""
    taken, first, device = own[:, None], int(own[0]) if len(own) else 0, own.device
    for t in range(min(count, n - 1)):
        available = n - 1 - t
        ranks = distinct(
            stream(seed, "mid-near pairs", t), available, min(MID_CANDIDATES, available), len(own), device, first
        )
        candidates = outside(torch.sort(taken, dim=1).values, ranks)
        taken = torch.cat([taken, rank(candidates)[:, min(1, available - 1)][:, None]], 1)
    return taken[:, 1:]


def _ranker(given: Given, metric: data.MetricLike, own: torch.Tensor) -> Any:
    """A function of candidates (m, c) of the rows `own` that puts them nearest first."""
    if metric == "precomputed":

        def by_matrix(ids: torch.Tensor) -> torch.Tensor:
            ids = torch.sort(ids, dim=1).values
            rows = [given.rows.block(row, row + 1)[0, ids[i]] for i, row in enumerate(own.tolist())]
            return ids.gather(1, torch.sort(torch.stack(rows), dim=1, stable=True).indices)

        return by_matrix
    ready = make_ready(given, None, metric, ("X", "X"))
    asked = ready.data if len(own) == ready.data.count else PickedRows(ready.data, own)
    return lambda ids: measured(ready.metric, ready.data, asked, ids, exact=False)[0]
