"""Candidates measured again, by differences instead of products, and ranked."""

from __future__ import annotations

import torch

from cartograd.neighbors.distances import Metric
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.workers import spread


def budget(device: torch.device) -> int:
    """Elements to work on at a time: on a CPU what stays in its cache, on a GPU what keeps it busy."""
    return 1 << (20 if device.type == "cpu" else 26)


def measured(
    metric: Metric, data: Rows, queries: Rows, ids: torch.Tensor, order: torch.Tensor | None = None, exact: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each query's candidates, nearest first, ties by id.

    Parameters
    ----------
    metric : Metric
        How they are measured.
    data, queries : Rows
        Candidates are rows of `data`.
    ids : torch.Tensor
        Candidates of each query, (m, c) int64, -1 for none.
    order : torch.Tensor, default=None
        The order in which to take the queries; one in which near rows follow each other is kinder to the cache.
    exact : bool, default=True
        Whether to measure in float64; otherwise in the precision of the data.

    Returns
    -------
    ids, raw : (m, c) int64 and (m, c) float64
        Sorted; missing ones come last, as -1 and infinity.
    """
    if order is None:
        order = torch.arange(len(ids), device=ids.device)
    raw = torch.empty(ids.shape, dtype=torch.float64, device=ids.device)
    ranked = torch.empty_like(ids)

    def part(rows: torch.Tensor) -> None:
        names = torch.sort(ids.index_select(0, rows), dim=1).values
        wanted = names.clamp(min=0).reshape(-1)
        theirs = data.exact(wanted) if exact else data.take(wanted)
        own = queries.exact(rows) if exact else queries.take(rows)
        value = metric.pairs(theirs.view(*names.shape, data.width), own[:, None, :]).to(torch.float64)
        value, place = torch.sort(value.masked_fill_(names < 0, torch.inf), dim=1, stable=True)
        raw.index_copy_(0, rows, value)
        ranked.index_copy_(0, rows, names.gather(1, place))

    for _ in spread(part, order.split(max(1, budget(ids.device) // (data.width * ids.shape[1])))):
        pass
    return ranked, raw


def measured_pairs(metric: Metric, a: Rows, left: torch.Tensor, b: Rows, right: torch.Tensor) -> torch.Tensor:
    """Raw values of single pairs: row left[i] of `a` with row right[i] of `b`, (m,) float64."""
    out = torch.empty(len(left), dtype=torch.float64, device=a.device)
    step = max(1, budget(a.device) // (2 * a.width))
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        out[part] = metric.pairs(a.exact(left[part]), b.exact(right[part]))
    return out
