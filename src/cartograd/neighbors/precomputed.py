"""Neighbours read off distances that the caller has computed: a dense matrix, or a sparse one of some pairs."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.errors import InputError
from cartograd.neighbors import validate
from cartograd.neighbors.best import lowest
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.tiles import tile_rows


def from_matrix(rows: Rows, k: int, without_self: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The k smallest entries of each row of a distance matrix: ids (m, k) and distances (m, k), ties by id."""
    ids = torch.empty(rows.count, k, dtype=torch.int64, device=rows.device)
    distances = torch.empty(rows.count, k, dtype=rows.dtype, device=rows.device)
    tile = tile_rows(rows.width)
    for start in range(0, rows.count, tile):
        stop = min(start + tile, rows.count)
        block = rows.block(start, stop)
        if without_self:
            block = block.clone()
            block.diagonal(start).fill_(torch.inf)
        chosen = lowest(block, k)
        distances[start:stop], order = torch.sort(block.gather(1, chosen), dim=1, stable=True)
        ids[start:stop] = chosen.gather(1, order)
    return ids, distances


def check_matrix(rows: Rows, name: str, square: bool) -> None:
    """Refuse what is no matrix of distances: not square, NaN, infinite or negative entries."""
    if square:
        validate.check_square((rows.count, rows.width))
    validate.scan(rows, name, tile_rows(rows.width), validate.check_distances)


def from_sparse(matrix: Any, k: int, without_self: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The k smallest stored entries of each row of a sparse matrix; pairs that are not stored are no neighbours."""
    indptr = torch.from_numpy(matrix.indptr).to(torch.int64)
    columns = torch.from_numpy(matrix.indices).to(torch.int64)
    values = torch.from_numpy(matrix.data)
    row = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    _check_stored(values, row, columns)
    if without_self:
        other = row != columns
        row, columns, values = row[other], columns[other], values[other]
    degree = torch.bincount(row, minlength=len(indptr) - 1)
    if int(degree.min()) < k:
        first = int(torch.nonzero(degree < k)[0])
        raise InputError(
            f"row {first} of the sparse distance matrix stores {int(degree[first])} neighbours, and k={k} were asked"
            " for; store more pairs or use a smaller k"
        )
    order = torch.argsort(columns, stable=True)  # then by distance, then by row: in the end by (row, distance, id)
    order = order[torch.argsort(values[order], stable=True)]
    order = order[torch.argsort(row[order], stable=True)]
    first_of = torch.cumsum(degree, 0) - degree
    pick = order[first_of[:, None] + torch.arange(k)]
    return columns[pick], values[pick]


def _check_stored(values: torch.Tensor, row: torch.Tensor, columns: torch.Tensor) -> None:
    bad = ~(torch.isfinite(values) & (values >= 0))
    if bool(bad.any()):
        at = int(torch.nonzero(bad)[0])
        raise InputError(
            f"precomputed distances must be finite and not negative, got {float(values[at]):g} at row {int(row[at])}, "
            f"column {int(columns[at])}"
        )
