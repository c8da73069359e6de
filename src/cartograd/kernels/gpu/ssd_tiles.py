# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Pieces of the SSD kernels: tiles of rows, and the decays between the steps of a chunk.

A row is a step and a rank in one, the rank fastest: `row // RANKS` is the step. A chunk has LENGTH steps; a tile has
room for at least LENGTH * RANKS rows, a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu import interpreted

INTERPRETED = tl.constexpr(interpreted())


@triton.jit
def load_rows(base, rows, row_stride, last_row, columns, WIDTH: tl.constexpr):
    """A tile of rows and columns; zeros outside. `rows` count from `base`; the last column is contiguous."""
    inside = (rows < last_row)[:, None] & (columns < WIDTH)[None, :]
    return tl.load(base + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(base, tile, rows, row_stride, last_row, columns, WIDTH: tl.constexpr):
    """Write a tile back, cast to the dtype it is kept in."""
    inside = (rows < last_row)[:, None] & (columns < WIDTH)[None, :]
    at = base + rows[:, None] * row_stride + columns[None, :]
    tl.store(at, tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def load_state(base, p, r, P: tl.constexpr, R: tl.constexpr):
    """A tile of a state; zeros outside."""
    inside = (p < P)[:, None] & (r < R)[None, :]
    return tl.load(base + p[:, None] * R + r[None, :], mask=inside, other=0.0)


@triton.jit
def load_steps(base, rows, RANKS: tl.constexpr, LENGTH: tl.constexpr):
    """A number of each row's step; rows past the end have the last one."""
    step = rows if RANKS == 1 else rows // RANKS
    return tl.load(base + (step if rows.shape[0] == LENGTH * RANKS else tl.minimum(step, LENGTH - 1)))


@triton.jit
def exponential(x):
    """exp(x), 0 where it is below the least normal number: one instruction, where keeping such costs three more."""
    if INTERPRETED:
        return tl.exp(x)
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * 1.4426950408889634], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def damping(
    decays, rows, columns, ROW_RANKS: tl.constexpr, COLUMN_RANKS: tl.constexpr,
    LENGTH: tl.constexpr, KEYS_ARE_ROWS: tl.constexpr, TRAPEZOID: tl.constexpr,
):  # fmt: skip
    """M = exp(c_i - c_j) of queries i and keys j, which is to be multiplied by 0 where i comes before j.

    It is held below infinity for that. With TRAPEZOID it is times `scale` of j, and `same` of j within one step.
    """
    coarse, fine = load_steps(decays, rows, ROW_RANKS, LENGTH), load_steps(decays + LENGTH, rows, ROW_RANKS, LENGTH)
    coarse_c = load_steps(decays, columns, COLUMN_RANKS, LENGTH)
    fine_c = load_steps(decays + LENGTH, columns, COLUMN_RANKS, LENGTH)
    if KEYS_ARE_ROWS:
        gap = (coarse_c[None, :] - coarse[:, None]) + (fine_c[None, :] - fine[:, None])
    else:
        gap = (coarse[:, None] - coarse_c[None, :]) + (fine[:, None] - fine_c[None, :])
    kept = exponential(tl.minimum(gap, 80.0))
    if TRAPEZOID:
        one_step = (rows // ROW_RANKS)[:, None] == (columns // COLUMN_RANKS)[None, :]
        if KEYS_ARE_ROWS:
            scale = load_steps(decays + 4 * LENGTH, rows, ROW_RANKS, LENGTH)[:, None]
            same = load_steps(decays + 5 * LENGTH, rows, ROW_RANKS, LENGTH)[:, None]
        else:
            scale = load_steps(decays + 4 * LENGTH, columns, COLUMN_RANKS, LENGTH)[None, :]
            same = load_steps(decays + 5 * LENGTH, columns, COLUMN_RANKS, LENGTH)[None, :]
        kept = tl.where(one_step, same, kept * scale)
    return kept


@triton.jit
def add_parts_kernel(parts, out, size, count: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of `count` arrays of one size that follow each other, always in the same order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(count):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < size)
