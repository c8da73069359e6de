r"""One step of UMAP's layout in the plane: every row gathers its own forces and moves; nothing is written twice.

Row i at step t is pulled along its edges that act,

.. math:: (t R \bmod 2^{24}) + R \ge 2^{24}, \qquad R = 2^{24} w / w_{\max},

(the exact periods of `cartograd.embedding.edge_clock`), and pushed from `negatives` random rows for each of these. The
q-th of them is found by hashing (key of the step, i, q): half of 64 random bits each. Forces are UMAP's (see
`cartograd.embedding.umap_forces`): every pair's is clipped, and the sums of both kinds are. All rows read the old
places and write the new, so the result depends neither on the order of the rows nor on the number of programs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from cartograd.kernels.gpu.counting import below, below_in_torch, hashed, hashed_in_torch
from cartograd.kernels.gpu.edges import place

PERIOD = 1 << 24
_PERIOD = tl.constexpr(PERIOD)


class Edges(NamedTuple):
    """A symmetric graph as the kernel takes it.

    Parameters
    ----------
    order : torch.Tensor
        (n,) int32, the rows from the largest degree to the smallest: rows of like degree are worked on together.
    indptr : torch.Tensor
        (n + 1,) int64, where each row's edges begin.
    columns : torch.Tensor
        (e,) int32.
    rates : torch.Tensor
        (e,) int32, R.
    """

    order: torch.Tensor
    indptr: torch.Tensor
    columns: torch.Tensor
    rates: torch.Tensor


class Curve(NamedTuple):
    """What is the same at all steps of a phase.

    Parameters
    ----------
    a, b : float
        Of the curve 1 / (1 + a s^b).
    negatives : int
        How many for each acting edge.
    pull, push : float
        The factors of attraction (of its sum) and repulsion (of each pair, before it is clipped).
    softening, clip : float
        The epsilon of the repulsion, and the largest coordinate of a force.
    """

    a: float
    b: float
    negatives: int
    pull: float = 1.0
    push: float = 1.0
    softening: float = 1e-3
    clip: float = 4.0


class Course(NamedTuple):
    """What changes with the step, on the device, so that launches can be replayed with other numbers.

    Parameters
    ----------
    first : torch.Tensor
        (1,) int64, the number of the first step.
    rates : torch.Tensor
        (steps,) float32, the learning rates of the first step and those after it.
    keys : torch.Tensor
        (steps,) int64, the keys of their random numbers.
    """

    first: torch.Tensor
    rates: torch.Tensor
    keys: torch.Tensor


def edges_of(indptr: torch.Tensor, columns: torch.Tensor, weights: torch.Tensor, steps: int) -> Edges:
    """The edges of a symmetric graph that act at least once in that many steps."""
    shares = torch.round(weights.to(torch.float64) / weights.max() * PERIOD).to(torch.int64)
    kept = shares * steps >= PERIOD
    ends = torch.cat([kept.new_zeros(1, dtype=torch.int64), torch.cumsum(kept, 0)])[indptr]
    order = torch.argsort(ends.diff(), descending=True, stable=True)
    return Edges(order.to(torch.int32), ends, columns[kept].to(torch.int32), shares[kept].to(torch.int32))


def step(
    old: torch.Tensor, new: torch.Tensor, edges: Edges, curve: Curve, course: Course, ahead: int = 0,
    keep: float = 1.0, **options: Any,
) -> None:  # fmt: skip
    """Write into `new` (n, 2) float32 where the rows of `old` are after step ``course.first + ahead``.

    They are at ``keep * old - rate * gradient``: with keep = 0 and a rate of -1 it is the gradient that is written.
    """
    _launch(old, new, edges, curve, course, ahead, keep, False, options)


def losses(old: torch.Tensor, edges: Edges, curve: Curve, course: Course) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The losses of both terms at a step, without their factors, float64 scalars.

    :math:`\sum \log(1 + a s^b)` over the edges that act, each from both its ends, and
    :math:`\sum \log(1 + a s^b) - \log(a s^b)` over the negatives.
    """
    parts = torch.empty_like(old)
    _launch(old, parts, edges, curve, course, 0, 0.0, True, {})
    attraction, repulsion = parts.to(torch.float64).sum(0)
    return attraction, repulsion


