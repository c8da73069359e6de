"""Exact search on a GPU by one kernel that never writes a distance.

Products of numbers rounded to bfloat16 find about twice as many candidates as are wanted; they are measured again in
float64, as everywhere. Rounding may have kept a neighbour out where a row's last candidate is, within that rounding, no
farther than its k-th neighbour. If such rows are more than a few, all is done again with numbers of 11 bits; those that
are left are the caller's to search with care.
"""

from __future__ import annotations

import math

import torch

from cartograd.kernels import gpu
from cartograd.neighbors.distances import PRODUCT_METRICS, Metric
from cartograd.neighbors.rows import Rows, TensorRows
from cartograd.neighbors.tiles import middle

LEAST_ROWS = 8192
"""Below this the kernel's tiles are too few for lists to fill from a few columns of each."""
LONGEST = 90
"""The most neighbours the kernel keeps lists for."""
DOUBTS = 0.02
"""The share of doubtful rows above which a search is repeated with more digits."""
TRUNCATION = 2.0**-15
"""Of a squared distance the kernel keeps 16 bits."""


def serves(data: Rows, k: int, metric: Metric, queries: Rows | None) -> bool:
    """Whether the kernel can do this search."""
    asked = data if queries is None else queries
    return (
        data.device.type == "cuda"
        and gpu.on(data.device)
        and metric.name in PRODUCT_METRICS
        and metric.slack is not None
        and data.dtype == asked.dtype == torch.float32
        and data.count >= LEAST_ROWS
        and asked.count >= 128
        and k <= LONGEST
    )


def search_fused(
    data: Rows, k: int, queries: Rows | None, own: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids (m, k) and squared distances (m, k) float64, rising, ties by id; and the queries for which they may be wrong.

    Parameters
    ----------
    data : Rows
        The rows searched.
    k : int
        How many neighbours.
    queries : Rows or None
        Rows whose neighbours are sought; None for those of `data`.
    own : torch.Tensor or None
        For each query the id in `data` that is left out, (m,) int64.
    """
    found = _searched(data, k, queries, own, torch.bfloat16)
    if len(found[2]) > DOUBTS * len(found[0]):
        found = _searched(data, k, queries, own, torch.float32)
    return found


def _searched(
    data: Rows, k: int, queries: Rows | None, own: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    nearest, ranking = gpu.load("nearest"), gpu.load("ranking")
    X = _values(data)
    Q = X if queries is None else _values(queries)
    generator = torch.Generator(X.device).manual_seed(data.count)
    order = torch.randperm(data.count, device=X.device, generator=generator)
    right = nearest.prepared(X, middle(data), order, dtype)
    left = right if queries is None else nearest.prepared(Q, middle(data), None, dtype)
    rounded, found = nearest.candidates(left, right, nearest.list_length(k))
    last = rounded.amax(1)
    names = torch.where(found >= 0, order[found.clamp(min=0)].to(torch.int32), -1)
    errors = left.errors
    if queries is None:  # back into the order of the rows
        names = torch.empty_like(names).index_copy_(0, order, names)
        last = torch.empty_like(last).index_copy_(0, order, last)
        errors = torch.empty_like(errors).index_copy_(0, order, errors)
    names = torch.sort(names, dim=1).values
    raw, place = torch.sort(ranking.measured(Q, X, names, own), dim=1, stable=True)
    raw, ids = raw[:, :k].contiguous(), names.gather(1, place[:, :k]).to(torch.int64)
    return ids, raw, _doubtful(raw[:, -1], last, errors + right.errors.mean(), X.shape[1])


def _doubtful(edge: torch.Tensor, last: torch.Tensor, error: torch.Tensor, width: int) -> torch.Tensor:
    r"""Queries whose last candidate is within rounding of their k-th neighbour.

    Rows moved by :math:`\delta` change a squared distance D^2 by :math:`2 (a - b) \cdot \delta + |\delta|^2`, and the
    directions of :math:`\delta` and a - b have nothing to do with each other: their product is about
    :math:`1 / \sqrt d` of the largest it can be, and four times that is allowed for.
    """
    share = min(1.0, 4 / math.sqrt(width))
    slack = 2 * share * edge.sqrt() * error + error.square() + TRUNCATION * edge
    return torch.nonzero((last <= edge + slack) | torch.isinf(edge)).squeeze(1)


def _values(rows: Rows) -> torch.Tensor:
    return rows.data if isinstance(rows, TensorRows) else rows.block(0, rows.count).contiguous()
