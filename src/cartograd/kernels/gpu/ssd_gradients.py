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

Several programs share a chunk, because one alone has too few registers: the products with H, those with G (both for a
block of the state's channels), what stays within the chunk, and dv. They run side by side and read the same tiles, so
that memory is read once. A head ALONE in its group needs no sum over heads: its programs find dS again for themselves.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_tiles import damping, load_rows, load_state, load_steps, store_rows


@triton.jit
def gradients_kernel(
    v, decays, B, C, dY, states, adjoints, dv, dB, dC, inner_i, inner_j, inner_same,
    v_batch, v_row, v_head, b_batch, b_row, b_head, c_batch, c_row, c_head, g_batch, g_row, g_head,
    batches, steps, heads, chunks, groups, span, splits,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    ALONE: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk and `span` heads of a group, one of the parts; dB and dC of these heads are summed here."""
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    role, program = tl.program_id(0) % (2 * BLOCKS + 2), tl.program_id(0) // (2 * BLOCKS + 2)
    chunk, batch = (program % chunks).to(tl.int64), (program // chunks).to(tl.int64)
    batches += tl.zeros((), tl.int64)
    group, split = tl.program_id(1) // splits, tl.program_id(1) % splits
    present = tl.minimum(LENGTH, steps - chunk * LENGTH)
    v += batch * v_batch + chunk * (LENGTH * RANKS) * v_row
    dY += batch * g_batch + chunk * (LENGTH * QUERIES) * g_row
    B += batch * b_batch + group * b_head + chunk * (LENGTH * RANKS) * b_row
    C += batch * c_batch + group * c_head + chunk * (LENGTH * QUERIES) * c_row
    first = (group * splits + split) * span
    part = (split * batches + batch) * steps + chunk * LENGTH
    dB += (part * RANKS * groups + group) * R
    dC += (part * QUERIES * groups + group) * R
    place = (batch * heads + first) * chunks + chunk
    everything = batches * heads * chunks
    if role < BLOCKS:
        state_products(
            dY, g_row, g_head, v, v_row, v_head, C, c_row, B, b_row, states, decays,
            inner_i + role * everything * (LENGTH * QUERIES), dC, groups * R,
            present, role, chunks, place, first, span,
            QUERIES, RANKS, LENGTH, P, R, ROWS_I, ROWS_J, BLOCK_P, BLOCK_R, True, ALONE, PLANES, PRECISION,
        )  # fmt: skip
    elif role < 2 * BLOCKS:
        block = role - BLOCKS
        state_products(
            v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, adjoints, decays,
            inner_j, dB, groups * R,
            present, block, chunks, place, first, span,
            RANKS, QUERIES, LENGTH, P, R, ROWS_J, ROWS_I, BLOCK_P, BLOCK_R, False, ALONE, PLANES, PRECISION,
        )  # fmt: skip
    elif role == 2 * BLOCKS:
        within_chunk(
            v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, decays,
            inner_i + BLOCKS * everything * (LENGTH * QUERIES), inner_same,
            dB + splits * batches * steps * RANKS * groups * R, dC + splits * batches * steps * QUERIES * groups * R,
            groups * R, present, chunks, place, first, span, states.dtype.element_ty,
            RANKS, QUERIES, LENGTH, P, R, ROWS_I, ROWS_J, BLOCK_P, BLOCK_R, ALONE, PLANES, PRECISION,
        )  # fmt: skip
    else:
        value_gradients(
            v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, adjoints, decays, inner_j,
            dv + (batch * steps + chunk * LENGTH) * RANKS * heads * P, heads * P, present, chunks, place, first, span,
            RANKS, QUERIES, LENGTH, P, R, ROWS_I, ROWS_J, BLOCK_P, BLOCK_R, PLANES, PRECISION,
        )  # fmt: skip


@triton.jit
def state_products(
    values, row_stride, head_stride, others, other_row, other_head, keys, key_row, other_keys, other_key_row,
    tiles, decays, inner, out, out_row, present, block_r, chunks, place, first, span,
    RANKS: tl.constexpr, OTHERS: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS: tl.constexpr, ROWS_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    QUERIES: tl.constexpr, ALONE: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum over heads of (e dY) H, and <e dY, C H'> of each row; or of (f v) G alone.

    For a head alone, dS B or dS' C is added: then `out` is the gradient of queries or keys.
    """
    operand = tiles.dtype.element_ty
    rows, r, limit = tl.arange(0, ROWS), block_r * BLOCK_R + tl.arange(0, BLOCK_R), present * RANKS
    found = tl.zeros((ROWS, BLOCK_R), tl.float32)
    if ALONE:
        dscores = score_gradients(
            values + first * head_stride, row_stride, others + first * other_head, other_row, decays, present, place,
            RANKS, OTHERS, LENGTH, P, ROWS, ROWS_O, BLOCK_P, QUERIES, PLANES, operand, PRECISION,
        )  # fmt: skip
        k = load_rows(other_keys, tl.arange(0, ROWS_O), other_key_row, present * OTHERS, r, R).to(operand)
        found = tl.dot(dscores, k, found, input_precision=PRECISION)
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
def score_gradients(
    values, row_stride, others, other_row, decays, present, place,
    RANKS: tl.constexpr, OTHERS: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr,
    ROWS: tl.constexpr, ROWS_O: tl.constexpr, BLOCK_P: tl.constexpr,
    QUERIES: tl.constexpr, PLANES: tl.constexpr, OPERAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dS = (dY v') * M of one head, for queries as rows; its transpose for keys as rows."""
    rows, rows_o = tl.arange(0, ROWS), tl.arange(0, ROWS_O)
    seen = tl.zeros((ROWS, ROWS_O), tl.float32)
    for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
        p = block * BLOCK_P + tl.arange(0, BLOCK_P)
        x = load_rows(values, rows, row_stride, present * RANKS, p, P).to(OPERAND)
        o = load_rows(others, rows_o, other_row, present * OTHERS, p, P).to(OPERAND)
        seen = tl.dot(x, tl.trans(o), seen, input_precision=PRECISION)
    kept = damping(decays + place * (PLANES * LENGTH), rows, rows_o, RANKS, OTHERS, LENGTH, not QUERIES, PLANES == 6)
    step, step_o = (rows // RANKS)[:, None], (rows_o // OTHERS)[None, :]
    seen = tl.where(step >= step_o if QUERIES else step <= step_o, seen * kept, 0.0)
    return seen.to(OPERAND)


@triton.jit
def within_chunk(
    v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, decays, inner_i, inner_same, dB, dC,
    out_row, present, chunks, place, first, span, OPERAND: tl.constexpr,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    ALONE: tl.constexpr, PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes rowsum X, and dS B and dS' C of the sum over heads.

    Queries are rows here: sums over keys stay within a few threads.
    """
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    rows_i, rows_j, r = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J), tl.arange(0, BLOCK_R)
    limit_i, limit_j = present * QUERIES, present * RANKS
    step_i, step_j = (rows_i // QUERIES)[:, None], (rows_j // RANKS)[None, :]
    scores = score_tile(
        C, c_row, B, b_row, present, OPERAND, QUERIES, RANKS, R, ROWS_I, ROWS_J, BLOCK_R, True, PRECISION
    ).to(OPERAND)
    dscores = tl.zeros((ROWS_I, ROWS_J), tl.float32)
    for head in range(first, first + span):
        seen = tl.zeros((ROWS_I, ROWS_J), tl.float32)
        for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
            p = block * BLOCK_P + tl.arange(0, BLOCK_P)
            g = load_rows(dY + head * g_head, rows_i, g_row, limit_i, p, P).to(OPERAND)
            x = load_rows(v + head * v_head, rows_j, v_row, limit_j, p, P).to(OPERAND)
            seen = tl.dot(g, tl.trans(x), seen, input_precision=PRECISION)
        seen *= damping(decays + place * (PLANES * LENGTH), rows_i, rows_j, QUERIES, RANKS, LENGTH, False, PLANES == 6)
        if not ALONE:
            dscores += seen
        seen *= scores.to(tl.float32)
        here = place * (LENGTH * QUERIES) + rows_i
        tl.store(inner_i + here, tl.sum(seen, 1), mask=rows_i < limit_i)
        if PLANES == 6:
            tl.store(inner_same + here, tl.sum(tl.where(step_i == step_j, seen, 0.0), 1), mask=rows_i < limit_i)
        place += chunks
    if not ALONE:
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
    v, v_row, v_head, dY, g_row, g_head, B, b_row, C, c_row, adjoints, decays, inner,
    dv, dv_row, present, chunks, place, first, span,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS_I: tl.constexpr, ROWS_J: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes dv of each head, and <v, dv> of each row. Keys are rows here."""
    operand = adjoints.dtype.element_ty
    BLOCKS: tl.constexpr = (R + BLOCK_R - 1) // BLOCK_R
    rows_i, rows_j, r = tl.arange(0, ROWS_I), tl.arange(0, ROWS_J), tl.arange(0, BLOCK_R)
    limit_i, limit_j = present * QUERIES, present * RANKS
    scores = score_tile(
        B, b_row, C, c_row, present, operand, RANKS, QUERIES, R, ROWS_J, ROWS_I, BLOCK_R, False, PRECISION
    )
    b = load_rows(B, rows_j, b_row, limit_j, r, R).to(operand)
    for head in range(first, first + span):
        at = decays + place * (PLANES * LENGTH)
        to_end = load_steps(at + 3 * LENGTH, rows_j, RANKS, LENGTH)
        weights = (scores * damping(at, rows_j, rows_i, RANKS, QUERIES, LENGTH, True, PLANES == 6)).to(operand)
        products = tl.zeros((ROWS_J,), tl.float32)
        for block in tl.static_range((P + BLOCK_P - 1) // BLOCK_P):
            p = block * BLOCK_P + tl.arange(0, BLOCK_P)
            x = load_rows(v + head * v_head, rows_j, v_row, limit_j, p, P).to(tl.float32)
            g = load_rows(dY + head * g_head, rows_i, g_row, limit_i, p, P).to(operand)
            dx = tl.zeros((ROWS_J, BLOCK_P), tl.float32)
            for part in tl.static_range(BLOCKS):
                if BLOCKS > 1:
                    b = load_rows(B, rows_j, b_row, limit_j, part * BLOCK_R + r, R).to(operand)
                adjoint = load_state(adjoints + place * (P * R), p, part * BLOCK_R + r, P, R)
                dx = tl.dot(b, tl.trans(adjoint), dx, input_precision=PRECISION)
            dx *= to_end[:, None]
            dx = tl.dot(weights, g, dx, input_precision=PRECISION)
            products += tl.sum(x * dx, 1)
            store_rows(dv + head * P, dx, rows_j, dv_row, limit_j, p, P)
        tl.store(inner + place * (LENGTH * RANKS) + rows_j, products, mask=rows_j < limit_j)
        place += chunks


@triton.jit
def score_tile(
    keys, key_row, others, other_row, present, OPERAND: tl.constexpr,
    RANKS: tl.constexpr, OTHERS: tl.constexpr, R: tl.constexpr,
    ROWS: tl.constexpr, ROWS_O: tl.constexpr, BLOCK_R: tl.constexpr, QUERIES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S of a chunk where `keys` are QUERIES, otherwise S'; 0 where a key comes after the query."""
    rows, rows_o, r = tl.arange(0, ROWS), tl.arange(0, ROWS_O), tl.arange(0, BLOCK_R)
    scores = tl.zeros((ROWS, ROWS_O), tl.float32)
    for block in tl.static_range((R + BLOCK_R - 1) // BLOCK_R):
        k = load_rows(keys, rows, key_row, present * RANKS, block * BLOCK_R + r, R).to(OPERAND)
        o = load_rows(others, rows_o, other_row, present * OTHERS, block * BLOCK_R + r, R).to(OPERAND)
        scores = tl.dot(k, tl.trans(o), scores, input_precision=PRECISION)
    step, step_o = (rows // RANKS)[:, None], (rows_o // OTHERS)[None, :]
    return tl.where(step >= step_o if QUERIES else step <= step_o, scores, 0.0)
