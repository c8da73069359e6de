"""The SSD scan as one op that saves nothing but its inputs; its gradient works chunk by chunk, last to first.

The equations of the forward are in `ssd_chunks`. Letters: b batch, g groups, k heads of a group, i rows of queries and
j rows of keys (step and rank in one, the rank fastest), p channels of a value, r channels of the state. Keys and
queries of a group are shared by its heads and never copied: their scores are computed once.

On a GPU, kernels do the same where they can (`ssd_gpu`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.ops.ssd_chunks import composed_ssd, segment_sums, working_dtype
from cartograd.ops.ssd_gpu import gpu_kernels


class Chunk(NamedTuple):
    """One chunk in the working dtype, steps and ranks in one axis."""

    v: Tensor  # bgkjp
    B: Tensor  # bgjr
    C: Tensor  # bgir
    da: Tensor  # bgk and the step


@primitive(multiple=True)
def ssd(v: Tensor, da: Tensor, B: Tensor, C: Tensor, initial_state: Tensor | None = None) -> Any:
    """y and the last state of h_t = exp(da_t) h_{t-1} + sum over m of v_t[m] B_t[m]', y_t[m] = h_t C_t[m].

    Backward of one chunk, with e = exp(c), f = exp(c_end - c), dY the gradient of y, G that of the state it hands on:

        dS = (dY v') * M,   dC = dS B + (e dY) H,   dB = dS' C + f (v G),   dv = (S * M)' dY + f (B G'),
        G <- exp(c_end) G + (e dY)' C,   and dh_0 is the G that is left.

    The decay needs no product of its own: with dc_l = sum over ranks of <y_l, dY_l> - <v_l, dv_l>,

        dda_l = sum over k >= l in the chunk of dc_k, plus <G, H_next>.
    """
    kernels = gpu_kernels(v, da, B, C, initial_state)
    if kernels is not None:
        return kernels.forward(v, da, B, C, initial_state)
    with full_precision(v):
        state = first_state(v, B, initial_state, working_dtype(v, da, B, C, initial_state))
        y = v.new_empty(*v.shape[:3], C.shape[3], *v.shape[4:])
        for n in range(v.shape[1]):
            chunk = chunk_of(v, da, B, C, n, state.dtype)
            weights = damped(chunk.C @ chunk.B.mT, segment_sums(chunk.da).exp_())
            put(y, n, weights @ chunk.v + read(chunk, state))
            state = handed_on(chunk.v, chunk.B, chunk.da, state)
        return y, state.flatten(1, 2)


@ssd.vjp("v", "da", "B", "C", "initial_state")
def _(g: Any, v: Tensor, da: Tensor, B: Tensor, C: Tensor, initial_state: Tensor | None) -> Any:
    kernels = gpu_kernels(v, da, B, C, initial_state)
    if kernels is not None:
        *found, dfirst = kernels.backward(*g, v, da, B, C, initial_state)
        return *found, None if initial_state is None else dfirst.to(initial_state.dtype)
    with full_precision(v):
        dtype, groups = working_dtype(v, da, B, C, initial_state), B.shape[4]
        dv, dda, dB, dC = (torch.empty_like(one) for one in (v, da, B, C))
        G = g[1].to(dtype).unflatten(1, (groups, -1))
        for n, incoming, outgoing in states_backwards(v, da, B, first_state(v, B, initial_state, dtype)):
            ending = (G * outgoing).sum((-1, -2)).unsqueeze(-1)  # <G, H_next>
            chunk = chunk_of(v, da, B, C, n, dtype)
            found = chunk_gradients(chunk, by_head(g[0][:, n], groups, dtype), incoming, G)
            put(dv, n, found.v)
            put(dB, n, found.B)
            put(dC, n, found.C)
            dda[:, n] = (found.c.flip(-1).cumsum(-1).flip(-1) + ending).flatten(1, 2).mT
            G = found.state
        return dv, dda, dB, dC, None if initial_state is None else G.flatten(1, 2).to(initial_state.dtype)


class ChunkGradients(NamedTuple):
    """The gradients of one chunk, in the shapes of `Chunk`; `c` of each step's running decay."""

    v: Tensor
    B: Tensor
    C: Tensor
    c: Tensor
    state: Tensor


def chunk_gradients(chunk: Chunk, dY: Tensor, H: Tensor, G: Tensor) -> ChunkGradients:
    """The backward of one chunk: H is the state that came in, G the gradient of the one it handed on."""
    v, B, C, da = chunk
    decay = segment_sums(da).exp_()
    weights = damped(C @ B.mT, decay)
    seen = dY @ v.mT
    arriving, leaving = from_start(da, dY) * dY, to_end(da, v) * v
    inner = (weights * seen).sum(-1) + (read(chunk, H) * dY).sum(-1)  # <y, dY>
    dv = weights.mT @ dY + to_end(da, v) * torch.einsum("bgjr,bgkpr->bgkjp", B, G)
    dS = damped(seen, decay)
    del weights, seen
    dS = dS.sum(2) if dS.shape[2] > 1 else dS.squeeze(2)
    dC = dS @ B + torch.einsum("bgkip,bgkpr->bgir", arriving, H)
    dB = dS.mT @ C + torch.einsum("bgkjp,bgkpr->bgjr", leaving, G)
    dc = over_ranks(inner, da) - over_ranks((v * dv).sum(-1), da)
    kept = da.sum(-1).exp()[..., None, None]
    return ChunkGradients(dv, dB, dC, dc, kept * G + torch.einsum("bgkip,bgir->bgkpr", arriving, C))


