"""The SSD scan on a GPU: the order of launches.

    forward:    states before every chunk (serial, `ssd_states`), then outputs (parallel, `ssd_outputs`)
    backward:   the same states again, their gradients from the end to the start, then all else (`ssd_gradients`)

Nothing is kept from the forward to the backward pass.

With `trapezoid`, a pair (scale, same) of float32 tensors in the shape of da, what a step writes is times its `scale`,
but the step itself reads it times its `same`:

    W_t = sum_u v_t[u] B_t[u]', h_t = exp(da_t) h_{t-1} + scale_t W_t, y_t[m] = (h_t - (scale_t - same_t) W_t) C_t[m].

With a `Turn`, every head adds its bias to the keys and queries of its group and turns them (`ssd_turned`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from cartograd.kernels.gpu import ssd_plan
from cartograd.kernels.gpu.ssd_decays import decay_gradients_kernel, decays_kernel
from cartograd.kernels.gpu.ssd_gradients import gradients_kernel
from cartograd.kernels.gpu.ssd_outputs import outputs_kernel
from cartograd.kernels.gpu.ssd_plan import PROGRAMS, STRETCH, Plan, planned, split_heads
from cartograd.kernels.gpu.ssd_states import states_kernel
from cartograd.kernels.gpu.ssd_tiles import add_parts_kernel

Trapezoid = tuple[Tensor, Tensor] | None


class Turn(NamedTuple):
    """What heads do to the keys and queries of their group; all float32 and contiguous.

    Parameters
    ----------
    b_bias, c_bias : torch.Tensor
        (h, m, r), added first.
    theta : torch.Tensor
        (b, t, h, a): the angle of channels 2j and 2j + 1, for the first a pairs.
    """

    b_bias: Tensor
    c_bias: Tensor
    theta: Tensor


def forward(
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    initial_state: Tensor | None,
    trapezoid: Trapezoid = None,
    turn: Turn | None = None,
) -> tuple[Tensor, Tensor]:
    """y and the last state, in the shapes of `cartograd.double_ssd`."""
    plan = planned(v, B, C, turn is not None)
    values, keys, queries = as_rows(v), as_rows(B), as_rows(C)
    decays = decayed(plan, da, trapezoid)
    batch, steps, heads = da.flatten(1, 2).shape
    states, last = swept(plan, values, keys, decays, steps, initial_state, v.shape[3], False, turn)
    y = v.new_empty(*v.shape[:3], C.shape[3], *v.shape[4:])
    chunks, groups = plan.chunks(steps), keys.shape[2]
    splits = heads // groups if turn else split_heads(batch * chunks * groups, heads // groups)
    outputs_kernel[(batch * chunks, groups * splits, triton.cdiv(v.shape[5], plan.block_p))](
        values, decays, keys, queries, *_turning(turn, decays), states, y,
        *values.stride()[:3], *keys.stride()[:3], *queries.stride()[:3],
        steps, heads, chunks, groups, heads // groups // splits, splits,
        v.shape[3], C.shape[3], plan.length, v.shape[5], B.shape[5],
        plan.rows_i, plan.rows_j, plan.block_p, plan.block_r, _turns(turn), decays.shape[3], plan.precision,
        **ssd_plan.output_launch(plan, turn is not None)._asdict(),
    )  # fmt: skip
    return y, last


def backward(
    dy: Tensor,
    dlast: Tensor,
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    initial_state: Tensor | None,
    trapezoid: Trapezoid = None,
    turn: Turn | None = None,
    positive: bool = False,
) -> tuple[Tensor, ...]:
    """Return gradients of v, da, B, C, the first state (float32), `scale` and `same` where they are given, and a turn.

    The last are those of both biases and of theta. The kernels divide by `scale` and `same`, so their gradients are
    missing where these are 0. The scan is linear in both: a second pass with weights of 1 finds these gradients. It is
    made where a weight is 0, unless `positive` promises that none is; a stream that is being captured cannot wait for
    the answer and always makes it.
    """
    found = _gradients(dy, dlast, v, da, B, C, initial_state, trapezoid, turn)
    if trapezoid is None or positive or not (torch.cuda.is_current_stream_capturing() or has_zero(trapezoid)):
        return found
    ones = torch.ones_like(trapezoid[0]), torch.ones_like(trapezoid[1])
    exact = _gradients(dy, dlast, v, da, B, C, initial_state, ones, turn)
    return (*found[:5], *exact[5:7], *found[7:])


def has_zero(weights: tuple[Tensor, ...]) -> bool:
    """Return whether any of these weights is exactly 0; waits for the device."""
    return not bool(torch.stack([one.all() for one in weights]).all())


def _gradients(
    dy: Tensor,
    dlast: Tensor,
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    initial_state: Tensor | None,
    trapezoid: Trapezoid,
    turn: Turn | None,
) -> tuple[Tensor, ...]:
    """Return what `backward` returns, where no weight of the trapezoidal rule is 0."""
    turned = turn is not None
    plan = planned(v, B, C, turned)
    values, keys, queries, seeds = as_rows(v), as_rows(B), as_rows(C), as_rows(dy)
    decays = decayed(plan, da, trapezoid)
    batch, steps, heads = da.flatten(1, 2).shape
    states, last = swept(plan, values, keys, decays, steps, initial_state, v.shape[3], False, turn)
    adjoints, dfirst = swept(plan, seeds, queries, decays, steps, dlast, C.shape[3], True, turn)
    chunks, groups, planes, each = plan.chunks(steps), keys.shape[2], decays.shape[3], plan.alone or turned
    splits = split_heads(batch * chunks * groups, heads // groups, 2 * PROGRAMS)
    block_p, block_r = ssd_plan.gradient_blocks(plan, each)
    blocks, rows = triton.cdiv(B.shape[5], block_r), batch * heads * chunks * plan.length
    dv, dda = torch.empty_like(v, memory_format=torch.contiguous_format), _by_head(da, da.dtype)
    dB, dC = (_parts(one, splits if each else 2 * splits) for one in (B, C))
    parts_i, parts_j = (blocks, blocks) if each else (blocks + 1, 1)
    inner_i, inner_j = (decays.new_empty(n * rows * one.shape[3]) for n, one in ((parts_i, C), (parts_j, B)))
    same_ranks = v.shape[3] if each else C.shape[3]
    inner_same, dscale, dsame = _trapezoid_room(decays, trapezoid, rows * same_ranks, da)
    *turning, pairs = _turning(turn, decays)
    room = _turning_room(turn, batch * chunks, decays)
    gradients_kernel[(batch * chunks * (blocks + 1 if each else 2 * blocks + 2), groups * splits)](
        values, decays, keys, queries, seeds, states, adjoints, dv, dB, dC, inner_i, inner_j, inner_same,
        *turning, *room, pairs,
        *values.stride()[:3], *keys.stride()[:3], *queries.stride()[:3], *seeds.stride()[:3],
        batch, steps, heads, chunks, groups, heads // groups // splits, splits,
        v.shape[3], C.shape[3], plan.length, v.shape[5], B.shape[5],
        plan.rows_i, plan.rows_j, ssd_plan.tile(plan.length), block_p, block_r,
        each, _turns(turn), planes, plan.precision,
        **ssd_plan.gradient_launch(plan, turned)._asdict(),
    )  # fmt: skip
    decay_gradients_kernel[(batch * heads * triton.cdiv(chunks, STRETCH),)](
        inner_i, inner_j, inner_same, decays, states, last, adjoints, dda, dscale, dsame,
        batch * heads * chunks, steps, chunks,
        v.shape[3], C.shape[3], plan.length, v.shape[5] * B.shape[5], parts_i, parts_j, same_ranks,
        triton.next_power_of_2(plan.length), STRETCH, 4096, planes, num_warps=4,
    )  # fmt: skip
    found = dv, dda, _summed(dB, B), _summed(dC, C), dfirst
    weights = () if trapezoid is None else (dscale, dsame)
    return (*found, *weights, *(() if turn is None else (room[1].sum(0), room[2].sum(0), room[0])))


def as_rows(tensor: Tensor) -> Tensor:
    """(b, n, l, m, h, p) as (b, rows, h, p), a view wherever one will do."""
    rows = tensor.flatten(1, 3)
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def decayed(plan: Plan, da: Tensor, trapezoid: Trapezoid) -> Tensor:
    """(b, h, chunks, 4 or 6, steps of a chunk): what `decays_kernel` finds."""
    given = da.flatten(1, 2)
    batch, steps, heads = given.shape
    chunks, planes = plan.chunks(steps), 4 if trapezoid is None else 6
    decays = da.new_empty(batch, heads, chunks, planes, plan.length, dtype=torch.float32)
    scale, same = (decays, decays) if trapezoid is None else (one.float().contiguous() for one in trapezoid)
    decays_kernel[(batch * chunks, triton.cdiv(heads, 8))](
        given, scale, same, decays, *given.stride(), steps, heads, chunks,
        plan.length, triton.next_power_of_2(plan.length), 8, planes, num_warps=2,
    )  # fmt: skip
    return decays


def swept(
    plan: Plan,
    rows: Tensor,
    keys: Tensor,
    decays: Tensor,
    steps: int,
    first: Tensor | None,
    ranks: int,
    backwards: bool,
    turn: Turn | None,
) -> tuple[Tensor, Tensor]:
    """The states before every chunk, (b, h, chunks, p, r), and the last one, (b, h, p, r); or their gradients."""
    batch, heads, chunks, planes = decays.shape[:4]
    p, r, groups = rows.shape[3], keys.shape[3], keys.shape[2]
    states = rows.new_empty(batch, heads, chunks, p, r, dtype=plan.operand)
    last = rows.new_empty(batch, heads, p, r, dtype=torch.float32)
    first = None if first is None else first.contiguous()
    b_bias, c_bias, theta, pairs = _turning(turn, decays)
    states_kernel[(batch * heads, triton.cdiv(p, plan.block_p), triton.cdiv(r, plan.block_r))](
        rows, keys, c_bias if backwards else b_bias, theta, pairs, decays,
        last if first is None else first, states, last,
        *rows.stride()[:3], *keys.stride()[:3], steps, heads, heads // groups, chunks,
        ranks, plan.length, p, r, plan.rows_i if backwards else plan.rows_j, plan.block_p, plan.block_r,
        backwards, first is not None, _turns(turn), planes, plan.precision,
        **ssd_plan.state_launch(plan)._asdict(),
    )  # fmt: skip
    return states, last


def _turning(turn: Turn | None, unused: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Biases, angles, and the number of angles, as kernels take them."""
    return (unused, unused, unused, 0) if turn is None else (*turn, turn.theta.shape[3])


