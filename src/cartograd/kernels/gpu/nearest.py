r"""Candidates for the nearest rows: tiles of squared distances by matrix products, the best kept in registers.

A program owns some queries and walks over all columns, a tile at a time. Of a tile's squared distances

.. math:: |a|^2 + |b|^2 - 2 a \cdot b

only the least of each row is looked at; where that beats the worst of the row's list it takes its place, and the next
least is looked at. A tile that beats nobody costs its product and one minimum. Distances are never written: a list of L
candidates for each row is all that leaves the registers.

A number of a tile carries its column in the lowest bits of its fraction, and a number in a list its place in the list:
one minimum, or maximum, then says how much and where. That leaves 16 bits of the fraction, more than bfloat16 products
are good for. Of one tile at most `ROUNDS` columns enter a list, so data must come in an order in which neighbours are
strewn over many tiles; `prepared` sees to that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

COLUMNS = 128
"""Columns of a tile."""
ROUNDS, MORE_ROUNDS = 4, 12
"""How many columns of one tile may enter a row's list; more where lists are not short beside the number of tiles."""
LONGEST = 128
"""The longest list."""
WHOLE = 128
"""Rows up to this width are multiplied in one piece."""
_FAR = 3.0e38
"""The squared length of rows that are not there."""
_EMPTY = tl.constexpr(0x7F000000)
"""The bits of 1.7e38: an empty place of a list, nearer than a row that is not there."""
_LOW = tl.constexpr(127)
"""The bits that hold a place."""


class Prepared(NamedTuple):
    """Rows as the kernels take them.

    Parameters
    ----------
    values : torch.Tensor
        (rows filled up to whole tiles, width filled up) bfloat16 or float32, zero where there is no row.
    squares : torch.Tensor
        (rows filled up,) float32, squared lengths of the values; very large where there is no row.
    errors : torch.Tensor
        (count,) float32, how far the values are from the rows they stand for.
    n : int
        How many rows there are.
    """

    values: torch.Tensor
    squares: torch.Tensor
    errors: torch.Tensor
    n: int


