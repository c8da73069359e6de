# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Pieces of the SSD kernels: tiles of rows, and the decays between the steps of a chunk.

A row is a step and a rank in one, the rank fastest: `row // RANKS` is the step. A chunk has LENGTH steps; a tile has
room for at least LENGTH * RANKS rows, a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
    return tl.load(base + tl.minimum(rows // RANKS, LENGTH - 1))


@triton.jit
def damping(coarse_i, fine_i, coarse_j, fine_j):
    """exp(c_i - c_j), which is to be multiplied by 0 where step i comes before j; held below infinity for that."""
    gap = (coarse_i[:, None] - coarse_j[None, :]) + (fine_i[:, None] - fine_j[None, :])
    return tl.exp(tl.minimum(gap, 80.0))


@triton.jit
def decays_kernel(
    da, decays, d_batch, d_step, d_head, steps, heads, chunks, LENGTH: tl.constexpr, ROWS: tl.constexpr,
    HEADS: tl.constexpr,
):  # fmt: skip
    """Running sums c of the decays of a chunk in two parts, exp(c) and exp(c_end - c), as (b, h, chunk, 4, LENGTH).

    The coarse part of a decay is rounded down to a multiple of 1/64, and sums of these are exact in float32; the rests
    stay below 1/64. So the difference of two running sums keeps the small decays that follow a large one. Decays are
    held between -2000 and 2000: beyond, exp is 0 or infinite anyway.
    """
    chunk, batch = tl.program_id(0) % chunks, (tl.program_id(0) // chunks).to(tl.int64)
    step, head = tl.arange(0, ROWS), tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    there = (step < LENGTH) & (chunk * LENGTH + step < steps)
    at = da + batch * d_batch + (chunk * LENGTH + step)[:, None] * d_step + head[None, :] * d_head
    decay = tl.load(at, mask=there[:, None] & (head < heads)[None, :], other=0.0).to(tl.float32)
    decay = tl.minimum(tl.maximum(decay, -2000.0), 2000.0)
    rough = tl.floor(decay * 64.0) * 0.015625
    coarse, fine = tl.cumsum(rough, 0), tl.cumsum(decay - rough, 0)
    rest = (tl.sum(rough, 0)[None, :] - coarse) + (tl.sum(decay - rough, 0)[None, :] - fine)
    to = decays + ((batch * heads + head)[None, :] * chunks + chunk) * (4 * LENGTH) + step[:, None]
    inside = (step < LENGTH)[:, None] & (head < heads)[None, :]
    tl.store(to, coarse, mask=inside)
    tl.store(to + LENGTH, fine, mask=inside)
    tl.store(to + 2 * LENGTH, tl.exp(coarse + fine), mask=inside)
    tl.store(to + 3 * LENGTH, tl.exp(rest), mask=inside)


@triton.jit
def decay_gradients_kernel(
    inner_i, inner_j, decays, both, dda, everything, steps, heads, chunks,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """dda_l = sum over k >= l in the chunk of dc_k, plus <G, H_next> = exp(c_end) <G, H> + sum of <f v, B G'>.

    All come in parts: one for each block of the state's channels, and inner products also from within the chunk.
    """
    sequence, chunk = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    batch, head = sequence // heads, sequence % heads
    step = tl.arange(0, ROWS)
    there = (step < LENGTH) & (chunk * LENGTH + step < steps)
    place = (sequence * chunks + chunk) * LENGTH + step
    dc = tl.zeros((ROWS,), tl.float32)
    handed_on = tl.zeros((ROWS,), tl.float32)
    ending = tl.zeros((), tl.float32)
    for block in range(BLOCKS + 1):
        for rank in range(QUERIES):
            dc += tl.load(inner_i + (block * everything * LENGTH + place) * QUERIES + rank, mask=there, other=0.0)
        for rank in range(RANKS):
            inner = tl.load(inner_j + (block * everything * LENGTH + place) * RANKS + rank, mask=there, other=0.0)
            dc -= inner
            handed_on += tl.where(block < BLOCKS, inner, 0.0)
        if block < BLOCKS:
            ending += tl.load(both + block * everything + sequence * chunks + chunk)
    ending *= tl.load(decays + (sequence * chunks + chunk) * (4 * LENGTH) + 3 * LENGTH - 1)
    found = tl.cumsum(dc, 0, reverse=True) + (ending + tl.sum(handed_on, 0))
    to = dda + (batch * steps + chunk * LENGTH + step) * heads + head
    tl.store(to, found.to(dda.dtype.element_ty), mask=there)


@triton.jit
def add_parts_kernel(parts, out, size, count: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of `count` arrays of one size that follow each other, always in the same order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(count):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < size)
