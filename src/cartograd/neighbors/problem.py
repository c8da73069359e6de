"""A search, checked and made ready: what every backend is given and what it gives back."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.neighbors import sparse
from cartograd.neighbors.distances import Metric
from cartograd.neighbors.exact import Found, search_exactly
from cartograd.neighbors.progress import steps
from cartograd.neighbors.rows import PickedRows, Rows
from cartograd.neighbors.workers import all_cores


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


def solve_exactly(problem: Problem, only: torch.Tensor | None = None) -> Found:
    """The exact neighbours of all queries, or of `only` those with these ids."""
    if problem.sparse is not None and problem.metric.name in sparse.SERVED:
        return _solve_sparse(problem, *problem.sparse, only)
    queries, own = problem.queries, problem.own
    if only is not None:
        queries, own = PickedRows(problem.asked, only), None if own is None else own[only]
    with all_cores(problem.data.device) if problem.metric.parallel else contextlib.nullcontext():
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
