# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""The parallel part of the SSD scan forwards: with S = C B', M the decays of a chunk and H the state before it,

y = (S * M) v + exp(c) C H'.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_tiles import damping, load_rows, load_state, load_steps, store_rows
from cartograd.kernels.gpu.ssd_turned import cosines, key_tile, kind_of


@triton.jit
def outputs_kernel(
    v, decays, B, C, b_bias, c_bias, theta, pairs, states, y,
    v_batch, v_row, v_head, b_batch, b_row, b_head, c_batch, c_row, c_head,
    steps, heads, chunks, groups, span, splits,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    TURNS: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk and `span` heads of a group, whose scores S are computed once; one head if it turns its keys."""
    chunk, batch = (tl.program_id(0) % chunks).to(tl.int64), (tl.program_id(0) // chunks).to(tl.int64)
    group, split = tl.program_id(1) // splits, tl.program_id(1) % splits
    p = tl.program_id(2) * BLOCK_P + tl.arange(0, BLOCK_P)
    first = (group * splits + split) * span
    rows_i, rows_j = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J)
    later = (rows_i // QUERIES)[:, None] >= (rows_j // RANKS)[None, :]
    present = tl.minimum(LENGTH, steps - chunk * LENGTH)
    limit_i, limit_j = present * QUERIES, present * RANKS
    v += batch * v_batch + chunk * (LENGTH * RANKS) * v_row
    y += (batch * steps + chunk * LENGTH) * QUERIES * heads * P
    B += batch * b_batch + group * b_head + chunk * (LENGTH * RANKS) * b_row
    C += batch * c_batch + group * c_head + chunk * (LENGTH * QUERIES) * c_row
    operand = states.dtype.element_ty
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    b_bias += first * (RANKS * R)
    c_bias += first * (QUERIES * R)
    theta += ((batch * steps + chunk * LENGTH) * heads + first) * pairs
    scores = tl.zeros((ROWS_I, ROWS_J), tl.float32)
    read = tl.zeros((ROWS_I, BLOCK_P), tl.float32)
    for block in tl.static_range(BLOCKS):
        start = block * BLOCK_R
        cos, sin = cosines(
            rows_j, limit_j, start, theta, heads * pairs, pairs,
            RANKS, BLOCK_R, kind_of(block * BLOCK_R, TURNS), operand,
        )  # fmt: skip
        b = key_tile(
            B, rows_j, b_row, limit_j, start, b_bias, cos, sin,
            RANKS, R, BLOCK_R, kind_of(block * BLOCK_R, TURNS), operand,
        )  # fmt: skip
        c = key_tile(
            C, rows_i, c_row, limit_i, start, c_bias, cos, sin,
            QUERIES, R, BLOCK_R, kind_of(block * BLOCK_R, TURNS), operand,
        )  # fmt: skip
        scores = tl.dot(c, tl.trans(b), scores, input_precision=PRECISION)
        if TURNS >= 0:
            place = (batch * heads + first) * chunks + chunk
            state = load_state(states + place * (P * R), p, start + tl.arange(0, BLOCK_R), P, R)
            read = tl.dot(c, tl.trans(state), read, input_precision=PRECISION)
    scores = tl.where(later, scores, 0.0)
    for head in range(first, first + span):
        place = (batch * heads + head) * chunks + chunk
        x = load_rows(v + head * v_head, rows_j, v_row, limit_j, p, P).to(operand)
        at = decays + place * (PLANES * LENGTH)
        from_start = load_steps(at + 2 * LENGTH, rows_i, QUERIES, LENGTH)
        weights = (scores * damping(at, rows_i, rows_j, QUERIES, RANKS, LENGTH, False, PLANES == 6)).to(operand)
        if TURNS < 0:
            read = tl.zeros((ROWS_I, BLOCK_P), tl.float32)
            for block in tl.static_range(BLOCKS):
                r = block * BLOCK_R + tl.arange(0, BLOCK_R)
                if BLOCKS > 1:
                    c = load_rows(C, rows_i, c_row, limit_i, r, R).to(operand)
                state = load_state(states + place * (P * R), p, r, P, R)
                read = tl.dot(c, tl.trans(state), read, input_precision=PRECISION)
        read *= from_start[:, None]
        read = tl.dot(weights, x, read, input_precision=PRECISION)
        store_rows(y + head * P, read, rows_i, heads * P, limit_i, p, P)
