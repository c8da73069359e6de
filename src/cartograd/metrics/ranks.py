r"""The rank of one point among the neighbours of another, by counting and without sorting.

:math:`r(i, j) = 1 + |\{l \ne i : d_{il} < d_{ij}\}| + |\{l < j : d_{il} = d_{ij}\}|`, so that of equally near points
the smaller id comes first, as in `cartograd.neighbors.search`: the k neighbours found there have the ranks 1 to k.

Tiles of raw values come from products and are rounded. Values that lie within rounding of :math:`d_{ij}` are measured
again by differences, in float64, before they are counted. Memory is O(n k + tile).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.metrics.space import Exact, Space
from cartograd.neighbors.progress import steps

WORD, GROUP = 8, 128
"""Truth values in an int64, and how many such words are added before any of its eight bytes could run over."""

FEW = 64
"""Up to so many bounds a row, comparing all its values with each is faster than sorting the values of a tile."""


@dataclass(frozen=True)
class Asked:
    """The pairs whose ranks are sought, for some rows.

    Parameters
    ----------
    ids : torch.Tensor
        The second point of each pair, (r, k) int64.
    raw, low, high : torch.Tensor
        The pair's raw value, (r, k) float64, and the bounds of what may equal it within rounding.
    """

    ids: torch.Tensor
    raw: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def part(self, rows: slice | torch.Tensor) -> Asked:
        """The pairs of some of the rows."""
        return Asked(self.ids[rows], self.raw[rows], self.low[rows], self.high[rows])


def ranks_of(space: Space, ids: torch.Tensor, verbose: bool = False) -> torch.Tensor:
    """The rank of each point ids[i, t] among the neighbours of point i.

    Parameters
    ----------
    space : Space
        The points and their metric.
    ids : torch.Tensor
        (n, k) int64, none of them i itself.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    ranks : torch.Tensor
        (n, k) int64, 1 for the nearest.
    """
    asked = _asked(space, ids.to(space.device))
    nearer = torch.zeros_like(asked.ids)
    for tile in steps(space.tiles(), space.tile_count(), "ranks", verbose):
        nearer[tile.rows] += _count(space, asked.part(tile.rows), tile.rows, tile.columns, tile.raw)
        if tile.both:
            turned = tile.raw.T.contiguous()
            nearer[tile.columns] += _count(space, asked.part(tile.columns), tile.columns, tile.rows, turned)
    return nearer + 1


def _asked(space: Space, ids: torch.Tensor) -> Asked:
    raw = torch.empty(ids.shape, dtype=Exact, device=ids.device)
    slack = torch.empty_like(raw)
    for rows in space.blocks():
        names = torch.arange(rows.start, rows.stop, device=ids.device)
        repeated = names[:, None].expand(-1, ids.shape[1]).reshape(-1)
        raw[rows] = space.raw_pairs(repeated, ids[rows].reshape(-1)).view(len(names), -1)
        slack[rows] = space.slack(names, raw[rows])
    return Asked(ids, raw, raw - slack, raw + slack)


def _count(space: Space, asked: Asked, rows: slice, columns: slice, tile: torch.Tensor) -> torch.Tensor:
    """How many of the tile's columns come before each asked point, (r, k)."""
    below, upto = counts(tile, asked.low, asked.high)
    place = asked.ids - columns.start
    inside = (place >= 0) & (place < tile.shape[1])
    own = tile.gather(1, place.clamp(0, tile.shape[1] - 1))
    below -= (inside & (own < asked.low)).to(torch.int64)  # an asked point does not come before itself
    upto -= (inside & (own <= asked.high)).to(torch.int64)
    unsure = torch.nonzero((upto > below).any(dim=1)).squeeze(1)
    if len(unsure):
        below[unsure] = _count_again(space, asked.part(unsure), unsure + rows.start, columns, tile[unsure])
    return below


def _count_again(space: Space, asked: Asked, rows: torch.Tensor, columns: slice, values: torch.Tensor) -> torch.Tensor:
    """The same for rows of a tile in which other points are within rounding of an asked one."""
    low, high = asked.low, asked.high
    if not space.settled():
        _measure_near(space, asked, rows, columns, values)
        low = high = asked.raw
    names = torch.arange(columns.start, columns.stop, device=values.device)
    result = []
    for t in range(asked.ids.shape[1]):
        below = values < low[:, t : t + 1]
        tied = (values <= high[:, t : t + 1]) & ~below
        before = below | (tied & (names[None, :] < asked.ids[:, t : t + 1]))
        itself = names[None, :] == asked.ids[:, t : t + 1]
        result.append((before & ~itself).sum(dim=1))
    return torch.stack(result, dim=1)


def _measure_near(space: Space, asked: Asked, rows: torch.Tensor, columns: slice, values: torch.Tensor) -> None:
    """Put exact values, in place, where a tile's are within rounding of an asked one; each pair is measured once."""
    near = torch.zeros(values.shape, dtype=torch.bool, device=values.device)
    for t in range(asked.ids.shape[1]):
        near |= (values >= asked.low[:, t : t + 1]) & (values <= asked.high[:, t : t + 1])
    row, column = torch.nonzero(near, as_tuple=True)
    values[row, column] = space.raw_pairs(rows[row], column + columns.start)


def counts(values: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many of each row's values (r, m) are below its bounds `low` (r, k), and how many at or below `high`."""
    if low.shape[1] > FEW:
        ordered = values.sort(dim=1).values
        return torch.searchsorted(ordered, low), torch.searchsorted(ordered, high, right=True)
    return _counts(values, low, torch.lt), _counts(values, high, torch.le)


def _counts(values: torch.Tensor, bounds: torch.Tensor, compare: Callable[..., torch.Tensor]) -> torch.Tensor:
    """For each row and bound how many values compare: (r, k) int64.

    Truth values are bytes of 0 and 1. They are added eight at a time, as the bytes of one int64, which is three times
    as fast as adding them one by one; this is where most of the time of a rank goes.
    """
    rows, width = values.shape
    padded = -(-width // (WORD * GROUP)) * WORD * GROUP
    truth = torch.zeros(rows, padded, dtype=torch.bool, device=values.device)
    result = torch.empty(bounds.shape, dtype=torch.int64, device=values.device)
    for t in range(bounds.shape[1]):
        compare(values, bounds[:, t : t + 1], out=truth[:, :width])
        words = truth.view(torch.int64).view(rows, -1, GROUP).sum(dim=2)
        result[:, t] = words.view(torch.uint8).sum(dim=1)
    return result
