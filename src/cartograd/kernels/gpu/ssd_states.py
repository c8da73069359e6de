# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""The serial part of the SSD scan: the state before every chunk, or, backwards, its gradient after every chunk.

With c the running sum of the decays in a chunk and c_end its last value (and v already times `scale`, where there is
one),

    forwards:    H <- exp(c_end) H + (exp(c_end - c) v)' B        (v, B: values and keys)
    backwards:   G <- exp(c_end) G + (exp(c) dY)' C               (dY, C: gradients of y and queries).

Elements of a state do not depend on each other: tiles of it are programs of their own.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_tiles import load_rows, load_steps
from cartograd.kernels.gpu.ssd_turned import cosines, key_tile, kind_of


@triton.jit
def states_kernel(
    values, keys, bias, theta, pairs, decays, first, states, last,
    v_batch, v_row, v_head, k_batch, k_row, k_head, steps, heads, per_group, chunks,
    RANKS: tl.constexpr, LENGTH: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_R: tl.constexpr,
    BACKWARDS: tl.constexpr, HAS_FIRST: tl.constexpr, TURNS: tl.constexpr,
    PLANES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of the state of one head, through all chunks; writes it before each chunk, and at the end."""
    sequence = tl.program_id(0).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    p = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    start = tl.program_id(2) * BLOCK_R
    r = start + tl.arange(0, BLOCK_R)
    rows = tl.arange(0, ROWS)
    values += batch * v_batch + head * v_head
    keys += batch * k_batch + (head // per_group) * k_head
    decays += sequence * chunks * (PLANES * LENGTH)
    within = p[:, None] * R + r[None, :]
    inside = (p < P)[:, None] & (r < R)[None, :]
    state = tl.zeros((BLOCK_P, BLOCK_R), tl.float32)
    if HAS_FIRST:
        state += tl.load(first + sequence * (P * R) + within, mask=inside, other=0.0).to(tl.float32)
    operand = states.dtype.element_ty
    PLANE: tl.constexpr = 2 if BACKWARDS else 3
    ahead = (chunks - 1 if BACKWARDS else 0) + tl.zeros((), tl.int64)
    weight = load_steps(decays + (ahead * PLANES + PLANE) * LENGTH, rows, RANKS, LENGTH)
    kept = tl.load(decays + (ahead * PLANES + 3) * LENGTH - 1)  # exp(c_end)
    for turn in range(chunks):
        chunk = (chunks - 1 - turn if BACKWARDS else turn) + tl.zeros((), tl.int64)
        limit = tl.minimum(LENGTH, steps - chunk * LENGTH) * RANKS
        tl.store(states + (sequence * chunks + chunk) * (P * R) + within, state.to(operand), mask=inside)
        x = load_rows(values + chunk * (LENGTH * RANKS) * v_row, rows, v_row, limit, p, P)
        turned_at = theta + ((batch * steps + chunk * LENGTH) * heads + head) * pairs
        cos, sin = cosines(
            rows, limit, start, turned_at, heads * pairs, pairs, RANKS, BLOCK_R, kind_of(0, TURNS), operand
        )
        b = key_tile(
            keys + chunk * (LENGTH * RANKS) * k_row, rows, k_row, limit, start, bias + head * (RANKS * R), cos, sin,
            RANKS, R, BLOCK_R, kind_of(0, TURNS), operand,
        )  # fmt: skip
        x = (x.to(tl.float32) * weight[:, None]).to(operand)
        ahead = (tl.maximum(chunk - 1, 0) if BACKWARDS else tl.minimum(chunk + 1, chunks - 1)) * PLANES
        weight = load_steps(decays + (ahead + PLANE) * LENGTH, rows, RANKS, LENGTH)  # of the next chunk, early
        kept_next = tl.load(decays + (ahead + 3) * LENGTH - 1)
        state = tl.dot(tl.trans(x), b, state * kept, input_precision=PRECISION)
        kept = kept_next
    tl.store(last + sequence * (P * R) + within, state, mask=inside)