def _launch(
    old: torch.Tensor, out: torch.Tensor, edges: Edges, curve: Curve, course: Course, ahead: int, keep: float,
    loss: bool, options: dict[str, Any],
) -> None:  # fmt: skip
    rows, n = options.get("rows", 4), len(old)
    _step[(triton.cdiv(n, rows),)](
        old.view(torch.int64), out, *edges, *course, ahead, n, curve.a, curve.b, curve.pull, curve.push,
        curve.softening, curve.clip, keep, NEGATIVES=curve.negatives, LOSS=loss, ROWS=rows,
        LANES=options.get("lanes", 16), num_warps=options.get("warps", 1),
    )  # fmt: skip


@triton.jit
def _clipped(value, clip):
    return tl.minimum(tl.maximum(value, -clip), clip)


@triton.jit
def _negative(places, bits, here, row, x, y, n):
    """Differences of rows and one random row each, and their squared distances; 0 where there is none."""
    other = below(bits, n - 1).to(tl.int32)
    other += (other >= row[:, None]).to(tl.int32)
    x1, y1 = place(tl.load(places + other, mask=here, other=0))
    dx, dy = x[:, None] - x1, y[:, None] - y1
    return dx, dy, tl.where(here, dx * dx + dy * dy, 0.0)


@triton.jit
def _pushed(dx, dy, s, a, b, push, softening, clip, LOSS: tl.constexpr):
    """The push of each pair, or its loss twice."""
    power = a * tl.exp2(b * tl.log2(s))
    if LOSS:
        one = tl.where(s > 0, tl.log(1 + power) - tl.log(power), 0.0)
        two = one
    else:
        slope = tl.where(s > 0, 2 * b * push / ((softening + s) * (1 + power)), 0.0)
        one, two = _clipped(slope * dx, clip), _clipped(slope * dy, clip)
    return one, two


@triton.jit
def _pulled(dx, dy, s, a, b, clip, LOSS: tl.constexpr):
    """The pull of each pair, or its loss twice."""
    power = a * tl.exp2(b * tl.log2(s))
    if LOSS:
        one = tl.where(s > 0, tl.log(1 + power), 0.0)
        two = one
    else:
        slope = tl.where(s > 0, 2 * b * power / (s * (1 + power)), 0.0)
        one, two = _clipped(slope * dx, clip), _clipped(slope * dy, clip)
    return one, two


