r"""Mamba-3's scan of keys and queries as they are projected: spread to heads, biased and turned inside.

It is `trapezoid_ssd` of `turned_keys`. The rows of all heads, many times those of the groups, are not saved for the
backward pass, and of bfloat16, on a GPU that has the kernels, they are never in memory at all.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.kernels import gpu
from cartograd.ops import rotary
from cartograd.ops.rotary import turned_keys
from cartograd.ops.ssd_gpu import gpu_kernels
from cartograd.ops.ssd_trapezoid import composed as composed_scan
from cartograd.ops.ssd_trapezoid import trapezoid_ssd

MOST_RANKS = 16
"""Sums over the rows of a rank are products with a tile of so many rows."""


@primitive(multiple=True)
def turned_ssd(
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    scale: Tensor,
    same: Tensor,
    b_bias: Tensor,
    c_bias: Tensor,
    theta: Tensor,
    initial_state: Tensor | None = None,
    pairing: str = "adjacent",
    positive: bool = False,
) -> Any:
    """y and the last state; shapes as in `trapezoid_ssd`, biases (h, m, r), theta (b, n, l, h, a).

    The gradients are those of `trapezoid_ssd`, with those of its keys and queries turned back by `turned_keys`.
    """
    kernels = _kernels(v, da, B, C, (scale, same, b_bias, c_bias, theta), initial_state)
    if kernels is not None:
        keys, queries, biases, first = _adjacent(pairing, B, C, (b_bias, c_bias), initial_state)
        turn = kernels.Turn(*biases, theta.flatten(1, 2).contiguous())
        y, last = kernels.forward(v, da, keys, queries, first, (scale, same), turn)
        return y, (last if pairing == "adjacent" else _halves(last))
    return trapezoid_ssd.forward(
        v, da, _turned(B, b_bias, theta, pairing), _turned(C, c_bias, theta, pairing), scale, same, initial_state
    )


@turned_ssd.vjp("v", "da", "B", "C", "scale", "same", "b_bias", "c_bias", "theta", "initial_state")
def _(
    g: Any,
    v: Tensor,
    da: Tensor,
    B: Tensor,
    C: Tensor,
    scale: Tensor,
    same: Tensor,
    b_bias: Tensor,
    c_bias: Tensor,
    theta: Tensor,
    initial_state: Tensor | None,
    pairing: str,
    positive: bool,
) -> Any:
    given = v, da, B, C, scale, same, b_bias, c_bias, theta, initial_state
    kernels = _kernels(v, da, B, C, given[4:9], initial_state)
    if kernels is not None:
        return _by_kernels(kernels, g, given, pairing, positive)
    keys, queries = _turned(B, b_bias, theta, pairing), _turned(C, c_bias, theta, pairing)
    rule = trapezoid_ssd.rules[0].function
    dv, dda, dkeys, dqueries, dscale, dsame, dfirst = rule(
        g, v, da, keys, queries, scale, same, initial_state, positive
    )
    dB, db_bias, from_keys = _turned_back(dkeys, B, b_bias, theta, pairing)
    dC, dc_bias, from_queries = _turned_back(dqueries, C, c_bias, theta, pairing)
    return dv, dda, dB, dC, dscale, dsame, db_bias, dc_bias, from_keys + from_queries, dfirst


@turned_ssd.restate
def composed(
    v: Any, da: Any, B: Any, C: Any, scale: Any, same: Any, b_bias: Any, c_bias: Any, theta: Any,
    initial_state: Any, pairing: str = "adjacent", positive: bool = False,
) -> Any:  # fmt: skip
    """The same, of ops that can be differentiated again."""
    keys, queries = (
        rotary.composed(rows.flatten(1, 2), bias, theta.flatten(1, 2), pairing).unflatten(1, rows.shape[1:3])
        for rows, bias in ((B, b_bias), (C, c_bias))
    )
    return composed_scan(v, da, keys, queries, scale, same, initial_state)


@turned_ssd.example
def _(make: Any) -> Any:
    """Two chunks of two steps, four heads in two groups, one of two pairs turned."""
    return _example(make)


@turned_ssd.example
def _(make: Any) -> Any:
    """The same with the other pairing."""
    return *_example(make), "halves"


def _example(make: Any) -> Any:
    decays, weights = make(1, 2, 2, 4, low=-1.0, high=-0.1), [make(1, 2, 2, 4, low=0.2, high=1.0) for _ in range(2)]
    rows, biases = [make(1, 2, 2, 2, 2, 4) for _ in range(2)], [make(4, 2, 4) for _ in range(2)]
    return make(1, 2, 2, 2, 4, 1), decays, *rows, *weights, *biases, make(1, 2, 2, 4, 1), make(1, 4, 1, 4)


def _kernels(
    v: Tensor, da: Tensor, B: Tensor, C: Tensor, single: tuple[Tensor, ...], initial_state: Tensor | None
) -> ModuleType | None:
    """The module of kernels, if it takes these inputs and gains by it.

    Of float32 a program that turns keys has too much to keep in registers: there they are turned beside the scan.
    """
    narrow = all(one.dtype is torch.bfloat16 for one in (v, B, C))
    fitting = (
        (narrow or gpu.interpreted())
        and all(one.dtype is torch.float32 for one in single)
        and B.shape[5] % 2 == 0
        and B.shape[3] == C.shape[3] <= MOST_RANKS
    )
    return gpu_kernels(v, da, B, C, initial_state) if fitting else None


def _by_kernels(kernels: ModuleType, g: Any, given: tuple[Any, ...], pairing: str, positive: bool) -> Any:
    v, da, B, C, scale, same, b_bias, c_bias, theta, initial_state = given
    keys, queries, biases, first = _adjacent(pairing, B, C, (b_bias, c_bias), initial_state)
    dlast = g[1] if pairing == "adjacent" else _interleaved(g[1])
    turn = kernels.Turn(*biases, theta.flatten(1, 2).contiguous())
    dv, dda, *of_keys, dfirst, dscale, dsame, db_bias, dc_bias, dtheta = kernels.backward(
        g[0], dlast, v, da, keys, queries, first, (scale, same), turn, positive
    )
    dB, dC, db_bias, dc_bias, dfirst = (
        one if pairing == "adjacent" else _halves(one) for one in (*of_keys, db_bias, dc_bias, dfirst)
    )
    dfirst = None if initial_state is None else dfirst.to(initial_state.dtype)
    return dv, dda, dB, dC, dscale, dsame, db_bias, dc_bias, dtheta.view(theta.shape), dfirst


def _adjacent(pairing: str, B: Tensor, C: Tensor, biases: tuple[Tensor, ...], state: Tensor | None) -> Any:
    """Keys, queries, biases and the first state with the channels of a pair beside each other."""
    if pairing == "adjacent":
        return B, C, [one.contiguous() for one in biases], state
    return (
        _interleaved(B),
        _interleaved(C),
        [_interleaved(one) for one in biases],
        None if state is None else _interleaved(state),
    )


def _interleaved(rows: Tensor) -> Tensor:
    """Channels 0, r / 2, 1, r / 2 + 1 and so on."""
    return rows.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2).contiguous()


def _halves(rows: Tensor) -> Tensor:
    """What `_interleaved` undoes."""
    return rows.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def _turned(rows: Tensor, bias: Tensor, theta: Tensor, pairing: str) -> Tensor:
    found: Tensor = turned_keys.forward(rows.flatten(1, 2), bias, theta.flatten(1, 2), pairing)
    return found.unflatten(1, rows.shape[1:3])


def _turned_back(g: Tensor, rows: Tensor, bias: Tensor, theta: Tensor, pairing: str) -> tuple[Tensor, Tensor, Tensor]:
    given = rows.flatten(1, 2), bias, theta.flatten(1, 2), pairing
    drows, dbias, dtheta = turned_keys.rules[0].function(g.flatten(1, 2), *given)
    return drows.view(rows.shape), dbias, dtheta.view(theta.shape)
