"""Running lists of the best candidates of every row, fed from tiles of distances.

On a GPU, and for rows that have no full list yet, a tile's best are found by ``topk``. On a CPU that is slow for the
little it finds later on (12 ns an element on narrow tiles): there, what beats a row's worst candidate is picked out by
one comparison (2 ns) and collected, and the collections of several tiles are sorted into the lists together. Picking
only reads the lists, so many tiles can be picked from at once, and in any order.
"""

from __future__ import annotations

import torch

CROWD = 2
"""Where more than this many times the length of a list would pass, the best are found first."""

Entries = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Row, column and value of single elements of a tile, (e,) each."""


class Lists:
    """The `width` candidates of lowest value for each of `count` rows, in no order.

    Parameters
    ----------
    count, width : int
        Rows, and candidates kept for each.
    device : torch.device
        Where.
    dtype : torch.dtype, default=torch.float32
        Of the values.

    Attributes
    ----------
    value : torch.Tensor
        (count, width), infinite where there is no candidate.
    ids : torch.Tensor
        (count, width) int32, -1 where there is no candidate.
    """

    def __init__(self, count: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.value = torch.full((count, width), torch.inf, dtype=dtype, device=device)
        self.ids = torch.full((count, width), -1, dtype=torch.int32, device=device)
        self.worst = torch.full((count,), torch.inf, dtype=dtype, device=device)
        self._waiting: list[Entries] = []

    def candidates(self) -> torch.Tensor:
        """The ids as int64."""
        return self.ids.to(torch.int64)

    def pick(self, rows: torch.Tensor, names: torch.Tensor, tile: torch.Tensor) -> Entries:
        """What of a tile (r, m) can enter the lists of `rows` (r,), its columns being `names` (m,). Changes nothing."""
        entries = None if self._empty(rows) else self._passing(tile, tile < self.worst[rows][:, None], len(rows))
        if entries is None:
            return self._best_of(rows, names, tile)
        row, column, value = entries
        return rows[row], names[column], value

    def pick_columns(self, rows: torch.Tensor, names: torch.Tensor, tile: torch.Tensor) -> Entries:
        """The same for a tile (m, r) that stands on its side."""
        entries = None if self._empty(rows) else self._passing(tile, tile < self.worst[rows], len(rows))
        if entries is None:
            return self._best_of(rows, names, tile.T.contiguous())
        row, column, value = entries
        return rows[column], names[row], value

    def _passing(self, tile: torch.Tensor, mask: torch.Tensor, rows: int) -> Entries | None:
        """What passes; None where that is far more than lists can hold, as where clusters follow in the data."""
        at = torch.nonzero(mask.view(-1)).squeeze(1)
        return None if len(at) > CROWD * rows * self.value.shape[1] else _elements(tile, at)

    def _empty(self, rows: torch.Tensor) -> bool:
        """Whether many of the rows have no full list yet, so that a comparison would let everything pass."""
        return bool(torch.isinf(self.worst[rows]).to(torch.float32).mean() > 0.25)

    def _best_of(self, rows: torch.Tensor, names: torch.Tensor, tile: torch.Tensor) -> Entries:
        value, place = tile.topk(min(self.value.shape[1], tile.shape[1]), dim=1, largest=False, sorted=False)
        there = value < torch.inf
        return rows[:, None].expand(place.shape)[there], names[place][there], value[there]

    def take_best(self, rows: torch.Tensor, names: torch.Tensor, tile: torch.Tensor) -> None:
        """Put a tile's best into the lists at once. May run in several threads for different rows."""
        value, place = tile.topk(min(self.value.shape[1], tile.shape[1]), dim=1, largest=False, sorted=False)
        self.merge(rows, value, names[place])

    def merge(self, rows: torch.Tensor, value: torch.Tensor, ids: torch.Tensor) -> None:
        """Offer some rows, each named once, candidates of their own, (r, m) values and ids."""
        ids = torch.where(value < torch.inf, ids, -1).to(torch.int32)
        value = torch.cat([value, self.value.index_select(0, rows)], dim=1)
        ids = torch.cat([ids, self.ids.index_select(0, rows)], dim=1)
        value, place = value.topk(self.value.shape[1], dim=1, largest=False, sorted=False)
        self.value.index_copy_(0, rows, value)
        self.ids.index_copy_(0, rows, ids.gather(1, place))
        self.worst.index_copy_(0, rows, value.amax(dim=1))

    def add(self, rows: torch.Tensor, ids: torch.Tensor, value: torch.Tensor) -> None:
        """Collect candidates, all (e,), for `settle`."""
        self._waiting.append((rows.to(torch.int32), ids.to(torch.int32), value))

    def settle(self) -> None:
        """Sort the collected candidates into the lists."""
        if not self._waiting:
            return
        rows, ids, value = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting = []
        order = _grouped(rows, value)
        rows, ids, value = rows[order].to(torch.int64), ids[order], value[order]
        seen, group, size = torch.unique_consecutive(rows, return_inverse=True, return_counts=True)
        rank = torch.arange(len(rows), device=rows.device) - (size.cumsum(0) - size)[group]
        width = self.value.shape[1]
        good = rank < width
        values = torch.full((len(seen), width), torch.inf, dtype=value.dtype, device=value.device)
        names = torch.full((len(seen), width), -1, dtype=torch.int32, device=value.device)
        values[group[good], rank[good]] = value[good]
        names[group[good], rank[good]] = ids[good]
        self.merge(seen, values, names)


def below_rows(tile: torch.Tensor, limit: torch.Tensor, floor: torch.Tensor | None = None) -> Entries:
    """All elements of a contiguous tile (r, m) below their row's limit (r,), after raising them to its floor (r,)."""
    row, column, value = _entries(tile, tile < limit[:, None])
    return (row, column, value) if floor is None else _raised(row, column, value, row, limit, floor)


def below_columns(tile: torch.Tensor, limit: torch.Tensor, floor: torch.Tensor | None = None) -> Entries:
    """The same with the limit and floor of their column, (m,) each."""
    row, column, value = _entries(tile, tile < limit[None, :])
    return (row, column, value) if floor is None else _raised(row, column, value, column, limit, floor)


def _entries(tile: torch.Tensor, mask: torch.Tensor) -> Entries:
    return _elements(tile, torch.nonzero(mask.view(-1)).squeeze(1))


def _elements(tile: torch.Tensor, at: torch.Tensor) -> Entries:
    row = torch.div(at, tile.shape[1], rounding_mode="floor")
    return row, at - row * tile.shape[1], tile.view(-1)[at]


def _raised(
    row: torch.Tensor,
    column: torch.Tensor,
    value: torch.Tensor,
    place: torch.Tensor,
    limit: torch.Tensor,
    floor: torch.Tensor,
) -> Entries:
    value = torch.maximum(value, floor[place])
    still = value < limit[place]
    return row[still], column[still], value[still]


def _grouped(rows: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The order by (row, value). Bits of non-negative float32 order as integers, so one sort does for both."""
    if value.dtype == torch.float32:
        bits = value.clamp(min=0).view(torch.int32).to(torch.int64)
        return torch.sort((rows.to(torch.int64) << 32) | bits, stable=True).indices
    order = torch.sort(value, stable=True).indices
    return order[torch.sort(rows[order], stable=True).indices]
