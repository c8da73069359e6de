"""A search, checked and made ready: what every backend is given and what it gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.errors import InputError
from cartograd.neighbors import sparse, validate
from cartograd.neighbors.distances import Metric
from cartograd.neighbors.exact import Found, search_exactly
from cartograd.neighbors.intake import Given
from cartograd.neighbors.progress import steps
from cartograd.neighbors.rows import PickedRows, Rows, ScaledRows, UnitRows
from cartograd.neighbors.tiles import tile_rows


@dataclass(frozen=True)
class Problem:
    """One search.

    Parameters
    ----------
    data : Rows
        The rows searched, as the metric wants them (scaled, or of length one).
    queries : Rows or None
        The rows whose neighbours are sought; None for those of `data`.
    own : torch.Tensor or None
        The id each query has in `data` and that is left out of its neighbours, (m,) int64.
    k : int
        How many neighbours.
    metric : Metric
        How distances are measured.
    scale : float
        What the rows were multiplied by.
    recall : float
        The share of true neighbours an approximate backend should find.
    seed : int
        For all that is random.
    verbose : bool
        Whether to show progress bars.
    sparse : tuple, default=None
        The CSR matrices behind `data` and the queries, as they were given; None for dense data.
    """

    data: Rows
    queries: Rows | None
    own: torch.Tensor | None
    k: int
    metric: Metric
    scale: float
    recall: float
    seed: int
    verbose: bool
    sparse: tuple[Any, Any] | None = None

    @property
    def asked(self) -> Rows:
        """The rows whose neighbours are sought."""
        return self.data if self.queries is None else self.queries

    def generator(self) -> torch.Generator:
        """A new private source of random numbers."""
        return torch.Generator().manual_seed(self.seed)

    def finished(self, raw: torch.Tensor) -> torch.Tensor:
        """Raw values as distances of the rows as they were given."""
        return (self.metric.finish(raw) * self.scale**-self.metric.degree).to(self.data.dtype)


def solve_exactly(problem: Problem, only: torch.Tensor | None = None) -> Found:
    """The exact neighbours of all queries, or of `only` those with these ids."""
    if problem.sparse is not None and problem.metric.name in sparse.SERVED:
        return _solve_sparse(problem, *problem.sparse, only)
    queries, own = problem.queries, problem.own
    if only is not None:
        queries, own = PickedRows(problem.asked, only), None if own is None else own[only]
    return search_exactly(problem.data, problem.k, problem.metric, queries, own, problem.verbose and only is None)


def _solve_sparse(problem: Problem, data: Any, queries: Any, only: torch.Tensor | None) -> Found:
    own = None if problem.own is None else problem.own.cpu().numpy()
    if only is not None:
        picked = only.cpu().numpy()
        queries, own = queries[picked], None if own is None else own[picked]
    name = problem.metric.name
    ready = sparse.prepared(data, name)
    search = sparse.SparseSearch(
        ready, ready if queries is data else sparse.prepared(queries, name), problem.k, name, own
    )
    for _ in steps(search.run(), search.tiles(), "neighbours, exact", problem.verbose and only is None):
        pass
    return search.ids.to(problem.data.device), search.raw.to(problem.data.device)


def prepare(given: Given, metric: Metric, name: str) -> float:
    """Read all rows once, refuse what cannot be measured, and return the largest absolute value."""
    if given.sparse is not None and metric.name != "sqhyperbolic":
        return validate.scan_sparse(given.sparse, name)
    look = _inside_ball(name) if metric.name == "sqhyperbolic" else None
    return validate.scan(given.rows, name, tile_rows(given.rows.width), look)


def scale_for(rows: Rows, largest: float) -> float:
    """A power of two by which squares neither overflow nor vanish; 1 for all but extreme data."""
    low, high = (1e-12, 1e17) if rows.dtype == torch.float32 else (1e-120, 1e140)
    if largest == 0 or (low <= largest and largest * math.sqrt(rows.width) <= high):
        return 1.0
    return 2.0 ** -round(math.log2(largest))


def mapped(rows: Rows, metric: Metric, scale: float, with_zeros: bool) -> Rows:
    """The rows as the metric wants them."""
    if scale != 1.0:
        rows = ScaledRows(rows, scale)
    return UnitRows(rows, with_zeros) if metric.unit else rows


def has_zeros(rows: Rows, scale: float) -> bool:
    """Whether any row has length zero."""
    rows = ScaledRows(rows, scale)
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
