"""Rows made ready for a metric: read once and checked, brought into range, divided by their length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.errors import InputError
from cartograd.neighbors import callables, validate
from cartograd.neighbors.distances import METRICS, Metric
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows, ScaledRows, UnitRows, WideRows
from cartograd.neighbors.tiles import tile_rows


@dataclass(frozen=True)
class Ready:
    """What a metric is computed on.

    Parameters
    ----------
    metric : Metric
        The metric.
    data : Rows
        The first argument's rows.
    other : Rows or None
        The second argument's rows; None if there is none.
    scale : float
        What all were multiplied by.
    """

    metric: Metric
    data: Rows
    other: Rows | None
    scale: float

    def distances(self, raw: torch.Tensor) -> torch.Tensor:
        """Raw values as distances of the rows as they were given."""
        distances = self.metric.finish(raw)
        for _ in range(self.metric.degree if self.scale != 1.0 else 0):  # the power of an extreme scale is out of range
            distances = distances / self.scale
        return distances.to(self.data.dtype)


def make_ready(
    given: Given, other: Given | None, metric: str | Callable[[Any, Any], Any], names: tuple[str, str]
) -> Ready:
    """Check and prepare one or two arguments, called `names` in messages."""
    chosen = METRICS[metric] if isinstance(metric, str) else callables.metric_of(metric, given.rows.block(0, 3))
    sources = [given] if other is None else [given, other]
    largest = max(_largest(source, chosen, name) for source, name in zip(sources, names, strict=False))
    wide = any(source.rows.dtype == torch.float64 for source in sources)
    scale = _scale(given.rows.width, wide, largest) if chosen.degree or chosen.unit else 1.0
    zeros = chosen.unit and any(_has_zeros(source, scale) for source in sources)
    data, *rest = (_mapped(source.rows, chosen, scale, zeros, wide) for source in sources)
    return Ready(chosen, data, rest[0] if rest else None, scale)


def _largest(given: Given, metric: Metric, name: str) -> float:
    """Read all rows once, refuse what cannot be measured, and return the largest absolute value."""
    if given.sparse is not None and metric.name != "sqhyperbolic":
        return validate.scan_sparse(given.sparse, name)
    look = _inside_ball(name) if metric.name == "sqhyperbolic" else None
    return validate.scan(given.rows, name, tile_rows(given.rows.width), look)


def _scale(width: int, wide: bool, largest: float) -> float:
    """A power of two by which squares neither overflow nor vanish; 1 for all but extreme data."""
    low, high, most = (1e-120, 1e140, 1022) if wide else (1e-12, 1e17, 126)
    if largest == 0 or (low <= largest and largest * math.sqrt(width) <= high):
        return 1.0
    return 2.0 ** max(-most, min(most, -round(math.log2(largest))))


def _mapped(rows: Rows, metric: Metric, scale: float, with_zeros: bool, wide: bool) -> Rows:
    """The rows as the metric wants them."""
    if wide and rows.dtype != torch.float64:
        rows = WideRows(rows)
    if scale != 1.0:
        rows = ScaledRows(rows, scale)
    return UnitRows(rows, with_zeros) if metric.unit else rows


def _has_zeros(given: Given, scale: float) -> bool:
    """Whether any row has length zero."""
    if given.sparse is not None:
        return bool((abs(given.sparse).sum(axis=1) == 0).any())
    rows = ScaledRows(given.rows, scale)
    tile = tile_rows(rows.width)
    blocks = (rows.block(start, min(start + tile, rows.count)) for start in range(0, rows.count, tile))
    return any(bool((torch.linalg.vector_norm(block, dim=1) == 0).any()) for block in blocks)


def _inside_ball(name: str) -> Any:
    seen = 0

    def look(block: torch.Tensor) -> None:
        nonlocal seen
        lengths = torch.linalg.vector_norm(block.to(torch.float64), dim=1)
        if bool((lengths >= 1).any()):
            row = int(torch.nonzero(lengths >= 1)[0])
            raise InputError(
                f"metric 'sqhyperbolic' takes points inside the unit ball, and row {seen + row} of {name} has length "
                f"{float(lengths[row]):.6g}; scale the data down"
            )
        seen += len(block)

    return look