@triton.jit
def _step(
    places, out, order, indptr, columns, rates, clock, learning, keys, ahead, n, a, b, pull, push, softening, clip,
    keep, NEGATIVES: tl.constexpr, LOSS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    step = (tl.load(clock) + ahead).to(tl.int32)
    lane = tl.arange(0, LANES)
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.load(order + at, mask=at < n, other=0)
    start = tl.load(indptr + row)
    degree = tl.where(at < n, tl.load(indptr + row + 1) - start, 0).to(tl.int32)
    x, y = place(tl.load(places + row))
    pull_x, pull_y = tl.zeros((ROWS, LANES), tl.float32), tl.zeros((ROWS, LANES), tl.float32)
    push_x, push_y = tl.zeros((ROWS, LANES), tl.float32), tl.zeros((ROWS, LANES), tl.float32)
    acting = tl.zeros((ROWS, LANES), tl.int32)
    for first in range(0, tl.max(degree, 0), LANES):
        edge = start[:, None] + (first + lane)[None, :]
        share = tl.load(rates + edge, mask=(first + lane)[None, :] < degree[:, None], other=0)
        due = ((share * step) & (_PERIOD - 1)) + share >= _PERIOD
        column = tl.load(columns + edge, mask=due, other=0)
        x1, y1 = place(tl.load(places + column, mask=due, other=0))
        dx, dy = x[:, None] - x1, y[:, None] - y1
        fx, fy = _pulled(dx, dy, tl.where(due, dx * dx + dy * dy, 0.0), a, b, clip, LOSS)
        pull_x += fx
        pull_y += fy
        acting += due.to(tl.int32)
    draws = tl.sum(acting, 1) * NEGATIVES
    key = tl.load(keys + ahead)
    for first in range(0, (tl.max(draws, 0) + 1) // 2, LANES):
        pair = (first + lane)[None, :]
        bits = hashed(key, row.to(tl.int64)[:, None] * 4294967296 + pair)
        dx, dy, s = _negative(places, bits, 2 * pair < draws[:, None], row, x, y, n)
        fx, fy = _pushed(dx, dy, s, a, b, push, softening, clip, LOSS)
        dx, dy, s = _negative(places, bits >> 32, 2 * pair + 1 < draws[:, None], row, x, y, n)
        gx, gy = _pushed(dx, dy, s, a, b, push, softening, clip, LOSS)
        push_x += fx + gx
        push_y += fy + gy
    if LOSS:
        x, y = tl.sum(pull_x, 1), tl.sum(push_x, 1)
    else:
        rate = tl.load(learning + ahead)
        x = keep * x - rate * (pull * _clipped(tl.sum(pull_x, 1), clip) - _clipped(tl.sum(push_x, 1), clip))
        y = keep * y - rate * (pull * _clipped(tl.sum(pull_y, 1), clip) - _clipped(tl.sum(push_y, 1), clip))
    tl.store(out + 2 * row, x, mask=at < n)
    tl.store(out + 2 * row + 1, y, mask=at < n)


class Acting(NamedTuple):
    """Ends of the edges that act at a step, and rows with their negatives: (m,) int64 each."""

    rows: torch.Tensor
    columns: torch.Tensor
    heads: torch.Tensor
    others: torch.Tensor


def acting_in_torch(n: int, edges: Edges, negatives: int, step: int, key: int) -> Acting:
    """Who pulls and pushes whom at a step."""
    shares, every = edges.rates.to(torch.int64), torch.arange(n, device=edges.rates.device)
    due = (shares * step) % PERIOD + shares >= PERIOD
    rows = torch.repeat_interleave(every, edges.indptr.diff())[due]
    draws = torch.bincount(rows, minlength=n) * negatives
    heads = torch.repeat_interleave(every, draws)
    q = torch.arange(len(heads), device=heads.device) - (torch.cumsum(draws, 0) - draws)[heads]
    bits = hashed_in_torch(key, heads * (1 << 32) + q // 2)
    others = below_in_torch(torch.where(q % 2 == 0, bits, bits >> 32), n - 1)
    return Acting(rows, edges.columns[due].to(torch.int64), heads, others + (others >= heads))


def step_in_torch(old: torch.Tensor, edges: Edges, curve: Curve, course: Course, ahead: int = 0) -> torch.Tensor:
    """The twin of `step`: the new places, in the precision of `old`."""
    n, a, b = len(old), curve.a, curve.b
    pairs = acting_in_torch(n, edges, curve.negatives, int(course.first) + ahead, int(course.keys[ahead]))
    apart = old[pairs.rows] - old[pairs.columns]
    s = apart.square().sum(1)
    slope = torch.where(s > 0, 2 * a * b * s**b / (s * (1 + a * s**b)), 0.0)
    pull = _row_sums(slope, apart, pairs.rows, n, curve.clip)
    apart = old[pairs.heads] - old[pairs.others]
    s = apart.square().sum(1)
    slope = torch.where(s > 0, 2 * b * curve.push / ((curve.softening + s) * (1 + a * s**b)), 0.0)
    push = _row_sums(slope, apart, pairs.heads, n, curve.clip)
    return old - course.rates[ahead] * (curve.pull * pull - push)


def losses_in_torch(old: torch.Tensor, edges: Edges, curve: Curve, course: Course) -> tuple[torch.Tensor, torch.Tensor]:
    """The twin of `losses`."""
    pairs = acting_in_torch(len(old), edges, curve.negatives, int(course.first), int(course.keys[0]))
    near = curve.a * (old[pairs.rows] - old[pairs.columns]).square().sum(1) ** curve.b
    far = curve.a * (old[pairs.heads] - old[pairs.others]).square().sum(1) ** curve.b
    far = far[far > 0]
    return torch.log1p(near).sum(), (torch.log1p(far) - torch.log(far)).sum()


def _row_sums(slope: torch.Tensor, apart: torch.Tensor, rows: torch.Tensor, n: int, clip: float) -> torch.Tensor:
    forces = (slope[:, None] * apart).clamp(-clip, clip)
    sums = torch.zeros(n, apart.shape[1], dtype=apart.dtype, device=apart.device)
    return sums.index_add_(0, rows, forces).clamp_(-clip, clip)