def _turns(turn: Turn | None) -> int:
    """How many channels are turned; -1 where rows are taken as they are."""
    return -1 if turn is None else 2 * turn.theta.shape[3]


def _turning_room(turn: Turn | None, chunks: int, unused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients of theta, and of the biases of keys and queries, by chunks."""
    if turn is None:
        return unused, unused, unused
    b_bias, c_bias, theta = turn
    b_room, c_room = (one.new_empty(chunks, *one.shape) for one in (b_bias, c_bias))
    return torch.empty_like(theta), b_room, c_room


def _trapezoid_room(decays: Tensor, trapezoid: Trapezoid, rows: int, da: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for inner products within steps, and the gradients of `scale` and `same`; something unused without them."""
    if trapezoid is None:
        return decays, decays, decays
    return decays.new_empty(rows), _by_head(da, torch.float32), _by_head(da, torch.float32)


def _by_head(da: Tensor, dtype: torch.dtype) -> Tensor:
    """Room in the shape of da, (b, n, l, h), that lies in memory head by head, as kernels write it."""
    batch, chunks, length, heads = da.shape
    return da.new_empty(batch, heads, chunks, length, dtype=dtype).permute(0, 2, 3, 1)


def _parts(keys: Tensor, count: int) -> Tensor:
    """Room for the gradient of keys or queries; if it comes in several parts, for `count` of them in float32."""
    return keys.new_empty(count, *keys.shape, dtype=torch.float32) if count > 1 else keys.new_empty(keys.shape)


def _summed(parts: Tensor, like: Tensor) -> Tensor:
    if parts.dim() == like.dim():
        return parts
    found, size = like.new_empty(like.shape), like.numel()
    add_parts_kernel[(triton.cdiv(size, 1024),)](parts, found, size, parts.shape[0], 1024)
    return found
