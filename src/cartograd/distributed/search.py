"""Neighbours of the rows that a process owns, among the rows of all.

Where every process has all rows, each searches for its own. Where each has its own rows alone, tiles of them go round
the ring: every process compares its rows with the tile that it has, keeps the k best so far, and passes the tile on.
Distances are those of the exact search, sums of squared differences in float64, and of equally near rows the one with
the smaller number comes first, so that it makes no difference who compares which rows in which order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from cartograd.distributed.group import Ranks
from cartograd.engine import no_grad
from cartograd.neighbors import callables
from cartograd.neighbors.distances import METRICS, Metric
from cartograd.neighbors.exact import Found, search_exactly
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.precision import full_precision
from cartograd.neighbors.problem import Problem, solve_exactly
from cartograd.neighbors.ready import Ready, _has_zeros, _largest, _mapped, _scale, make_ready
from cartograd.neighbors.rows import PickedRows, Rows, TensorRows
from cartograd.neighbors.searching import EXACT_UP_TO, EXACT_UP_TO_ON_GPU, search
from cartograd.neighbors.workers import all_cores

log = logging.getLogger("cartograd.distributed")

TILE_ELEMENTS = 1 << 22
"""Numbers in a tile that goes round: 16 MiB of float32."""
MetricLike = str | Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Wanted:
    """What is searched for.

    Parameters
    ----------
    k : int
        How many neighbours.
    metric : str or callable
        How rows are compared.
    backend : str or FaissConfig
        See `cartograd.neighbors.search`.
    seed : int
        For what is random.
    verbose : bool, default=False
        Whether to show progress.
    """

    k: int
    metric: MetricLike
    backend: Any
    seed: int
    verbose: bool = False


def search_own(data: Any, start: int, stop: int, wanted: Wanted, device: torch.device) -> Found:
    """Neighbours among all rows, which are all here, of those from `start` to `stop`: ids and distances.

    The exact search is done for these rows only. Others, which find neighbours in groups of rows, are done in full by
    every process: the same in each, and the same as with one process.
    """
    given = intake(data, "X", device)
    n = given.rows.count
    most = EXACT_UP_TO if given.rows.device.type == "cpu" else EXACT_UP_TO_ON_GPU
    exact = wanted.backend == "exact" or (wanted.backend == "auto" and n <= most)
    if not exact or wanted.metric == "precomputed" or not isinstance(wanted.metric, str):
        log.info("every process searches among all %d rows", n)
        ids, distances = search(
            data,
            wanted.k,
            metric=wanted.metric,
            backend=wanted.backend,
            device=device,
            random_state=wanted.seed,
            verbose=wanted.verbose,
        )
        return _plain(ids, given)[start:stop], _plain(distances, given)[start:stop]
    with no_grad(), torch.no_grad(), full_precision():
        ready = make_ready(given, None, wanted.metric, ("X", "X"))
        own = torch.arange(start, stop, device=given.rows.device)
        sparse = None if given.sparse is None else (given.sparse, given.sparse[start:stop])
        if sparse is not None and ready.scale != 1.0:
            sparse = (sparse[0] * ready.scale, sparse[1] * ready.scale)
        asked = PickedRows(ready.data, own)
        problem = Problem(ready.data, asked, own, wanted.k, ready.metric, 0.95, wanted.seed, wanted.verbose, sparse)
        ids, raw = solve_exactly(problem)
        return ids, ready.distances(raw)


def search_ring(ranks: Ranks, rows: Rows, bounds: list[int], wanted: Wanted, queries: Rows | None = None) -> Found:
    """Neighbours among the rows of all processes: ids and distances.

    Parameters
    ----------
    ranks : Ranks
        The processes.
    rows : Rows
        The rows of this one, those from bounds[rank] to bounds[rank + 1] of all.
    bounds : list of int
        Where the rows of each process begin, and how many there are in all.
    wanted : Wanted
        What is sought. The backend has no say: the search is exact.
    queries : Rows, default=None
        Rows whose neighbours are sought; None for those of this process, which are not their own neighbours.
    """
    if wanted.backend not in ("auto", "exact"):
        log.warning("backend %r does not serve rows spread over processes; searching exactly", wanted.backend)
    with no_grad(), torch.no_grad(), full_precision(), all_cores(rows.device):
        ready, mapped = prepared_by_all(ranks, rows, queries, wanted.metric)
        start = bounds[ranks.rank]
        own = torch.arange(start, start + rows.count, device=rows.device) if queries is None else None
        asked = ready.data if ready.other is None else ready.other
        best = _Best(asked, own, wanted.k, ready.metric)
        size = max(64, TILE_ELEMENTS // max(ready.data.width, 1))
        most = max(b - a for a, b in pairwise(bounds))
        for first in range(0, most, size):
            tile = rows.block(min(first, rows.count), min(first + size, rows.count))
            place = start + first
            for hop in range(ranks.size):
                best.offer(mapped(TensorRows(tile)), place)
                if hop < ranks.size - 1:
                    place = ranks.agree("place of a tile", place)[(ranks.rank - 1) % ranks.size][0]
                    tile = ranks.passed_on(tile, "tiles of rows")
        return best.ids, ready.distances(best.raw)


class _Best:
    """The k nearest so far of some queries."""

    def __init__(self, queries: Rows, own: torch.Tensor | None, k: int, metric: Metric) -> None:
        self.queries, self.own, self.k, self.metric = queries, own, k, metric
        self.ids = torch.full((queries.count, k), -1, dtype=torch.int64, device=queries.device)
        self.raw = torch.full((queries.count, k), torch.inf, dtype=torch.float64, device=queries.device)

    def offer(self, tile: Rows, place: int) -> None:
        """Compare with the rows of a tile, the first of which is number `place` of all."""
        if not tile.count or not self.queries.count:
            return
        here = None if self.own is None else self.own - place
        ids, raw = search_exactly(tile, min(self.k, tile.count), self.metric, self.queries, here)
        ids = torch.where(torch.isfinite(raw), ids + place, -1)
        both, values = torch.cat([self.ids, ids], 1), torch.cat([self.raw, raw], 1)
        both, order = torch.sort(both, dim=1)
        values, by_value = torch.sort(values.gather(1, order), dim=1, stable=True)
        self.raw, self.ids = values[:, : self.k].contiguous(), both.gather(1, by_value[:, : self.k]).contiguous()


def prepared_by_all(
    ranks: Ranks, rows: Rows, queries: Rows | None, metric: MetricLike
) -> tuple[Ready, Callable[[Rows], Rows]]:
    """As `make_ready`, with what depends on all rows found out from all processes; and how to prepare other rows.

    Rows travel as they were given: prepared ones have been rounded, and would be measured otherwise.
    """
    sources = [Given(one, "torch", rows.device) for one in (rows, queries) if one is not None]
    chosen = METRICS[metric] if isinstance(metric, str) else callables.metric_of(metric, rows.block(0, 3))
    filled = [source for source in sources if source.rows.count]
    largest = max((_largest(source, chosen, "X") for source in filled), default=0.0)
    wide = int(any(source.rows.dtype == torch.float64 for source in sources))
    facts = ranks.gathered(torch.tensor([[largest, wide]], dtype=torch.float64), "largest values").amax(0).tolist()
    scale = _scale(rows.width, bool(facts[1]), facts[0]) if chosen.degree or chosen.unit else 1.0
    zero = int(chosen.unit and any(_has_zeros(source, scale) for source in filled))
    zeros = any(one for (one,) in ranks.agree("rows of zeros", zero)) if chosen.unit else False

    def mapped(some: Rows) -> Rows:
        return _mapped(some, chosen, scale, zeros, bool(facts[1]))

    data, *rest = (mapped(source.rows) for source in sources)
    return Ready(chosen, data, rest[0] if rest else None, scale), mapped


def _plain(values: Any, given: Given) -> torch.Tensor:
    found = values if isinstance(values, torch.Tensor) else torch.as_tensor(values)
    return found.to(given.rows.device)