def first_state(v: Tensor, B: Tensor, initial_state: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The first state by groups, bgkpr, in memory of its own."""
    groups, heads = B.shape[4], v.shape[4]
    if initial_state is None:
        return v.new_zeros(v.shape[0], groups, heads // groups, v.shape[5], B.shape[5], dtype=dtype)
    return initial_state.to(dtype, copy=True).unflatten(1, (groups, heads // groups))


def states_backwards(v: Tensor, da: Tensor, B: Tensor, state: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(number, incoming, outgoing state) of every chunk, the last first.

    About sqrt(chunks) states are kept in a first pass, and those of one stretch in between are computed again: memory
    for 2 sqrt(chunks) states, not for all.
    """
    count, groups, dtype = v.shape[1], B.shape[4], state.dtype

    def advanced(n: int, state: Tensor) -> Tensor:
        values, keys = by_head(v[:, n], groups, dtype), by_head(B[:, n], groups, dtype).squeeze(2)
        return handed_on(values, keys, by_step(da[:, n], groups, dtype), state)

    stretch = max(1, math.isqrt(count))
    starts = range(0, count, stretch)
    kept = [state]
    for n in range(starts[-1] if count else 0):
        state = advanced(n, state)
        if (n + 1) % stretch == 0:
            kept.append(state)
    for start in reversed(starts):
        states = [kept.pop()]
        for n in range(start, min(start + stretch, count)):
            states.append(advanced(n, states[-1]))
        for n in reversed(range(start, min(start + stretch, count))):
            outgoing = states.pop()
            yield n, states[-1], outgoing


def chunk_of(v: Tensor, da: Tensor, B: Tensor, C: Tensor, n: int, dtype: torch.dtype) -> Chunk:
    """Chunk number `n`."""
    groups = B.shape[4]
    keys, queries = (by_head(one[:, n], groups, dtype).squeeze(2) for one in (B, C))
    return Chunk(by_head(v[:, n], groups, dtype), keys, queries, by_step(da[:, n], groups, dtype))


def by_head(rows: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """[b, step, rank, head, channel] as [b, group, head of it, step and rank, channel]."""
    grouped = rows.unflatten(3, (groups, -1)).permute(0, 3, 4, 1, 2, 5)
    return grouped.to(dtype).flatten(3, 4)


def by_step(da: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """[b, step, head] as [b, group, head of it, step]."""
    return da.to(dtype).mT.unflatten(1, (groups, -1))


def put(out: Tensor, n: int, rows: Tensor) -> None:
    """Write what `by_head` gave, or the same without its axis of heads, into chunk `n` of `out`."""
    steps, ranks = out.shape[2:4]
    out[:, n] = rows.flatten(1, -3).unflatten(2, (steps, ranks)).permute(0, 2, 3, 1, 4)


def damped(scores: Tensor, decay: Tensor) -> Tensor:
    """Scores of rows (of a group, or of each head) times the decays of their steps, for each head: bgkij."""
    steps = decay.shape[-1]
    if scores.dim() < decay.dim():
        scores = scores.unsqueeze(2)
    split = scores.unflatten(-1, (steps, -1)).unflatten(-3, (steps, -1))
    return (split * decay.unsqueeze(-1).unsqueeze(-3)).flatten(-2).flatten(-3, -2)


def from_start(da: Tensor, rows: Tensor) -> Tensor:
    """exp(c) for the steps of all rows."""
    return _spread(da.cumsum(-1).exp_(), rows)


def to_end(da: Tensor, rows: Tensor) -> Tensor:
    """exp(c_end - c), the sum over later steps, for the steps of all rows."""
    return _spread(F.pad(da[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1).exp_(), rows)


def _spread(factor: Tensor, rows: Tensor) -> Tensor:
    return factor.repeat_interleave(rows.shape[-2] // factor.shape[-1], -1).unsqueeze(-1)


def over_ranks(values: Tensor, da: Tensor) -> Tensor:
    """Values of rows summed to values of steps."""
    return values.unflatten(-1, (da.shape[-1], -1)).sum(-1)


def read(chunk: Chunk, state: Tensor) -> Tensor:
    """What the incoming state adds to y: exp(c) C H'."""
    return from_start(chunk.da, chunk.C) * torch.einsum("bgir,bgkpr->bgkip", chunk.C, state)


def handed_on(v: Tensor, B: Tensor, da: Tensor, state: Tensor) -> Tensor:
    """The state after a chunk: exp(c_end) H + (exp(c_end - c) v)' B."""
    return da.sum(-1).exp()[..., None, None] * state + torch.einsum("bgkjp,bgjr->bgkpr", to_end(da, v) * v, B)


@contextmanager
def full_precision(tensor: Any) -> Iterator[None]:
    """No autocast inside: sums and states stay in the working dtype."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            yield
    else:
        yield


@ssd.restate
def composed(v: Any, da: Any, B: Any, C: Any, initial_state: Any) -> Any:
    """The same, of ops that can be differentiated again."""
    return composed_ssd(v, da, B, C, initial_state)


@ssd.example
def _(make: Any) -> Any:
    """Two chunks of two steps, rank 2, four heads in two groups."""
    decays = make(1, 2, 2, 4, low=-1.0, high=-0.1)
    return make(1, 2, 2, 2, 4, 1), decays, make(1, 2, 2, 2, 2, 2), make(1, 2, 2, 2, 2, 2), make(1, 4, 1, 2)


@ssd.example
def _(make: Any) -> Any:
    """Three ranks of keys read by one rank of queries; no first state."""
    decays = make(1, 2, 1, 1, low=-1.0, high=-0.1)
    return make(1, 2, 1, 3, 1, 2), decays, make(1, 2, 1, 3, 1, 2), make(1, 2, 1, 1, 1, 2)
