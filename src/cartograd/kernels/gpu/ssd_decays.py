# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""What the SSD kernels need of the decays of each chunk, and the gradients of the decays.

Of each head and chunk 4 rows of LENGTH numbers are kept, or 6 with the trapezoidal rule: the running sum c of the
decays in two parts, exp(c), exp(c_end - c) * scale, and then `scale` and `same` (1 without the rule).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def decays_kernel(
    da, scale, same, decays, d_batch, d_step, d_head, steps, heads, chunks,
    LENGTH: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """The rows of some heads in one chunk, (b, h, chunk, PLANES, LENGTH).

    The coarse part of a decay is rounded down to a multiple of 1/64, and sums of these are exact in float32; the rests
    stay below 1/64. So the difference of two running sums keeps the small decays that follow a large one. Decays are
    held between -2000 and 2000: beyond, exp is 0 or infinite anyway.
    """
    chunk, batch = tl.program_id(0) % chunks, (tl.program_id(0) // chunks).to(tl.int64)
    step, head = tl.arange(0, ROWS), tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    time = chunk * LENGTH + step
    there = ((step < LENGTH) & (time < steps))[:, None] & (head < heads)[None, :]
    at = da + batch * d_batch + time[:, None] * d_step + head[None, :] * d_head
    decay = tl.load(at, mask=there, other=0.0).to(tl.float32)
    decay = tl.minimum(tl.maximum(decay, -2000.0), 2000.0)
    rough = tl.floor(decay * 64.0) * 0.015625
    coarse, fine = tl.cumsum(rough, 0), tl.cumsum(decay - rough, 0)
    rest = (tl.sum(rough, 0)[None, :] - coarse) + (tl.sum(decay - rough, 0)[None, :] - fine)
    to_end = tl.exp(rest)
    to = decays + ((batch * heads + head)[None, :] * chunks + chunk) * (PLANES * LENGTH) + step[:, None]
    inside = (step < LENGTH)[:, None] & (head < heads)[None, :]
    if PLANES == 6:
        place = (batch * steps + time)[:, None] * heads + head[None, :]
        weight = tl.load(scale + place, mask=there, other=0.0)
        to_end *= weight
        tl.store(to + 4 * LENGTH, weight, mask=inside)
        tl.store(to + 5 * LENGTH, tl.load(same + place, mask=there, other=0.0), mask=inside)
    tl.store(to, coarse, mask=inside)
    tl.store(to + LENGTH, fine, mask=inside)
    tl.store(to + 2 * LENGTH, tl.exp(coarse + fine), mask=inside)
    tl.store(to + 3 * LENGTH, to_end, mask=inside)


@triton.jit
def decay_gradients_kernel(
    inner_i, inner_j, inner_same, decays, states, last_states, adjoints, dda, dscale, dsame, everything, steps, chunks,
    RANKS: tl.constexpr, QUERIES: tl.constexpr, LENGTH: tl.constexpr, SIZE: tl.constexpr,
    PARTS_I: tl.constexpr, PARTS_J: tl.constexpr, SAME_RANKS: tl.constexpr,
    ROWS: tl.constexpr, STRETCH: tl.constexpr, BLOCK: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """dda_l = sum over k >= l in the chunk of dc_k, plus <G, H_next>, for STRETCH chunks of one head.

    dc_k is the sum of a step's inner products, which come in parts: of blocks of the state's channels, and from within
    the chunk. <G, H_next> of a chunk has all dc of the next one more than that has; it is computed anew
    every STRETCH chunks, so that errors do not add up.

    Keys' inner products are what `scale` and `same` multiply: divided by them, they are their gradients.
    """
    stretches = (chunks + STRETCH - 1) // STRETCH
    sequence, stretch = (tl.program_id(0) // stretches).to(tl.int64), tl.program_id(0) % stretches
    chunk, step, element = stretch * STRETCH + tl.arange(0, STRETCH), tl.arange(0, ROWS), tl.arange(0, BLOCK)
    last = tl.minimum(stretch * STRETCH + STRETCH, chunks) - 1
    product = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, SIZE, BLOCK):
        here = start + element < SIZE
        at = (sequence * chunks + last) * SIZE + start + element
        if last + 1 < chunks:
            state = tl.load(states + at + SIZE, mask=here, other=0.0).to(tl.float32)
        else:
            state = tl.load(last_states + sequence * SIZE + start + element, mask=here, other=0.0)
        product += state * tl.load(adjoints + at, mask=here, other=0.0).to(tl.float32)
    time = chunk[:, None] * LENGTH + step[None, :]
    there = (step < LENGTH)[None, :] & (chunk < chunks)[:, None] & (time < steps)
    place = sequence * chunks * LENGTH + time
    dc = tl.zeros((STRETCH, ROWS), tl.float32)
    of_keys = tl.zeros((STRETCH, ROWS), tl.float32)
    for part in tl.static_range(PARTS_I):
        for rank in tl.static_range(QUERIES):
            dc += tl.load(inner_i + (part * everything * LENGTH + place) * QUERIES + rank, mask=there, other=0.0)
    for part in tl.static_range(PARTS_J):
        for rank in tl.static_range(RANKS):
            of_keys += tl.load(inner_j + (part * everything * LENGTH + place) * RANKS + rank, mask=there, other=0.0)
    dc -= of_keys
    ending = tl.sum(product, 0)
    later = tl.sum(tl.where(chunk[:, None] < chunk[None, :], tl.sum(dc, 1)[None, :], 0.0), 1)  # of later chunks here
    found = tl.cumsum(dc, 1, reverse=True) + (ending + later)[:, None]
    to = sequence * steps + time
    tl.store(dda + to, found.to(dda.dtype.element_ty), mask=there)
    if PLANES == 6:
        within = tl.zeros((STRETCH, ROWS), tl.float32)
        for rank in tl.static_range(SAME_RANKS):
            within += tl.load(inner_same + place * SAME_RANKS + rank, mask=there, other=0.0)
        at = decays + (sequence * chunks + chunk)[:, None] * (PLANES * LENGTH) + step[None, :]
        scale = tl.load(at + 4 * LENGTH, mask=there, other=0.0)
        same = tl.load(at + 5 * LENGTH, mask=there, other=0.0)
        tl.store(
            dscale + to, tl.where(scale == 0, 0.0, (of_keys - within) / tl.where(scale == 0, 1.0, scale)), mask=there
        )
        tl.store(dsame + to, tl.where(same == 0, 0.0, within / tl.where(same == 0, 1.0, same)), mask=there)
