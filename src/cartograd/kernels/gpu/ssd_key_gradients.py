# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""The gradients of keys and of queries in one chunk: what comes through states, and for heads by themselves all of it.

With dS = (dY v') * M of one head,

    dC = dS B + (e dY) H,        dB = dS' C + (f v) G.

Inner products of a head's own gradients are what the decays need: <dC, C> = rowsum X + <e dY, C H'>, <dB, B> = <v, dv>.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_tiles import damping, load_rows, load_state, load_steps, store_rows
from cartograd.kernels.gpu.ssd_turned import TURNED, cosines, key_tile, turned_back


@triton.jit
def through_states(
    values, row_stride, head_stride, keys, key_row, tiles, decays, inner, out, out_row,
    present, block_r, chunks, place, first, span,
    RANKS: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    QUERIES: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum over the heads of a group of (e dY) H, and <e dY, C H'> of each row, of QUERIES; or of (f v) G alone."""
    operand = tiles.dtype.element_ty
    rows, r, limit = tl.arange(0, ROWS), block_r * BLOCK_R + tl.arange(0, BLOCK_R), present * RANKS
    found = tl.zeros((ROWS, BLOCK_R), tl.float32)
    if QUERIES:
        k = load_rows(keys, rows, key_row, limit, r, R).to(operand)
    for head in range(first, first + span):
        weight = load_steps(decays + (place * PLANES + (2 if QUERIES else 3)) * LENGTH, rows, RANKS, LENGTH)
        products = tl.zeros((ROWS,), tl.float32)
        for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
            p = block * BLOCK_P + tl.arange(0, BLOCK_P)
            x = load_rows(values + head * head_stride, rows, row_stride, limit, p, P)
            tile = load_state(tiles + place * (P * R), p, r, P, R)
            x = x.to(tl.float32) * weight[:, None]
            found = tl.dot(x.to(operand), tile, found, input_precision=PRECISION)
            if QUERIES:
                products += tl.sum(tl.dot(k, tl.trans(tile), input_precision=PRECISION) * x, 1)
        if QUERIES:
            tl.store(inner + place * (LENGTH * RANKS) + rows, products, mask=rows < limit)
        place += chunks
    store_rows(out, found, rows, out_row, limit, r, R)


@triton.jit
def head_by_head(
    v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, states, adjoints, decays,
    inner_i, inner_j, dB, dC, out_row,
    b_bias, c_bias, theta, theta_step, pairs, dtheta, db_bias, dc_bias, present, start, chunks, place, first, span,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, STEPS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    KIND: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Both gradients, of heads that have keys of their own or turn those of their group each in its own way.

    Writes also the inner product of each row with its gradient, for a block of the state's channels.
    """
    operand = states.dtype.element_ty
    rows_i, rows_j = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J)
    limit_i, limit_j, r = present * QUERIES, present * RANKS, start + tl.arange(0, BLOCK_R)
    found_c, found_b = tl.zeros((ROWS_I, BLOCK_R), tl.float32), tl.zeros((ROWS_J, BLOCK_R), tl.float32)
    for head in range(first, first + span):
        at, own_b, own_c = theta + head * pairs, b_bias + head * (RANKS * R), c_bias + head * (QUERIES * R)
        dscores = score_gradients(
            dY + head * g_head, g_row, v + head * v_head, v_row, decays, present, place,
            QUERIES, RANKS, LENGTH, P, ROWS_I, ROWS_J, BLOCK_P, PLANES, operand, PRECISION,
        )  # fmt: skip
        cos, sin = cosines(rows_j, limit_j, start, at, theta_step, pairs, RANKS, BLOCK_R, KIND, operand)
        g = times_state(
            dY + head * g_head, g_row, states, decays, present, place, r,
            QUERIES, LENGTH, P, R, ROWS_I, BLOCK_P, 2, PLANES, PRECISION,
        )  # fmt: skip
        b = key_tile(B, rows_j, b_row, limit_j, start, own_b, cos, sin, RANKS, R, BLOCK_R, KIND, operand)
        g = tl.dot(dscores, b, g, input_precision=PRECISION)
        g, products, turning = turned_back(
            g, C, rows_i, c_row, limit_i, start, own_c, cos, sin, dc_bias + head * (QUERIES * R),
            QUERIES, R, BLOCK_R, STEPS, KIND,
        )  # fmt: skip
        tl.store(inner_i + place * (LENGTH * QUERIES) + rows_i, products, mask=rows_i < limit_i)
        found_c += g
        g = times_state(
            v + head * v_head, v_row, adjoints, decays, present, place, r,
            RANKS, LENGTH, P, R, ROWS_J, BLOCK_P, 3, PLANES, PRECISION,
        )  # fmt: skip
        c = key_tile(C, rows_i, c_row, limit_i, start, own_c, cos, sin, QUERIES, R, BLOCK_R, KIND, operand)
        g = tl.dot(tl.trans(dscores), c, g, input_precision=PRECISION)
        g, products, more = turned_back(
            g, B, rows_j, b_row, limit_j, start, own_b, cos, sin, db_bias + head * (RANKS * R),
            RANKS, R, BLOCK_R, STEPS, KIND,
        )  # fmt: skip
        if KIND == TURNED:
            step, pair = tl.arange(0, STEPS), start // 2 + tl.arange(0, BLOCK_R // 2)
            there = (step < present)[:, None] & (pair < pairs)[None, :]
            tl.store(dtheta + head * pairs + step[:, None] * theta_step + pair[None, :], turning + more, mask=there)
        tl.store(inner_j + place * (LENGTH * RANKS) + rows_j, products, mask=rows_j < limit_j)
        found_b += g
        place += chunks
    store_rows(dC, found_c, rows_i, out_row, limit_i, r, R)
    store_rows(dB, found_b, rows_j, out_row, limit_j, r, R)


@triton.jit
def times_state(
    values, row_stride, tiles, decays, present, place, r,
    RANKS: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_P: tl.constexpr, PLANE: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(e dY) H or (f v) G of one head, for the channels r of the state."""
    rows = tl.arange(0, ROWS)
    weight = load_steps(decays + (place * PLANES + PLANE) * LENGTH, rows, RANKS, LENGTH)
    found = tl.zeros((ROWS, r.shape[0]), tl.float32)
    for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
        p = block * BLOCK_P + tl.arange(0, BLOCK_P)
        x = load_rows(values, rows, row_stride, present * RANKS, p, P).to(tl.float32) * weight[:, None]
        tile = load_state(tiles + place * (P * R), p, r, P, R)
        found = tl.dot(x.to(tile.dtype), tile, found, input_precision=PRECISION)
    return found


@triton.jit
def score_gradients(
    dY, g_row, v, v_row, decays, present, place,
    QUERIES: tl.constexpr, RANKS: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr,
    PLANES: tl.constexpr, OPERAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dS = (dY v') * M of one head."""
    rows_i, rows_j = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J)
    seen = tl.zeros((ROWS_I, ROWS_J), tl.float32)
    for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
        p = block * BLOCK_P + tl.arange(0, BLOCK_P)
        g = load_rows(dY, rows_i, g_row, present * QUERIES, p, P).to(OPERAND)
        x = load_rows(v, rows_j, v_row, present * RANKS, p, P).to(OPERAND)
        seen = tl.dot(g, tl.trans(x), seen, input_precision=PRECISION)
    seen *= damping(decays + place * (PLANES * LENGTH), rows_i, rows_j, QUERIES, RANKS, LENGTH, False, PLANES == 6)
    later = (rows_i // QUERIES)[:, None] >= (rows_j // RANKS)[None, :]
    return tl.where(later, seen, 0.0).to(OPERAND)
