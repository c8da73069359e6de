"""The SSD scan on a GPU: which inputs the kernels take, how they are cut into tiles, and the order of launches.

    forward:    states before every chunk (serial, `ssd_states`), then outputs (parallel, `ssd_outputs`)
    backward:   the same states again, their gradients from the end to the start, then all else (`ssd_gradients`)

Nothing is kept from the forward to the backward pass. The op's own chunks do not matter to its values: the kernels cut
the sequence into chunks whose steps and ranks fill a tile of 64 rows, or 32 in float32.

States and decays are float32. Products take bfloat16 operands where values, keys and queries all are bfloat16; of
float32 they are three tf32 products, as exact as float32 to six digits; float16 goes through tf32, which has its digits
and a range that states cannot leave.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from cartograd.kernels.gpu.ssd_gradients import gradients_kernel
from cartograd.kernels.gpu.ssd_outputs import outputs_kernel
from cartograd.kernels.gpu.ssd_states import states_kernel
from cartograd.kernels.gpu.ssd_tiles import add_parts_kernel, decay_gradients_kernel, decays_kernel

PROGRAMS = 256
"""Heads of a group are shared among several programs until there are this many, about two a multiprocessor."""


class Plan(NamedTuple):
    """Sizes of one call: steps of a chunk, rows of tiles of queries and keys, blocks of channels, kind of products."""

    length: int
    rows_i: int
    rows_j: int
    block_p: int
    block_r: int
    operand: torch.dtype
    precision: str

    def chunks(self, steps: int) -> int:
        """How many chunks a sequence has."""
        return -(-steps // self.length)


class Launch(NamedTuple):
    """How a kernel is compiled: warps, stages of its pipeline of loads, and the most registers of a thread."""

    num_warps: int
    num_stages: int
    maxnreg: int | None = None


def planned(v: Tensor, B: Tensor, C: Tensor) -> Plan:
    """Sizes for these inputs."""
    kinds = {v.dtype, B.dtype, C.dtype}
    narrow = kinds == {torch.bfloat16}
    ranks, queries = v.shape[3], C.shape[3]
    rows = max(64, ranks, queries)
    length = rows // max(ranks, queries)
    operand = torch.bfloat16 if narrow else torch.float32
    precision = "ieee" if narrow else "tf32x3" if torch.float32 in kinds else "tf32"
    blocks = min(_tile(v.shape[5]), 64), min(_tile(B.shape[5]), 128 if narrow else 64)
    return Plan(length, _tile(length * queries), _tile(length * ranks), *blocks, operand, precision)


def _tile(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


def as_rows(tensor: Tensor) -> Tensor:
    """(b, n, l, m, h, p) as (b, rows, h, p), a view wherever one will do."""
    rows = tensor.flatten(1, 3)
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def forward(v: Tensor, da: Tensor, B: Tensor, C: Tensor, initial_state: Tensor | None) -> tuple[Tensor, Tensor]:
    """y and the last state, in the shapes of `cartograd.double_ssd`."""
    plan = planned(v, B, C)
    values, keys, queries = as_rows(v), as_rows(B), as_rows(C)
    decays = decayed(plan, da)
    states, last = swept(plan, values, keys, decays, da, initial_state, v.shape[3], backwards=False)
    y = v.new_empty(*v.shape[:3], C.shape[3], *v.shape[4:])
    batch, steps, heads = da.flatten(1, 2).shape
    chunks, groups = plan.chunks(steps), keys.shape[2]
    splits = split_heads(batch * chunks * groups, heads // groups)
    outputs_kernel[(batch * chunks, groups * splits, triton.cdiv(v.shape[5], plan.block_p))](
        values, decays, keys, queries, states, y,
        *values.stride()[:3], *keys.stride()[:3], *queries.stride()[:3],
        steps, heads, chunks, groups, heads // groups // splits, splits,
        v.shape[3], C.shape[3], plan.length, v.shape[5], B.shape[5],
        plan.rows_i, plan.rows_j, plan.block_p, plan.block_r, plan.precision,
        **output_launch(plan)._asdict(),
    )  # fmt: skip
    return y, last


def backward(
    dy: Tensor, dlast: Tensor, v: Tensor, da: Tensor, B: Tensor, C: Tensor, initial_state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of v, da, B, C and of the first state (float32)."""
    plan = planned(v, B, C)
    values, keys, queries, seeds = as_rows(v), as_rows(B), as_rows(C), as_rows(dy)
    decays = decayed(plan, da)
    states, _ = swept(plan, values, keys, decays, da, initial_state, v.shape[3], backwards=False)
    adjoints, dfirst = swept(plan, seeds, queries, decays, da, dlast, C.shape[3], backwards=True)
    batch, steps, heads = da.flatten(1, 2).shape
    chunks, groups = plan.chunks(steps), keys.shape[2]
    splits = split_heads(batch * chunks * groups, heads // groups)
    alone, blocks = heads == groups, triton.cdiv(B.shape[5], plan.block_r)
    dv, dda = (torch.empty_like(one, memory_format=torch.contiguous_format) for one in (v, da))
    dB, dC = (_parts(one, 0 if alone else 2 * splits) for one in (B, C))
    inner_i, inner_j = (decays.new_empty((blocks + 1) * decays.numel() // 4 * one.shape[3]) for one in (C, B))
    both = decays.new_empty(blocks * batch * heads * chunks)
    gradients_kernel[(batch * chunks * (2 * blocks + 1), groups * splits)](
        values, decays, keys, queries, seeds, states, adjoints, dv, dB, dC, inner_i, inner_j, both,
        *values.stride()[:3], *keys.stride()[:3], *queries.stride()[:3], *seeds.stride()[:3],
        batch, steps, heads, chunks, groups, heads // groups // splits, splits,
        v.shape[3], C.shape[3], plan.length, v.shape[5], B.shape[5],
        plan.rows_i, plan.rows_j, gradient_block(plan), plan.block_r, alone, plan.precision,
        **gradient_launch(plan)._asdict(),
    )  # fmt: skip
    decay_gradients_kernel[(batch * heads * chunks,)](
        inner_i, inner_j, decays, both, dda, batch * heads * chunks, steps, heads, chunks,
        v.shape[3], C.shape[3], plan.length, triton.next_power_of_2(plan.length), blocks, num_warps=1,
    )  # fmt: skip
    return dv, dda, _summed(dB, B), _summed(dC, C), dfirst


def decayed(plan: Plan, da: Tensor) -> Tensor:
    """(b, h, chunks, 4, steps of a chunk): what `decays_kernel` finds."""
    given = da.flatten(1, 2)
    batch, steps, heads = given.shape
    chunks = plan.chunks(steps)
    decays = da.new_empty(batch, heads, chunks, 4, plan.length, dtype=torch.float32)
    decays_kernel[(batch * chunks, triton.cdiv(heads, 8))](
        given, decays, *given.stride(), steps, heads, chunks, plan.length, triton.next_power_of_2(plan.length), 8,
        num_warps=2,
    )  # fmt: skip
    return decays


def swept(
    plan: Plan, rows: Tensor, keys: Tensor, decays: Tensor, da: Tensor, first: Tensor | None, ranks: int, backwards: bool
) -> tuple[Tensor, Tensor]:
    """The states before every chunk, (b, h, chunks, p, r), and the last one, (b, h, p, r); or their gradients."""
    batch, heads, chunks = decays.shape[:3]
    p, r, groups = rows.shape[3], keys.shape[3], keys.shape[2]
    states = rows.new_empty(batch, heads, chunks, p, r, dtype=plan.operand)
    last = rows.new_empty(batch, heads, p, r, dtype=torch.float32)
    first = None if first is None else first.contiguous()
    block_p, block_r = state_tile(plan, p, r)
    states_kernel[(batch * heads, triton.cdiv(p, block_p), triton.cdiv(r, block_r))](
        rows, keys, decays, last if first is None else first, states, last,
        *rows.stride()[:3], *keys.stride()[:3], da.shape[1] * da.shape[2], heads, heads // groups, chunks,
        ranks, plan.length, p, r, plan.rows_i if backwards else plan.rows_j, block_p, block_r,
        backwards, first is not None, plan.precision,
        **state_launch(plan)._asdict(),
    )  # fmt: skip
    return states, last


def state_tile(plan: Plan, p: int, r: int) -> tuple[int, int]:
    """Measured."""
    return min(_tile(p), 64), min(_tile(r), 128 if plan.operand is torch.bfloat16 else 64)


def gradient_block(plan: Plan) -> int:
    """Channels of a value that a program of the backward works on at once."""
    return min(plan.block_p, 32)


def state_launch(plan: Plan) -> Launch:
    """Measured."""
    return Launch(4, 3 if plan.operand is torch.bfloat16 else 2)


def output_launch(plan: Plan) -> Launch:
    """Measured."""
    return Launch(4, 2 if plan.operand is torch.bfloat16 else 1)


def gradient_launch(plan: Plan) -> Launch:
    """Measured."""
    return Launch(4, 2 if plan.operand is torch.bfloat16 else 1)


def split_heads(programs: int, heads: int) -> int:
    """Into how many programs the heads of a group are split: a divisor of their number."""
    splits = 1
    while programs * splits < PROGRAMS and splits < heads:
        splits = next(count for count in range(splits + 1, heads + 1) if heads % count == 0)
    return splits


def _parts(keys: Tensor, count: int) -> Tensor:
    """Room for the gradient of keys or queries; or for `count` parts of it in float32."""
    return keys.new_empty(count, *keys.shape, dtype=torch.float32) if count else keys.new_empty(keys.shape)


def _summed(parts: Tensor, like: Tensor) -> Tensor:
    if parts.dim() == like.dim():
        return parts
    found, size = like.new_empty(like.shape), like.numel()
    add_parts_kernel[(triton.cdiv(size, 1024),)](parts, found, size, parts.shape[0], 1024)
    return found
