r"""The SSD scan with the trapezoidal rule's weights inside: Mamba-3's two scans in one.

By the step a term comes from, the trapezoidal recurrence is one scan of :math:`scale_t v_t` with
:math:`scale_t = \gamma_t + \nu_{t+1}`, but step t itself reads what it writes times :math:`same_t = \gamma_t`:

    h_t = exp(da_t) h_{t-1} + scale_t sum_u v_t[u] B_t[u]',
    y_t[m] = h_t C_t[m] - (scale_t - same_t) sum_u <B_t[u], C_t[m]> v_t[u].

On a GPU the kernels weigh by `scale` and `same` where they weigh by decays; elsewhere it is the plain scan, corrected.
Shapes are those of `double_ssd`, `scale` and `same` like da.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.ops.ssd_chunks import composed_ssd, working_dtype
from cartograd.ops.ssd_gpu import gpu_kernels
from cartograd.ops.ssd_recompute import full_precision, ssd


@primitive(multiple=True)
def trapezoid_ssd(
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    scale: Tensor,
    same: Tensor,
    initial_state: Tensor | None = None,
    positive: bool = False,
) -> Any:
    """y and the last state. With x = scale v and the gradients of the plain scan of x marked ', T_t[m] = the last sum:

        dv = scale dx' - [excess dY]' through T,   dscale = <dx', v> - <dY, T>,   dsame = <dY, T>,

    with excess = scale - same; B and C get what comes through T besides the plain scan's. `positive` promises that no
    `scale` and no `same` is 0, which spares a GPU a question in the backward pass.
    """
    kernels = gpu_kernels(v, da, B, C, initial_state)
    if kernels is not None and _single(scale, same):
        return kernels.forward(v, da, B, C, initial_state, (scale, same))
    with full_precision(v):
        wide = v.to(working_dtype(v, da, B, C, scale, same, initial_state))
        y, last = ssd.forward(_by_step(scale) * wide, da, B, C, initial_state)
        return (y - _by_step(scale - same) * _within_steps(wide, B, C)).to(v.dtype), last


@trapezoid_ssd.vjp("v", "da", "B", "C", "scale", "same", "initial_state")
def _(
    g: Any,
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    scale: Tensor,
    same: Tensor,
    initial_state: Tensor | None,
    positive: bool,
) -> Any:
    kernels = gpu_kernels(v, da, B, C, initial_state)
    if kernels is not None and _single(scale, same):
        *found, dfirst, dscale, dsame = kernels.backward(
            *g, v, da, B, C, initial_state, (scale, same), positive=positive
        )
        return *found, dscale, dsame, None if initial_state is None else dfirst.to(initial_state.dtype)
    with full_precision(v):
        dtype = working_dtype(v, da, B, C, scale, same, initial_state)
        wide, dY = v.to(dtype), g[0].to(dtype)
        dx, dda, dB, dC, dfirst = ssd.rules[0].function((dY, g[1]), _by_step(scale) * wide, da, B, C, initial_state)
        back, (from_B, from_C) = _through_steps(wide, B, C, _by_step(scale - same) * dY)
        dsame = (dY * _within_steps(wide, B, C)).sum((3, 5))
        dscale = (dx * wide).sum((3, 5)) - dsame
        dv = (_by_step(scale) * dx - back).to(v.dtype)
        return dv, dda, dB - from_B, dC - from_C, dscale.to(scale.dtype), dsame.to(same.dtype), dfirst


def _single(*tensors: Tensor) -> bool:
    return all(one.dtype is torch.float32 for one in tensors)


def _by_step(factor: Any) -> Any:
    """(b, n, l, h) as (b, n, l, 1, h, 1)."""
    return factor.unsqueeze(3).unsqueeze(-1)


def _scores(B: Any, C: Any, dtype: torch.dtype) -> Any:
    """<C[m], B[u]> of each step and group."""
    return torch.einsum("bnlmgr,bnlugr->bnlgmu", C.to(dtype), B.to(dtype))


def _within_steps(v: Any, B: Any, C: Any) -> Any:
    """T[m] = sum over u of <B[u], C[m]> v[u], of every step and head."""
    grouped = v.unflatten(4, (B.shape[4], -1))
    return torch.einsum("bnlgmu,bnlugkp->bnlmgkp", _scores(B, C, v.dtype), grouped).flatten(4, 5)


def _through_steps(v: Tensor, B: Tensor, C: Tensor, dT: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The gradients of v, B and C through T."""
    groups = B.shape[4]
    grouped, dT = v.unflatten(4, (groups, -1)), dT.unflatten(4, (groups, -1))
    dv = torch.einsum("bnlgmu,bnlmgkp->bnlugkp", _scores(B, C, v.dtype), dT).flatten(4, 5)
    dscores = torch.einsum("bnlmgkp,bnlugkp->bnlgmu", dT, grouped)
    dB = torch.einsum("bnlgmu,bnlmgr->bnlugr", dscores, C.to(v.dtype))
    dC = torch.einsum("bnlgmu,bnlugr->bnlmgr", dscores, B.to(v.dtype))
    return dv, (dB.to(B.dtype), dC.to(C.dtype))


@trapezoid_ssd.restate
def composed(v: Any, da: Any, B: Any, C: Any, scale: Any, same: Any, initial_state: Any, positive: bool = False) -> Any:
    """The same, of ops that can be differentiated again."""
    wide = v.to(working_dtype(v, da, B, C, scale, same, initial_state))
    y, last = composed_ssd(_by_step(scale) * wide, da, B, C, initial_state)
    return (y - _by_step(scale - same) * _within_steps(wide, B, C)).to(v.dtype), last


@trapezoid_ssd.example
def _(make: Any) -> Any:
    """Two chunks of two steps, rank 2, four heads in two groups."""
    decays, weights = make(1, 2, 2, 4, low=-1.0, high=-0.1), [make(1, 2, 2, 4, low=0.2, high=1.0) for _ in range(2)]
    return make(1, 2, 2, 2, 4, 1), decays, make(1, 2, 2, 2, 2, 2), make(1, 2, 2, 2, 2, 2), *weights, make(1, 4, 1, 2)
