"""Whole distance matrices, for data small enough, and the same in row tiles for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from cartograd.engine import no_grad
from cartograd.neighbors import validate
from cartograd.neighbors.distances import METRICS, Metric
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.measure import measured_pairs
from cartograd.neighbors.precision import full_precision
from cartograd.neighbors.ready import Ready, make_ready
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.tiles import middle, tile_rows

TILE_ELEMENTS = 1 << 24
"""The most distances in a tile."""


def pairwise_distances(
    X: Any,
    Y: Any = None,
    *,
    metric: str | Callable[[Any, Any], Any] = "euclidean",
    device: torch.device | str | None = None,
) -> Any:
    """All distances between the rows of X and those of Y.

    Parameters
    ----------
    X : array-like, (n, d)
        As for `search`.
    Y : array-like, (m, d), default=None
        Other rows; None for X.
    metric : str or callable, default="euclidean"
        As for `search`, "precomputed" aside.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Returns
    -------
    distances : (n, m)
        Of the kind of X.

    Examples
    --------
    >>> pairwise_distances([[0.0, 0.0], [3.0, 4.0]]).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    given, tiles = _tiles(X, Y, metric, device, None)
    return given.answer(torch.cat([tile for _, tile in tiles]))


def distance_tiles(
    X: Any,
    Y: Any = None,
    *,
    metric: str | Callable[[Any, Any], Any] = "euclidean",
    device: torch.device | str | None = None,
    rows: int | None = None,
) -> Iterator[tuple[int, torch.Tensor]]:
    """The same in tiles of `rows` rows: pairs (first row, distances (r, m) as a torch tensor)."""
    return _tiles(X, Y, metric, device, rows)[1]


def _tiles(
    X: Any, Y: Any, metric: Any, device: Any, step: int | None
) -> tuple[Given, Iterator[tuple[int, torch.Tensor]]]:
    validate.check_metric(metric, METRICS)
    given = intake(X, "X", device)
    other = None if Y is None else intake(Y, "Y", device or given.rows.device)
    if other is not None:
        validate.check_width(other.rows.width, given.rows.width, "Y")
    return given, _walk(make_ready(given, other, metric, ("X", "Y")), step)


def _walk(ready: Ready, step: int | None) -> Iterator[tuple[int, torch.Tensor]]:
    a, b = ready.data, ready.other or ready.data
    step = step or max(1, min(tile_rows(a.width), TILE_ELEMENTS // b.count))
    centre = (
        middle(b).to(torch.float64) if ready.metric.centred else torch.zeros((), dtype=torch.float64, device=a.device)
    )
    for start in range(0, a.count, step):
        with no_grad(), torch.no_grad(), full_precision():
            ids = torch.arange(start, min(start + step, a.count), device=a.device)
            raw = _raw(ready.metric, a, ids, b, centre)
            if ready.other is None and ready.metric.slack is not None:
                raw[ids - start, ids] = 0
            yield start, ready.distances(raw)


def _raw(metric: Metric, a: Rows, ids: torch.Tensor, b: Rows, centre: torch.Tensor) -> torch.Tensor:
    """Raw values (r, m) by products in float64; those that are small beside their rounding measured again."""
    own = a.exact(ids) - centre
    columns = torch.arange(b.count, device=b.device).split(tile_rows(b.width))
    raw = torch.cat([metric.tile(own, b.exact(part) - centre) for part in columns], dim=1)
    if metric.slack is not None:
        close = raw < 1e6 * metric.slack(own, torch.zeros(len(own), dtype=own.dtype, device=own.device))[:, None]
        row, column = torch.nonzero(close, as_tuple=True)
        raw[row, column] = measured_pairs(metric, a, ids[row], b, column)
    return raw
