"""Exact search: products find the candidates, differences rank them, doubtful rows are searched again with care.

`search_fast` keeps, of each row's tiles, the k best by ``|a|^2 + |b|^2 - 2ab`` and a few spare, and measures those in
float64 as ``sum (a - b)^2``. That is exact unless the rounding of the product could have pushed a neighbour out of the
spare ones too (near-duplicates far from the median, many ties). Such rows show: their last spare candidate is within
rounding of their k-th. `search_carefully` searches those again: every tile's candidates are chosen by id where they are
within rounding of each other, from float64 products where need be, and measured before they meet those of the next.
Memory is O(n k + tile) throughout.
"""

from __future__ import annotations

import logging

import torch

from cartograd.neighbors import fused, screened
from cartograd.neighbors.best import SPARE, Best, lowest_by_id
from cartograd.neighbors.distances import Metric
from cartograd.neighbors.lists import Entries, Lists
from cartograd.neighbors.measure import measured, measured_pairs
from cartograd.neighbors.progress import steps
from cartograd.neighbors.rows import PickedRows, Rows
from cartograd.neighbors.shrinking import shrinking
from cartograd.neighbors.tiles import FEWEST_ROWS, Side, Tiles, tile_rows
from cartograd.neighbors.workers import spread

Found = tuple[torch.Tensor, torch.Tensor]
"""ids (m, k) int64 and raw values (m, k) float64, rising along each row."""

log = logging.getLogger("cartograd.neighbors")

STAGE = "neighbours, exact"

BATCH = 8
"""Tiles that are worked on with one state of the lists."""


def search_exactly(
    data: Rows,
    k: int,
    metric: Metric,
    queries: Rows | None = None,
    own: torch.Tensor | None = None,
    verbose: bool = False,
) -> Found:
    """The exact k nearest rows of `data`, of each row of `data` or of `queries`; ties by id.

    Parameters
    ----------
    data : Rows
        The rows searched.
    k : int
        How many neighbours.
    metric : Metric
        How distances are measured.
    queries : Rows, default=None
        Rows whose neighbours are sought; None for those of `data`.
    own : torch.Tensor, default=None
        For each query the id in `data` that is left out, (m,) int64; None for none.
    verbose : bool, default=False
        Whether to show a progress bar.
    """
    if metric.slack is None:
        return search_carefully(data, k, metric, queries, own, verbose)
    by_kernel = _found_by_kernel(data, k, metric, queries, own)
    ids, raw, doubtful = by_kernel or search_fast(data, k, metric, queries, own, verbose)
    if len(doubtful):
        again = PickedRows(data if queries is None else queries, doubtful)
        found = search_carefully(data, k, metric, again, None if own is None else own[doubtful], verbose)
        ids[doubtful], raw[doubtful] = found
    return ids, raw