def prepared(
    rows: torch.Tensor, centre: torch.Tensor, order: torch.Tensor | None = None, dtype: torch.dtype = torch.bfloat16
) -> Prepared:
    """Rows moved by the centre, in another order, rounded and filled up.

    Parameters
    ----------
    rows : torch.Tensor
        (n, d) float32.
    centre : torch.Tensor
        (d,) what is subtracted.
    order : torch.Tensor, default=None
        (n,) int64, which row comes where; None for as they are.
    dtype : torch.dtype, default=torch.bfloat16
        bfloat16, or float32 for products of 11 bits.
    """
    n, d = rows.shape
    height, width = -(-n // COLUMNS) * COLUMNS, filled_width(d)
    values = torch.zeros(height, width, dtype=dtype, device=rows.device)
    squares = torch.full((height,), _FAR, dtype=torch.float32, device=rows.device)
    errors = torch.empty(n, dtype=torch.float32, device=rows.device)
    step = max(1, (1 << 26) // d)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        block = rows[part] if order is None else rows.index_select(0, order[part])
        moved = block - centre
        values[part, :d] = moved if dtype == torch.bfloat16 else rounded(moved)
        kept = values[part, :d].to(torch.float32)
        squares[part] = kept.square().sum(1)
        errors[part] = torch.linalg.vector_norm(moved - kept, dim=1)
    return Prepared(values, squares, errors, n)


def rounded(values: torch.Tensor) -> torch.Tensor:
    """float32 numbers rounded to 11 bits, as the tensor cores take them (tf32)."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)


def filled_width(d: int) -> int:
    """The width rows of d columns are filled up to: a power of two, or for wide rows a multiple of 64."""
    return max(16, triton.next_power_of_2(d)) if d <= WHOLE else -(-d // 64) * 64


def list_length(k: int) -> int:
    """How many candidates to keep for k neighbours and the row itself: about twice as many, a power of two."""
    return max(16, triton.next_power_of_2(k + 1 + max(4, min(k, 32))))


def candidates(queries: Prepared, data: Prepared, length: int, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The `length` nearest rows of each query by the rounded values, in no order.

    Parameters
    ----------
    queries, data : Prepared
        Of one width and type.
    length : int
        A power of two, 16 to 128.
    **options : Any
        Sizes to try: rows, columns, warps, stages, splits, depth.

    Returns
    -------
    values : torch.Tensor
        (m, length) float32 squared distances, with 16 bits.
    ids : torch.Tensor
        (m, length) int32, -1 where there are fewer.
    """
    m, width = queries.n, data.values.shape[1]
    rows = options.get("rows", 64)
    columns = options.get("columns", COLUMNS)
    tiles, blocks = -(-data.n // columns), -(-m // rows)
    splits = options.get("splits", 1 if data.values.device.type == "cpu" else max(1, min(8, 1024 // blocks)))
    each = -(-tiles // splits)
    rounds = ROUNDS if 4 * length <= tiles else MORE_ROUNDS
    values = torch.empty(splits, blocks * rows, length, dtype=torch.float32, device=data.values.device)
    ids = torch.empty(splits, blocks * rows, length, dtype=torch.int32, device=data.values.device)
    _candidates[(blocks, splits)](
        queries.values, queries.squares, data.values, data.squares, values, ids, m, tiles, each, blocks * rows,
        WIDTH=width, DEPTH=width if width <= WHOLE else options.get("depth", 64), ROWS=rows, COLUMNS=columns,
        LENGTH=length, ROUNDS=rounds, num_warps=options.get("warps", 4), num_stages=options.get("stages", 3),
    )  # fmt: skip
    if splits == 1:
        return values[0, :m], ids[0, :m]
    merged, place = values[:, :m].transpose(0, 1).reshape(m, -1).topk(length, dim=1, largest=False, sorted=False)
    return merged, ids[:, :m].transpose(0, 1).reshape(m, -1).gather(1, place)


@triton.jit
def _taken(best, ids, worst, least, first):
    """The lists with each row's least number in the place of the worst, where it is smaller; and the worst now."""
    bits = least.to(tl.int32, bitcast=True)
    place = worst.to(tl.int32, bitcast=True) & _LOW
    new = ((bits & ~_LOW) | place).to(tl.float32, bitcast=True)
    here = (best == worst[:, None]) & (least < worst)[:, None]
    best = tl.where(here, new[:, None], best)
    ids = tl.where(here, (first + (bits & _LOW))[:, None], ids)
    return best, ids, tl.max(best, 1)


@triton.jit
def _products(query, datum, row, column, WIDTH: tl.constexpr, DEPTH: tl.constexpr):
    """Products of rows wider than one piece."""
    depth = tl.arange(0, DEPTH)
    total = tl.zeros((row.shape[0], column.shape[0]), tl.float32)
    for start in range(0, WIDTH, DEPTH):
        a = tl.load(query + row[:, None] * WIDTH + (start + depth)[None, :])
        b = tl.load(datum + column[None, :] * WIDTH + (start + depth)[:, None])
        total = tl.dot(a, b, total, input_precision="tf32")
    return total


@triton.jit
def _candidates(
    queries, query_squares, data, data_squares, values, ids_out, count, tiles, each, height,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    LENGTH: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    block, split = tl.program_id(0), tl.program_id(1)
    row, column, slot = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, LENGTH)
    query = queries + block.to(tl.int64) * ROWS * WIDTH
    there = block * ROWS + row < count  # the filling of a block may go beyond that of the rows
    within = tl.where(there, row, 0)
    own = tl.load(query_squares + block * ROWS + within)
    best = tl.zeros((ROWS, LENGTH), tl.int32) + (slot | _EMPTY)[None, :]
    best = best.to(tl.float32, bitcast=True)
    ids = tl.full((ROWS, LENGTH), -1, tl.int32)
    worst = tl.max(best, 1)
    if DEPTH == WIDTH:
        depth = tl.arange(0, WIDTH)
        a = tl.load(query + within[:, None] * WIDTH + depth[None, :])
    datum = data + (split * each).to(tl.int64) * COLUMNS * WIDTH
    for tile in range(split * each, tl.minimum(split * each + each, tiles)):
        if DEPTH == WIDTH:
            b = tl.load(datum + column[None, :] * WIDTH + depth[:, None])
            products = tl.dot(a, b, input_precision="tf32")
        else:
            products = _products(query, datum, within, column, WIDTH, DEPTH)
        squares = tl.load(data_squares + tile * COLUMNS + column)
        apart = (squares[None, :] + own[:, None]) - 2 * products
        bits = (apart.to(tl.int32, bitcast=True) & ~_LOW) | column[None, :]
        numbers = bits.to(tl.float32, bitcast=True)
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
        datum += COLUMNS * WIDTH
    out = (split.to(tl.int64) * height + block * ROWS) * LENGTH + row[:, None] * LENGTH + slot[None, :]
    tl.store(values + out, best)
    tl.store(ids_out + out, ids)


def candidates_in_torch(queries: Prepared, data: Prepared, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The twin of `candidates`: the same from tiles of all distances, without the limit of `ROUNDS`."""
    found = []
    right, squares = data.values[: data.n].to(torch.float32), data.squares[: data.n]
    for start in range(0, queries.n, 4096):
        part = slice(start, min(start + 4096, queries.n))
        products = queries.values[part].to(torch.float32) @ right.T
        apart = (squares[None, :] + queries.squares[part, None]).sub_(products, alpha=2)
        found.append(apart.topk(min(length, data.n), dim=1, largest=False, sorted=False))
    values = torch.cat([one.values for one in found])
    ids = torch.cat([one.indices for one in found]).to(torch.int32)
    missing = length - values.shape[1]
    pad = torch.nn.functional.pad
    return pad(values, (0, missing), value=_FAR), pad(ids, (0, missing), value=-1)
