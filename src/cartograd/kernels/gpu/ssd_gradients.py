# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""The parallel part of the SSD scan backwards: all gradients of one chunk but those of the states.

With S = C B', M the decays, e = exp(c), f = exp(c_end - c), H the state before the chunk, G the gradient of the one
after it and dY that of y,

    dS = sum over heads of (dY v') * M,       dC = dS B + sum of (e dY) H,      dB = dS' C + sum of (f v) G,
    dv = (S * M)' dY + f (B G'),

and for the decays, with X = S * M * (dY v') of one head, summed over ranks,

    dc = rowsum X + <e dY, C H'> - <v, dv>,        dda_l = sum over k >= l of dc_k, plus <G, H_next>,

which `decay_gradients_kernel` makes of the inner products that are written here, from sums in float32.

With the trapezoidal rule M is times `scale`, or is `same` within a step, and f is times `scale`: all else stays.

Several programs share a chunk, because one alone has too few registers. They run side by side and read the same tiles,
so that memory is read once. Heads that share keys: the products with H, those with G (both for a block of the state's
channels), what stays within the chunk, and dv. Heads by themselves, EACH, because they have keys of their own or turn
them in their own way: dC and dB (of a block of channels), and dv.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_chunk_gradients import value_gradients, within_chunk
from cartograd.kernels.gpu.ssd_key_gradients import head_by_head, through_states
from cartograd.kernels.gpu.ssd_turned import TURNED, kind_of


@triton.jit
def gradients_kernel(
    v, decays, B, C, dY, states, adjoints, dv, dB, dC, inner_i, inner_j, inner_same,
    b_bias, c_bias, theta, dtheta, db_bias, dc_bias, pairs,
    v_batch, v_row, v_head, b_batch, b_row, b_head, c_batch, c_row, c_head, g_batch, g_row, g_head,
    batches, steps, heads, chunks, groups, span, splits,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, STEPS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    EACH: tl.constexpr, TURNS: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk and `span` heads of a group, one of the parts; dB and dC of these heads are summed here."""
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    PARTS: tl.constexpr = BLOCKS + 1 if EACH else 2 * BLOCKS + 2
    role, program = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    chunk, batch, block = (program % chunks).to(tl.int64), (program // chunks).to(tl.int64), role % BLOCKS
    batches += tl.zeros((), tl.int64)
    group, split = tl.program_id(1) // splits, tl.program_id(1) % splits
    present, time = tl.minimum(LENGTH, steps - chunk * LENGTH), batch * steps + chunk * LENGTH
    v += batch * v_batch + chunk * (LENGTH * RANKS) * v_row
    dY += batch * g_batch + chunk * (LENGTH * QUERIES) * g_row
    B += batch * b_batch + group * b_head + chunk * (LENGTH * RANKS) * b_row
    C += batch * c_batch + group * c_head + chunk * (LENGTH * QUERIES) * c_row
    dv, theta, dtheta = dv + time * RANKS * heads * P, theta + time * heads * pairs, dtheta + time * heads * pairs
    first, part, everything = (group * splits + split) * span, split * batches * steps + time, batches * heads * chunks
    dB, dC = dB + (part * RANKS * groups + group) * R, dC + (part * QUERIES * groups + group) * R
    place = (batch * heads + first) * chunks + chunk
    inner_b, inner_c = inner_j + block * everything * LENGTH * RANKS, inner_i + block * everything * LENGTH * QUERIES
    if EACH and role < BLOCKS:
        db_bias += program.to(tl.int64) * (heads * RANKS * R)
        dc_bias += program.to(tl.int64) * (heads * QUERIES * R)
        if TURNS > 0 and block * BLOCK_R < TURNS:
            head_by_head(
                v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, states, adjoints, decays, inner_c, inner_b,
                dB, dC, groups * R, b_bias, c_bias, theta, heads * pairs, pairs, dtheta, db_bias, dc_bias,
                present, block * BLOCK_R, chunks, place, first, span,
                RANKS, QUERIES, LENGTH, P, R, ROWS_I, ROWS_J, STEPS, BLOCK_P, BLOCK_R, TURNED, PLANES, PRECISION,
            )  # fmt: skip
        else:
            KIND: tl.constexpr = kind_of(TURNS, TURNS)
            head_by_head(
                v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, states, adjoints, decays, inner_c, inner_b,
                dB, dC, groups * R, b_bias, c_bias, theta, heads * pairs, pairs, dtheta, db_bias, dc_bias,
                present, block * BLOCK_R, chunks, place, first, span,
                RANKS, QUERIES, LENGTH, P, R, ROWS_I, ROWS_J, STEPS, BLOCK_P, BLOCK_R, KIND, PLANES, PRECISION,
            )  # fmt: skip
    elif role == PARTS - 1:
        value_gradients(
            v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, adjoints, decays, inner_j, inner_same,
            b_bias, c_bias, theta, heads * pairs, pairs, dv, heads * P, present, chunks, place, first, span,
            RANKS, QUERIES, LENGTH, P, R, ROWS_I, ROWS_J, BLOCK_P, BLOCK_R, EACH, TURNS, PLANES, PRECISION,
        )  # fmt: skip
    elif role < BLOCKS:
        through_states(
            dY, g_row, g_head, C, c_row, states, decays, inner_c, dC, groups * R,
            present, block, chunks, place, first, span,
            QUERIES, LENGTH, P, R, ROWS_I, BLOCK_P, BLOCK_R, True, PLANES, PRECISION,
        )  # fmt: skip
    elif role < 2 * BLOCKS:
        through_states(
            v, v_row, v_head, B, b_row, adjoints, decays, inner_b, dB, groups * R,
            present, block, chunks, place, first, span,
            RANKS, LENGTH, P, R, ROWS_J, BLOCK_P, BLOCK_R, False, PLANES, PRECISION,
        )  # fmt: skip
    else:
        within_chunk(
            v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, decays,
            inner_i + BLOCKS * everything * (LENGTH * QUERIES), inner_same,
            dB + splits * batches * steps * RANKS * groups * R, dC + splits * batches * steps * QUERIES * groups * R,
            groups * R, present, chunks, place, first, span, states.dtype.element_ty,
            RANKS, QUERIES, LENGTH, P, R, ROWS_I, ROWS_J, BLOCK_P, BLOCK_R, PLANES, PRECISION,
        )  # fmt: skip
