r"""Rows known by their content: which are equal, and which were there before.

Each row has a key of two 64-bit numbers, hashes of its values as float64. Two different rows share a key with a
probability of about :math:`2^{-120}`; memory is O(n) whatever the width of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.affinity.counter import hashed, stream
from cartograd.neighbors.rows import Rows, SparseRows
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.workers import spread

SPARSE_PIECE = 1 << 22
"""Stored values of sparse rows that are hashed at a time."""
_ODD = -7046029254386353131  # 0x9E3779B97F4A7C15


def row_keys(rows: Rows) -> torch.Tensor:
    """Return the key of each row, (n, 2) int64."""
    if isinstance(rows, SparseRows):
        return _sparse_keys(rows)
    factors = _factors(rows.width, rows.device)
    tile = max(1, tile_rows(rows.width) // 2)
    keys = torch.empty(rows.count, 2, dtype=torch.int64, device=rows.device)

    def write(start: int) -> None:  # small answers kept between large blocks would leave holes that no block fits
        stop = min(start + tile, rows.count)
        keys[start:stop] = _hashed(rows.block(start, stop), factors)

    for _ in spread(write, range(0, rows.count, tile)):
        pass
    return keys


def _sparse_keys(rows: SparseRows) -> torch.Tensor:
    """Return the same keys from the stored values alone: a zero adds nothing to a key."""
    indptr, indices, values = (torch.from_numpy(getattr(rows.matrix, name)) for name in ("indptr", "indices", "data"))
    keys = torch.zeros(rows.count, 2, dtype=torch.int64)
    for start in range(0, len(indices), SPARSE_PIECE):
        stop = min(start + SPARSE_PIECE, len(indices))
        row = torch.searchsorted(indptr, torch.arange(start, stop, dtype=indptr.dtype), right=True) - 1
        columns = indices[start:stop].to(torch.int64)
        factors = _odd_numbers(torch.stack([columns, columns + rows.width]))
        keys.index_add_(0, row, (_bits(values[start:stop]) * factors).T)
    return keys.to(rows.device)


def _factors(width: int, device: torch.device) -> torch.Tensor:
    """Return two odd random numbers for each column, (2, d) int64."""
    return _odd_numbers(torch.arange(2 * width, dtype=torch.int64, device=device).reshape(2, width))


def _odd_numbers(places: torch.Tensor) -> torch.Tensor:
    return hashed(stream(0, "row keys"), places) | 1


def _hashed(block: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    bits = _bits(block)
    return torch.stack([(bits * factor).sum(1) for factor in factors], 1)


def _bits(values: torch.Tensor) -> torch.Tensor:
    # + 0 makes -0 equal to 0; small whole numbers as floats end in many zero bits, which the shift brings into play
    bits = (values.to(torch.float64) + 0.0).view(torch.int64) * _ODD
    bits ^= bits >> 29
    return bits


@dataclass(frozen=True)
class Distinct:
    """The different rows of a data set.

    Parameters
    ----------
    first : torch.Tensor
        (u,) ids of the first row of each kind, rising.
    inverse : torch.Tensor
        (n,) which of these each row is equal to.
    """

    first: torch.Tensor
    inverse: torch.Tensor


def distinct_rows(keys: torch.Tensor) -> Distinct | None:
    """The different rows, in the order in which they first appear; None where no two are equal."""
    order = _sorted(keys)
    ranked = keys[order]
    new = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
    new[1:] = (ranked[1:] != ranked[:-1]).any(1)
    if bool(new.all()):
        return None
    group = torch.cumsum(new, 0) - 1
    first = order[new]  # the sort is stable, so the smallest id of each group comes first
    rank = torch.argsort(torch.argsort(first))
    inverse = torch.empty_like(order)
    inverse[order] = rank[group]
    return Distinct(torch.sort(first).values, inverse)


@dataclass(frozen=True)
class Register:
    """Keys of rows, sorted for looking up.

    Parameters
    ----------
    keys : torch.Tensor
        (u, 2) int64, sorted.
    ids : torch.Tensor
        (u,) int64, which row has each key.
    """

    keys: torch.Tensor
    ids: torch.Tensor

    @classmethod
    def of(cls, keys: torch.Tensor) -> Register:
        """The register of distinct keys."""
        order = _sorted(keys)
        return cls(keys[order], order)

    def find(self, keys: torch.Tensor) -> torch.Tensor:
        """The id of the row with each of these keys, -1 where there is none, (m,) int64."""
        place = torch.searchsorted(self.keys[:, 0].contiguous(), keys[:, 0].contiguous()).clamp(max=len(self.ids) - 1)
        same = (self.keys[place] == keys).all(1)
        return torch.where(same, self.ids[place], -1)


def _sorted(keys: torch.Tensor) -> torch.Tensor:
    order = torch.argsort(keys[:, 1], stable=True)
    return order[torch.argsort(keys[order, 0], stable=True)]
