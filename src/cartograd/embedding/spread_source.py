"""Rows of which each process holds some: their source, where it begins, and what is searched among them.

After equal rows have been found by their keys, which all processes get to see, the rows move to the processes that own
them in the map; no process ever holds those of another, but for a tile at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from cartograd.affinity.data import MetricLike, not_negative
from cartograd.distributed import Ranks, find_ranks, row_bounds
from cartograd.distributed.rows import fetched, moved
from cartograd.distributed.search import Wanted, prepared_by_all, search_ring
from cartograd.embedding.covariance import Centred
from cartograd.embedding.moments import moments, over_processes, spectrum_of
from cartograd.embedding.pca import principal_scores
from cartograd.embedding.projection import product
from cartograd.embedding.rowkeys import Register, distinct_rows, row_keys
from cartograd.embedding.source import TRUE_DISTANCE, Source, largest_value
from cartograd.embedding.spectrum import Spectrum
from cartograd.neighbors.intake import Given
from cartograd.neighbors.measure import measured
from cartograd.neighbors.rows import Rows, TensorRows

GATHERED = 1 << 24
"""Up to so many numbers rows are brought together for their components, which then have the same bits as those
of one process; more are not, and the last digits depend on the number of processes."""


class SpreadRows:
    """All rows, of which only those of this process can be read.

    Parameters
    ----------
    local : Rows
        Those of this process.
    held : list of int
        Where the rows of each process begin, and how many there are in all.
    """

    def __init__(self, local: Rows, held: list[int]) -> None:
        self.local, self.held = local, held
        self.count, self.width, self.dtype, self.device = held[-1], local.width, local.dtype, local.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows of this process, counted from its first one."""
        return self.local.block(start, stop)

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of this process, counted from its first one."""
        return self.local.take(ids)

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of this process, counted from its first one, in float64."""
        return self.local.exact(ids)


@dataclass(frozen=True)
class SpreadSource(Source):
    """Rows that a map is made of, of which each process has those it owns.

    Parameters
    ----------
    rows, register, distinct, metric, largest
        See `Source`; the rows are those of this process, all else is about all.
    bounds : list of int
        Where the rows of each process begin, and how many different ones there are in all.
    """

    bounds: list[int]

    @property
    def n(self) -> int:
        """The number of different rows of all processes."""
        return self.bounds[-1]

    def neighbours(self, k: int, backend: Any, seed: int, verbose: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest of all rows to each of this process, and their distances, never squared."""
        return self._searched(None, k, backend, seed, verbose)

    def neighbours_of(self, rows: Rows, k: int, backend: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest of all rows to each of some others; every process must ask."""
        return self._searched(rows, k, backend, seed, False)

    def _searched(self, queries: Rows | None, k: int, backend: Any, seed: int, verbose: bool) -> Any:
        metric = true_metric(self.metric)
        wanted = Wanted(k, metric, "auto" if backend is None else backend, seed, verbose)
        indices, distances = search_ring(there(), self.rows, self.bounds, wanted, queries)
        distances = not_negative(distances, metric)
        return indices, distances.sqrt() if metric == "sqhyperbolic" else distances


def there() -> Ranks:
    """The processes that hold the rows."""
    ranks = find_ranks(True)
    assert ranks is not None
    return ranks


def true_metric(metric: MetricLike) -> MetricLike:
    """The metric that is not squared."""
    return TRUE_DISTANCE.get(metric, metric) if isinstance(metric, str) else metric


def spread_source(rows: SpreadRows, metric: MetricLike, merge: bool) -> SpreadSource:
    """The source of rows spread over processes, each moved to its owner; some processes may own none of few rows."""
    ranks, own = there(), row_keys(rows.local)
    keys = ranks.gathered(own, "keys of rows")
    distinct = distinct_rows(keys) if merge else None
    start, stop = rows.held[ranks.rank], rows.held[ranks.rank + 1]
    kept, first = torch.arange(stop - start, device=own.device), None
    if distinct is not None:
        first = distinct.first
        kept = first[(first >= start) & (first < stop)] - start
    counts = [count for (count,) in ranks.agree("numbers of different rows", len(kept))]
    held = [sum(counts[:rank]) for rank in range(ranks.size + 1)]
    bounds = row_bounds(held[-1], ranks.size)
    values = moved(ranks, rows.local.take(kept), held, bounds, "rows to their owners")
    largest = torch.tensor([largest_value(TensorRows(values)) if len(values) else 0.0], dtype=torch.float64)
    most = float(ranks.gathered(largest, "largest values").max())
    register = Register.of(keys if first is None else keys[first])
    return SpreadSource(TensorRows(values), register, distinct, metric, most, bounds)


def serves_all(bounds: list[int]) -> bool:
    """Whether every process owns some rows."""
    return all(a < b for a, b in pairwise(bounds))


def spread_scores(source: SpreadSource, wanted: int, seed: int) -> torch.Tensor:
    """The scores of all rows along their leading principal components, (n, wanted), in every process."""
    ranks, rows = there(), source.rows
    assert isinstance(rows, TensorRows)
    if source.n * rows.width <= GATHERED:
        return principal_scores(TensorRows(ranks.gathered(rows.data, "rows for their components")), wanted, seed)
    found = spread_spectrum(source, min(wanted, source.n, rows.width), seed)
    own = product(Centred(rows, found.mean, found.scale), found.directions.T) / found.scale
    scores = ranks.gathered(own, "scores")
    return torch.nn.functional.pad(scores, (0, wanted - scores.shape[1]))


def spread_spectrum(source: SpreadSource, wanted: int, seed: int) -> Spectrum:
    """The leading components of the rows of all processes: by their sums and products, in the order of the ranks."""
    rows = source.rows
    total = over_processes(moments(rows), there())
    return spectrum_of(total, wanted, seed, Given(rows, "torch", rows.device))


def ranked_by_all(source: SpreadSource) -> Any:
    """A function of candidates (m, c) of this process's rows that puts them nearest first; every process must call."""
    ranks = there()
    ready, mapped = prepared_by_all(ranks, source.rows, None, true_metric(source.metric))
    assert isinstance(source.rows, TensorRows)
    values = source.rows.data

    def rank(ids: torch.Tensor) -> torch.Tensor:
        needed, place = torch.unique(ids, return_inverse=True)
        rows = mapped(TensorRows(fetched(ranks, values, source.bounds, needed, "candidates")))
        return needed[measured(ready.metric, rows, ready.data, place, exact=False)[0]]

    return rank
