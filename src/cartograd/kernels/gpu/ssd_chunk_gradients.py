# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""What the gradients of one chunk need of its scores S = C B': those of values, and of the keys of a group.

With M the decays and dS = sum over heads of (dY v') * M, X = S * M * (dY v') of one head,

    dv = (S * M)' dY + f (B G'),        dB = dS' C, dC = dS B within the chunk,        rowsum X for the decays.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_tiles import damping, load_rows, load_state, load_steps, store_rows
from cartograd.kernels.gpu.ssd_turned import cosines, key_tile, kind_of


@triton.jit
def within_chunk(
    v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, decays, inner_i, inner_same, dB, dC,
    out_row, present, chunks, place, first, span, OPERAND: tl.constexpr,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes rowsum X, and dS B and dS' C of the sum over heads.

    Queries are rows here: sums over keys stay within a few threads.
    """
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    rows_i, rows_j, r = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J), tl.arange(0, BLOCK_R)
    limit_i, limit_j = present * QUERIES, present * RANKS
    step_i, step_j = (rows_i // QUERIES)[:, None], (rows_j // RANKS)[None, :]
    scores = score_tile(C, c_row, B, b_row, present, OPERAND, QUERIES, RANKS, R, ROWS_I, ROWS_J, BLOCK_R, PRECISION)
    scores = tl.where(step_i >= step_j, scores, 0.0).to(OPERAND)
    dscores = tl.zeros((ROWS_I, ROWS_J), tl.float32)
    for head in range(first, first + span):
        seen = tl.zeros((ROWS_I, ROWS_J), tl.float32)
        for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
            p = block * BLOCK_P + tl.arange(0, BLOCK_P)
            g = load_rows(dY + head * g_head, rows_i, g_row, limit_i, p, P).to(OPERAND)
            x = load_rows(v + head * v_head, rows_j, v_row, limit_j, p, P).to(OPERAND)
            seen = tl.dot(g, tl.trans(x), seen, input_precision=PRECISION)
        seen *= damping(decays + place * (PLANES * LENGTH), rows_i, rows_j, QUERIES, RANKS, LENGTH, False, PLANES == 6)
        dscores += seen
        seen *= scores.to(tl.float32)
        here = place * (LENGTH * QUERIES) + rows_i
        tl.store(inner_i + here, tl.sum(seen, 1), mask=rows_i < limit_i)
        if PLANES == 6:
            tl.store(inner_same + here, tl.sum(tl.where(step_i == step_j, seen, 0.0), 1), mask=rows_i < limit_i)
        place += chunks
    dscores = tl.where(step_i >= step_j, dscores, 0.0).to(OPERAND)
    for block in tl.static_range(BLOCKS):
        c = load_rows(C, rows_i, c_row, limit_i, block * BLOCK_R + r, R).to(OPERAND)
        db = tl.dot(tl.trans(dscores), c, input_precision=PRECISION)
        store_rows(dB, db, rows_j, out_row, limit_j, block * BLOCK_R + r, R)
    for block in tl.static_range(BLOCKS):
        b = load_rows(B, rows_j, b_row, limit_j, block * BLOCK_R + r, R).to(OPERAND)
        dc = tl.dot(dscores, b, input_precision=PRECISION)
        store_rows(dC, dc, rows_i, out_row, limit_i, block * BLOCK_R + r, R)


@triton.jit
def value_gradients(
    v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, adjoints, decays, inner, inner_same,
    b_bias, c_bias, theta, theta_step, pairs, dv, dv_row, present, chunks, place, first, span,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    EACH: tl.constexpr, TURNS: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes dv of each head, and <v, dv> of each row; of heads by themselves, EACH, the part within a step instead."""
    operand = adjoints.dtype.element_ty
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    rows_i, rows_j = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J)
    limit_i, limit_j = present * QUERIES, present * RANKS
    step_j, step_i = (rows_j // RANKS)[:, None], (rows_i // QUERIES)[None, :]
    if not EACH:
        scores = score_tile(B, b_row, C, c_row, present, operand, RANKS, QUERIES, R, ROWS_J, ROWS_I, BLOCK_R, PRECISION)
        scores = tl.where(step_j <= step_i, scores, 0.0)
        b = load_rows(B, rows_j, b_row, limit_j, tl.arange(0, BLOCK_R), R).to(operand)
    for head in range(first, first + span):
        at, own_b, own_c = theta + head * pairs, b_bias + head * (RANKS * R), c_bias + head * (QUERIES * R)
        planes = decays + place * (PLANES * LENGTH)
        to_end = load_steps(planes + 3 * LENGTH, rows_j, RANKS, LENGTH)
        kept = damping(planes, rows_j, rows_i, RANKS, QUERIES, LENGTH, True, PLANES == 6)
        if EACH:
            scores = tl.zeros((ROWS_J, ROWS_I), tl.float32)
        products = tl.zeros((ROWS_J,), tl.float32)
        for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
            p = block * BLOCK_P + tl.arange(0, BLOCK_P)
            x = load_rows(v + head * v_head, rows_j, v_row, limit_j, p, P)
            g = load_rows(dY + head * g_head, rows_i, g_row, limit_i, p, P).to(operand)
            dx = tl.zeros((ROWS_J, BLOCK_P), tl.float32)
            for part in tl.static_range(BLOCKS):
                start = part * BLOCK_R
                if EACH or BLOCKS > 1:
                    cos, sin = cosines(
                        rows_j, limit_j, start, at, theta_step, pairs,
                        RANKS, BLOCK_R, kind_of(part * BLOCK_R, TURNS), operand,
                    )  # fmt: skip
                    b = key_tile(
                        B, rows_j, b_row, limit_j, start, own_b, cos, sin,
                        RANKS, R, BLOCK_R, kind_of(part * BLOCK_R, TURNS), operand,
                    )  # fmt: skip
                if EACH and block == 0:
                    q = key_tile(
                        C, rows_i, c_row, limit_i, start, own_c, cos, sin,
                        QUERIES, R, BLOCK_R, kind_of(part * BLOCK_R, TURNS), operand,
                    )  # fmt: skip
                    scores = tl.dot(b, tl.trans(q), scores, input_precision=PRECISION)
                adjoint = load_state(adjoints + place * (P * R), p, start + tl.arange(0, BLOCK_R), P, R)
                dx = tl.dot(b, tl.trans(adjoint), dx, input_precision=PRECISION)
            weights = tl.where(step_j <= step_i, scores * kept, 0.0) if EACH else scores * kept
            dx = tl.dot(weights.to(operand), g, dx * to_end[:, None], input_precision=PRECISION)
            if not EACH:
                products += tl.sum(x.to(tl.float32) * dx, 1)
            elif PLANES == 6:
                seen = tl.dot(x.to(operand), tl.trans(g), input_precision=PRECISION)
                products += tl.sum(tl.where(step_j == step_i, seen * weights, 0.0), 1)
            store_rows(dv + head * P, dx, rows_j, dv_row, limit_j, p, P)
        here = place * (LENGTH * RANKS) + rows_j
        if not EACH:
            tl.store(inner + here, products, mask=rows_j < limit_j)
        elif PLANES == 6:
            tl.store(inner_same + here, products, mask=rows_j < limit_j)
        place += chunks


@triton.jit
def score_tile(
    keys, key_row, others, other_row, present, OPERAND: tl.constexpr, RANKS: tl.constexpr, OTHERS: tl.constexpr,
    R: tl.constexpr, ROWS: tl.constexpr, ROWS_O: tl.constexpr, BLOCK_R: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S of a chunk where `keys` are the queries, otherwise S'."""
    rows, rows_o, r = tl.arange(0, ROWS), tl.arange(0, ROWS_O), tl.arange(0, BLOCK_R)
    scores = tl.zeros((ROWS, ROWS_O), tl.float32)
    for block in tl.static_range((R + BLOCK_R - 1) // BLOCK_R):
        k = load_rows(keys, rows, key_row, present * RANKS, block * BLOCK_R + r, R).to(OPERAND)
        o = load_rows(others, rows_o, other_row, present * OTHERS, block * BLOCK_R + r, R).to(OPERAND)
        scores = tl.dot(k, tl.trans(o), scores, input_precision=PRECISION)
    return scores
