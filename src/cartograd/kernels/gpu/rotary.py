# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
r"""Keys and queries of Mamba-3 as the scan takes them: spread from groups to heads, biased and turned, in one pass.

With (u, w) a pair of channels of a group's row plus a head's bias, and theta the head's angle of that step,

    u~ = cos(theta) u - sin(theta) w,        w~ = sin(theta) u + cos(theta) w,

and backwards, with g the gradient of a turned row and G = g turned back,

    drow = sum over the heads of the group of G,     dbias = sum over all steps of G,     dtheta = g_w u~ - g_u w~.

A program has some rows (steps of a sequence) of one rank; heads of a group are a loop, so that a group's gradient is
summed in registers, always in the same order. The twin is `cartograd.ops.rotary`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

ROWS = 16
"""Rows of a program."""


def turned(rows: Tensor, bias: Tensor, theta: Tensor, adjacent: bool) -> Tensor:
    """(b, t, m, h, r), in the dtype of the rows.

    Parameters
    ----------
    rows : torch.Tensor
        (b, t, m, g, r), of any strides but the last, which is 1.
    bias : torch.Tensor
        (h, m, r) float32, contiguous.
    theta : torch.Tensor
        (b, t, h, a) float32, contiguous; pairs from a on are not turned.
    adjacent : bool
        Whether pairs are channels 2j and 2j + 1; otherwise j and j + r // 2.
    """
    batch, steps, ranks, groups, r = rows.shape
    heads, angles = theta.shape[2:]
    out = rows.new_empty(batch, steps, ranks, heads, r)
    _turned[(batch * triton.cdiv(steps, ROWS), groups, ranks)](
        rows, bias, theta, out, *rows.stride()[:4], steps, heads // groups, heads, ranks, angles,
        r, triton.next_power_of_2(r // 2), adjacent, ROWS, num_warps=4,
    )  # fmt: skip
    return out


def turned_back(g: Tensor, rows: Tensor, bias: Tensor, theta: Tensor, adjacent: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of rows, bias and theta, given that of `turned`, which is contiguous."""
    batch, steps, ranks, groups, r = rows.shape
    heads, angles = theta.shape[2:]
    blocks = batch * triton.cdiv(steps, ROWS)
    drows = rows.new_empty(rows.shape)
    dbias = bias.new_empty(blocks, *bias.shape)
    dtheta = theta.new_empty(ranks, *theta.shape)
    _turned_back[(blocks, groups, ranks)](
        g, rows, bias, theta, drows, dbias, dtheta, *rows.stride()[:4],
        batch, steps, heads // groups, heads, ranks, groups, angles,
        r, triton.next_power_of_2(r // 2), adjacent, ROWS, num_warps=4,
    )  # fmt: skip
    return drows, dbias.sum(0), dtheta[0] if ranks == 1 else dtheta.sum(0)


@triton.jit
def _pair(base, at, inside, PAIRS: tl.constexpr, R: tl.constexpr, ADJACENT: tl.constexpr):
    """Both channels of each pair, float32, of rows that begin at `base + at`; zeros outside."""
    if ADJACENT:
        channel = tl.arange(0, 2 * PAIRS)
        tile = tl.load(base + at[:, None] + channel[None, :], mask=inside[:, None] & (channel < R)[None, :], other=0.0)
        u, w = tl.split(tl.reshape(tile.to(tl.float32), [tile.shape[0], PAIRS, 2]))
    else:
        pair = tl.arange(0, PAIRS)
        here = inside[:, None] & (pair < R // 2)[None, :]
        u = tl.load(base + at[:, None] + pair[None, :], mask=here, other=0.0).to(tl.float32)
        w = tl.load(base + at[:, None] + R // 2 + pair[None, :], mask=here, other=0.0).to(tl.float32)
    return u, w


@triton.jit
def _store_pair(base, at, inside, u, w, PAIRS: tl.constexpr, R: tl.constexpr, ADJACENT: tl.constexpr):
    kind = base.dtype.element_ty
    if ADJACENT:
        channel = tl.arange(0, 2 * PAIRS)
        tile = tl.reshape(tl.join(u, w), [u.shape[0], 2 * PAIRS])
        tl.store(base + at[:, None] + channel[None, :], tile.to(kind), mask=inside[:, None] & (channel < R)[None, :])
    else:
        pair = tl.arange(0, PAIRS)
        here = inside[:, None] & (pair < R // 2)[None, :]
        tl.store(base + at[:, None] + pair[None, :], u.to(kind), mask=here)
        tl.store(base + at[:, None] + R // 2 + pair[None, :], w.to(kind), mask=here)


@triton.jit
def _angle(theta, place, inside, angles, PAIRS: tl.constexpr):
    """Cosines and sines of each row's pairs: 1 and 0 of those that are not turned."""
    pair = tl.arange(0, PAIRS)
    here = inside[:, None] & (pair < angles)[None, :]
    angle = tl.load(theta + place[:, None] * angles + pair[None, :], mask=here, other=0.0)
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def _where(steps, ROWS: tl.constexpr):
    """The batch, the steps, and which of them there are, of a program's rows."""
    blocks = tl.cdiv(steps, ROWS)
    step = (tl.program_id(0) % blocks) * ROWS + tl.arange(0, ROWS)
    return (tl.program_id(0) // blocks).to(tl.int64), step, step < steps


@triton.jit
def _of_head(
    bias, theta, u, w, at, inside, head, heads, rank, ranks, angles,
    PAIRS: tl.constexpr, R: tl.constexpr, ADJACENT: tl.constexpr,
):  # fmt: skip
    """A group's pairs with a head's bias, and the cosines and sines of its angles, of rows at steps `at` of all."""
    one = tl.zeros((1,), tl.int64) + (head * ranks + rank) * R
    bias_u, bias_w = _pair(bias, one, one >= 0, PAIRS, R, ADJACENT)
    c, s = _angle(theta, at * heads + head, inside, angles, PAIRS)
    return u + bias_u, w + bias_w, c, s


@triton.jit
def _turned(
    rows, bias, theta, out, r_batch, r_step, r_rank, r_group, steps, per_group, heads, ranks, angles,
    R: tl.constexpr, PAIRS: tl.constexpr, ADJACENT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    batch, step, inside = _where(steps, ROWS)
    group, rank = tl.program_id(1), tl.program_id(2)
    u, w = _pair(rows, batch * r_batch + step * r_step + rank * r_rank + group * r_group, inside, PAIRS, R, ADJACENT)
    at = batch * steps + step
    for head in range(group * per_group, group * per_group + per_group):
        x, y, c, s = _of_head(bias, theta, u, w, at, inside, head, heads, rank, ranks, angles, PAIRS, R, ADJACENT)
        to = ((at * ranks + rank) * heads + head) * R
        _store_pair(out, to, inside, c * x - s * y, s * x + c * y, PAIRS, R, ADJACENT)


@triton.jit
def _turned_back(
    g, rows, bias, theta, drows, dbias, dtheta, r_batch, r_step, r_rank, r_group,
    batches, steps, per_group, heads, ranks, groups, angles,
    R: tl.constexpr, PAIRS: tl.constexpr, ADJACENT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    batch, step, inside = _where(steps, ROWS)
    group, rank, pair = tl.program_id(1), tl.program_id(2), tl.arange(0, PAIRS)
    u, w = _pair(rows, batch * r_batch + step * r_step + rank * r_rank + group * r_group, inside, PAIRS, R, ADJACENT)
    at = batch * steps + step
    du, dw = tl.zeros((ROWS, PAIRS), tl.float32), tl.zeros((ROWS, PAIRS), tl.float32)
    for head in range(group * per_group, group * per_group + per_group):
        x, y, c, s = _of_head(bias, theta, u, w, at, inside, head, heads, rank, ranks, angles, PAIRS, R, ADJACENT)
        to = ((at * ranks + rank) * heads + head) * R
        gu, gw = _pair(g, to, inside, PAIRS, R, ADJACENT)
        found = gw * (c * x - s * y) - gu * (s * x + c * y)
        of_theta = ((rank * batches + batch) * steps + step) * heads + head
        here = inside[:, None] & (pair < angles)[None, :]
        tl.store(dtheta + of_theta[:, None] * angles + pair[None, :], found, mask=here)
        back_u, back_w = c * gu + s * gw, c * gw - s * gu
        du += back_u
        dw += back_w
        of_bias = tl.zeros((1,), tl.int64) + ((tl.program_id(0) * heads + head) * ranks + rank) * R
        sum_u, sum_w = tl.sum(back_u, 0)[None, :], tl.sum(back_w, 0)[None, :]
        _store_pair(dbias, of_bias, of_bias >= 0, sum_u, sum_w, PAIRS, R, ADJACENT)
    _store_pair(drows, ((at * ranks + rank) * groups + group) * R, inside, du, dw, PAIRS, R, ADJACENT)