def _found_by_kernel(
    data: Rows, k: int, metric: Metric, queries: Rows | None, own: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """What kernels find; None where there are none that serve, or copies of the rows do not fit."""
    if screened.serves(data, k, metric, queries):
        return screened.search_screened(data, k, metric, own is not None)
    if not fused.serves(data, k, metric, queries):
        return None
    try:
        return fused.search_fused(data, k, queries, own)
    except torch.OutOfMemoryError:
        log.info("%d rows, %d columns: out of memory for the kernel, searching by tiles", data.count, data.width)
    return None


def search_fast(
    data: Rows, k: int, metric: Metric, queries: Rows | None, own: torch.Tensor | None, verbose: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids and raw values as in `search_exactly`, and the queries for which they may be wrong."""

    def work(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return _searched_fast(Tiles(data, metric, queries, own, size), k, verbose)

    return shrinking(work, tile_rows(data.width, data.device), FEWEST_ROWS, STAGE)


def _searched_fast(tiles: Tiles, k: int, verbose: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    data, metric = tiles.data, tiles.metric
    width = min(k + SPARE, data.count)
    lists = Lists(tiles.queries.count, width, data.device, data.dtype)
    batches = _batches(tiles)
    for batch in steps(batches, len(batches), STAGE, verbose):
        for entries in spread(lambda job: _picked(tiles, lists, *job), batch):
            for entry in entries:
                lists.add(*entry)
        lists.settle()
    ids, raw = measured(metric, data, tiles.queries, lists.candidates())
    doubtful = torch.zeros(0, dtype=torch.int64, device=data.device)
    if width < data.count:
        doubtful = _doubtful(tiles, lists.worst, raw[:, k - 1])
    return ids[:, :k].contiguous(), raw[:, :k].contiguous(), doubtful


def _batches(tiles: Tiles) -> list[list[tuple[int, int]]]:
    """All tiles, a first one of each row before all others: it fills the lists, and few of the rest then pass."""
    rows = [(a, tiles.starts(tiles.data, a if tiles.within else 0)) for a in tiles.starts(tiles.queries)]
    first = [(a, starts[0]) for a, starts in rows]
    rest = [(a, b) for a, starts in rows for b in starts[1:]]
    return [jobs[start : start + BATCH] for jobs in (first, rest) for start in range(0, len(jobs), BATCH)]


def _picked(tiles: Tiles, lists: Lists, a_start: int, b_start: int) -> list[Entries]:
    """Candidates from one tile, for the rows of both its sides where both are rows of the data."""
    a, b = tiles.side(tiles.queries, a_start), tiles.side(tiles.data, b_start)
    scores = tiles.scores(a, b)
    both = tiles.within and b_start > a_start
    if scores.device.type == "cpu":
        picked = [lists.pick(a.ids(), b.ids(), scores)]
        return [*picked, lists.pick_columns(b.ids(), a.ids(), scores)] if both else picked
    lists.take_best(a.ids(), b.ids(), scores)
    if both:
        lists.take_best(b.ids(), a.ids(), scores.T)
    return []


def _doubtful(tiles: Tiles, farthest: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
    """Queries whose last spare candidate is within rounding of their k-th neighbour."""
    parts = []
    for start in range(0, tiles.queries.count, tiles.size):
        part = slice(start, min(start + tiles.size, tiles.queries.count))
        values = tiles.moved(tiles.queries.block(part.start, part.stop))
        slack = _slack(tiles.metric, values, edge[part].to(values.dtype))
        parts.append(torch.nonzero(farthest[part] <= edge[part] + 2 * slack).squeeze(1) + start)
    return torch.cat(parts)


def _slack(metric: Metric, values: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
    edge = torch.where(edge < torch.inf, edge, torch.zeros_like(edge))
    return torch.zeros_like(edge) if metric.slack is None else metric.slack(values, edge)


def search_carefully(
    data: Rows, k: int, metric: Metric, queries: Rows | None, own: torch.Tensor | None, verbose: bool
) -> Found:
    """As `search_exactly`, for rows with ties and near-duplicates, and for metrics whose tiles are exact."""

    def work(size: int) -> Found:
        return _searched_carefully(Tiles(data, metric, queries, own, size), k, verbose)

    return shrinking(work, tile_rows(data.width, data.device), FEWEST_ROWS, STAGE)


def _searched_carefully(tiles: Tiles, k: int, verbose: bool) -> Found:
    best = Best(tiles.queries.count, k, tiles.data.device)

    def block(start: int) -> None:
        a = tiles.side(tiles.queries, start)
        for other in tiles.starts(tiles.data):
            b = tiles.side(tiles.data, other)
            _offer(tiles, best, a, b, tiles.scores(a, b))

    starts = tiles.starts(tiles.queries)
    done = spread(block, starts) if tiles.metric.parallel else map(block, starts)
    for _ in steps(done, len(starts), STAGE, verbose):
        pass
    return best.ids, best.raw


def _offer(tiles: Tiles, best: Best, a: Side, b: Side, scores: torch.Tensor) -> None:
    """Take this tile's best candidates of every row of `a` into the lists."""
    width, k = scores.shape[1], best.raw.shape[1]
    k, count = min(k, width), min(k + SPARE, width)
    values, positions = scores.topk(count, dim=1, largest=False)
    slack = _slack(tiles.metric, a.values, values[:, k - 1])
    values = values.to(torch.float64)
    if count < width:
        crowded = torch.nonzero(values[:, -1] <= values[:, k - 1] + 2 * slack).squeeze(1)
        if len(crowded):
            positions[crowded] = chosen = _uncrowded(tiles, a, b, scores, crowded, k, count)
            values[crowded] = scores[crowded].gather(1, chosen).to(torch.float64)
    positions, order = torch.sort(positions, dim=1)
    values = values.gather(1, order)
    hopeful = (values <= (best.raw[a.start : a.stop, -1] + 2 * slack)[:, None]) & (values < torch.inf)
    raw = torch.where(hopeful, values, torch.inf)
    if tiles.metric.slack is not None:
        row, column = torch.nonzero(hopeful, as_tuple=True)
        names = b.ids(positions[row, column])
        raw[row, column] = measured_pairs(tiles.metric, a.rows, a.ids(row), b.rows, names)
    some = torch.nonzero(hopeful.any(dim=1)).squeeze(1)
    best.merge(a.ids(some), raw[some], b.ids(positions[some]))


def _uncrowded(
    tiles: Tiles, a: Side, b: Side, scores: torch.Tensor, crowded: torch.Tensor, k: int, count: int
) -> torch.Tensor:
    """Choose again, by float64 scores and then by id, where too many candidates are within rounding."""
    rows, values = scores[crowded], a.values[crowded]
    if tiles.metric.slack is not None and scores.dtype != torch.float64:
        itself = torch.isinf(rows)
        values = tiles.moved(a.rows.exact(a.ids(crowded)))
        rows = tiles.metric.tile(values, tiles.moved(b.rows.exact(b.ids()))).masked_fill_(itself, torch.inf)
    edge = torch.kthvalue(rows, k, dim=1).values
    return lowest_by_id(rows, k, count, _slack(tiles.metric, values, edge))
