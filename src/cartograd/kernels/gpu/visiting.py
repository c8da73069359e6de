"""Candidates for the nearest rows from some cells only: as `cartograd.kernels.gpu.nearest`, with lists of tiles.

Rows lie in the order of their cells, each cell filled up to whole tiles, so that all rows of a program are of one cell
and look into the same tiles: those of the cells near to theirs. Everything else is as there; within a cell rows must
come in a random order, because of one tile at most `ROUNDS` columns enter a list.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from cartograd.kernels.gpu.nearest import _EMPTY, _LOW, COLUMNS, WHOLE, _products, _taken

ROUNDS = 12
"""How many columns of one tile may enter a row's list."""


class Visits(NamedTuple):
    """Which tiles the rows of which tile look into.

    Parameters
    ----------
    cells : torch.Tensor
        (tiles,) int32, the cell of each tile.
    bounds : torch.Tensor
        (cells + 1,) int32, where the list of each cell begins and ends.
    tiles : torch.Tensor
        int32, the lists, one after the other.
    """

    cells: torch.Tensor
    bounds: torch.Tensor
    tiles: torch.Tensor


def candidates(
    values: torch.Tensor, squares: torch.Tensor, visits: Visits, length: int, rows: int = 64, warps: int = 4
) -> torch.Tensor:
    """The `length` nearest rows of each row by the rounded values, (rows filled up, length) int32, in no order.

    Parameters
    ----------
    values, squares : torch.Tensor
        As in `cartograd.kernels.gpu.nearest.Prepared`.
    visits : Visits
        What is looked into.
    length : int
        A power of two, 16 to 128.
    rows : int, default=64
        Rows of a program, which divide those of a tile.
    warps : int, default=4
        Warps of a program.
    """
    height, width = values.shape
    ids = torch.empty(height, length, dtype=torch.int32, device=values.device)
    _visiting[(height // rows,)](
        values, squares, visits.cells, visits.bounds, visits.tiles, ids,
        WIDTH=width, DEPTH=width if width <= WHOLE else 64, ROWS=rows, COLUMNS=COLUMNS,
        LENGTH=length, ROUNDS=ROUNDS, num_warps=warps, num_stages=3,
    )  # fmt: skip
    return ids


@triton.jit
def _visiting(
    values, squares, cells, bounds, tiles, ids_out,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    LENGTH: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    row, column, slot = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, LENGTH)
    query = values + block.to(tl.int64) * ROWS * WIDTH
    own = tl.load(squares + block * ROWS + row)
    best = tl.zeros((ROWS, LENGTH), tl.int32) + (slot | _EMPTY)[None, :]
    best = best.to(tl.float32, bitcast=True)
    ids = tl.full((ROWS, LENGTH), -1, tl.int32)
    worst = tl.max(best, 1)
    if DEPTH == WIDTH:
        depth = tl.arange(0, WIDTH)
        a = tl.load(query + row[:, None] * WIDTH + depth[None, :])
    cell = tl.load(cells + block * ROWS // COLUMNS)
    for place in range(tl.load(bounds + cell), tl.load(bounds + cell + 1)):
        tile = tl.load(tiles + place)
        datum = values + tile.to(tl.int64) * COLUMNS * WIDTH
        if DEPTH == WIDTH:
            b = tl.load(datum + column[None, :] * WIDTH + depth[:, None])
            products = tl.dot(a, b, input_precision="tf32")
        else:
            products = _products(query, datum, row, column, WIDTH, DEPTH)
        apart = (tl.load(squares + tile * COLUMNS + column)[None, :] + own[:, None]) - 2 * products
        numbers = ((apart.to(tl.int32, bitcast=True) & ~_LOW) | column[None, :]).to(tl.float32, bitcast=True)
        least = tl.min(numbers, 1)
        if tl.max((least < worst).to(tl.int32), 0) > 0:
            best, ids, worst = _taken(best, ids, worst, least, tile * COLUMNS)
            numbers = tl.where(numbers == least[:, None], float("inf"), numbers)
            least = tl.min(numbers, 1)
            if tl.max((least < worst).to(tl.int32), 0) > 0:
                for _ in tl.static_range(ROUNDS - 1):
                    best, ids, worst = _taken(best, ids, worst, least, tile * COLUMNS)
                    numbers = tl.where(numbers == least[:, None], float("inf"), numbers)
                    least = tl.min(numbers, 1)
    tl.store(ids_out + (block.to(tl.int64) * ROWS + row)[:, None] * LENGTH + slot[None, :], ids)


def candidates_in_torch(values: torch.Tensor, squares: torch.Tensor, visits: Visits, length: int) -> torch.Tensor:
    """The twin of `candidates`, without the limit of `ROUNDS`."""
    found = torch.full((len(values), length), -1, dtype=torch.int32, device=values.device)
    bounds, columns = visits.bounds.tolist(), torch.arange(COLUMNS, device=values.device)
    for tile, cell in enumerate(visits.cells.tolist()):
        seen = (visits.tiles[bounds[cell] : bounds[cell + 1], None] * COLUMNS + columns).reshape(-1)
        rows = slice(tile * COLUMNS, (tile + 1) * COLUMNS)
        products = values[rows].to(torch.float32) @ values[seen].to(torch.float32).T
        apart = (squares[None, seen] + squares[rows, None]).sub_(products, alpha=2)
        nearest = apart.topk(min(length, len(seen)), dim=1, largest=False, sorted=False)
        there = nearest.values < 1.7e38
        found[rows, : there.shape[1]] = torch.where(there, seen[nearest.indices], -1).to(torch.int32)
    return found
