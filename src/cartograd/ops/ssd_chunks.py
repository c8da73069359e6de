"""The chunked SSD scan made of differentiable ops: all chunks at once, states passed on by a loop or by one product.

One scan maps values v, log decays da, keys B, queries C and a first state to

    h_t = exp(da_t) h_{t-1} + sum over m of v_t[m] B_t[m]',      y_t[m] = h_t C_t[m].

In a chunk, with c the running sum of da, S = C B' and M_ij = exp(c_i - c_j) for j <= i (compared by time step, so all
ranks of one step see each other), H the state that comes in and c_end the last c:

    y = (S * M) v + exp(c) C H',    H_next = exp(c_end) H + (exp(c_end - c) v)' B.

Letters in the equations: b batch, n chunk, i and j steps of a chunk, m and u ranks, g groups, k heads of a group,
p channels of a value, r channels of the state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from cartograd.engine.accumulate import raw


def working_dtype(*tensors: Any) -> torch.dtype:
    """The dtype that sums, decays and states are computed in: float32, or float64 where one of the tensors is that."""
    dtype = torch.float32
    for one in tensors:
        if one is not None:
            dtype = torch.promote_types(dtype, one.dtype)
    return dtype


def segment_sums(da: Any) -> Any:
    """out[..., i, j] = sum of da over j < t <= i, and -inf for j > i.

    Summed segment by segment: differences of one running sum lose the small sums next to a strong decay.
    """
    length = da.shape[-1]
    below = torch.ones(length, length, dtype=torch.bool, device=raw(da).device).tril_(-1)
    spread = da.unsqueeze(-1).expand(*da.shape, length)
    sums = spread.masked_fill(~below, 0).cumsum(-2)
    return sums.masked_fill(below.mT, -math.inf)


def composed_ssd(v: Any, da: Any, B: Any, C: Any, initial_state: Any = None, parallel: bool = False) -> tuple[Any, Any]:
    """The scan on tensors of either engine; `parallel` passes the states on by one matrix of decays, not by a loop."""
    kind, dtype = v.dtype, working_dtype(v, da, B, C, initial_state)
    groups, heads = B.shape[4], v.shape[4]
    v, da, B, C = (one.to(dtype) for one in (v, da, B, C))
    v = v.unflatten(4, (groups, heads // groups))
    da = da.unflatten(3, (groups, heads // groups)).permute(0, 1, 3, 4, 2)  # bngki
    if initial_state is None:
        first = torch.zeros(*_state_shape(v, B), dtype=dtype, device=raw(v).device)
    else:
        first = initial_state.to(dtype).unflatten(1, (groups, heads // groups))
    decay = segment_sums(da).exp()  # bngkij
    within = _within_chunks(v, B, C, decay)
    written = torch.einsum("bnjugkp,bnjugr->bngkpr", v * _by_step(decay[..., -1, :]), B)
    pass_on = _passed_on_at_once if parallel else _passed_on_in_turn
    states, last = pass_on(first, written, da.sum(-1))
    carried = torch.einsum("bnimgr,bngkpr->bnimgkp", C, states) * _by_step(da.cumsum(-1).exp())
    return (within + carried).flatten(4, 5).to(kind), last.flatten(1, 2)


def _state_shape(v: Any, B: Any) -> tuple[int, ...]:
    return v.shape[0], v.shape[4], v.shape[5], v.shape[6], B.shape[5]


def _by_step(factor: Any) -> Any:
    """A factor of each step and head, bngki, spread over ranks and channels: bni1gk1."""
    return factor.permute(0, 1, 4, 2, 3).unsqueeze(3).unsqueeze(-1)


def _within_chunks(v: Any, B: Any, C: Any, decay: Any) -> Any:
    """(S * M) v of every chunk."""
    scores = torch.einsum("bnimgr,bnjugr->bngimju", C, B)
    weights = scores.unsqueeze(3) * decay.unsqueeze(-1).unsqueeze(-3)
    return torch.einsum("bngkimju,bnjugkp->bnimgkp", weights, v)


def _passed_on_in_turn(state: Any, written: Any, total: Any) -> tuple[Any, Any]:
    """The state that comes into each chunk, and the last one: H_{n+1} = exp(total_n) H_n + written_n."""
    kept = total.exp()
    states = []
    for n in range(written.shape[1]):
        states.append(state)
        state = kept[:, n, ..., None, None] * state + written[:, n]
    return torch.stack(states, 1) if states else written, state


def _passed_on_at_once(state: Any, written: Any, total: Any) -> tuple[Any, Any]:
    """The same as one product: a lower triangle of decays between chunks times the stacked states."""
    decay = segment_sums(F.pad(total.permute(0, 2, 3, 1), (1, 0))).exp()  # bgkij, chunks i and j, 0 the first state
    sources = torch.cat([state.unsqueeze(1), written], 1)
    states = torch.einsum("bgkij,bjgkpr->bigkpr", decay, sources)
    return states[:, :-1], states[:, -1]
