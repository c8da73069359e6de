"""Dropout: the mask is drawn in the forward and kept for the gradient."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import composite, primitive

_dropout_backward = torch.ops.aten.native_dropout_backward.default
ALPHA = 1.7580993408473766
"""-(what SELU tends to far below 0): alpha dropout puts this in for what it drops."""


@primitive(F.dropout, extra="constant")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """input / (1 - p), but 0 with probability p.   d/dinput = g / (1 - p) where input was kept, else 0"""
    return torch.native_dropout(input, p, True)


@dropout.vjp("input")
def _(g: Tensor, p: float, extra: Tensor) -> Tensor:
    return _dropout_backward(g, extra, _scale(p))


@dropout.example
def _(make: Any) -> Any:
    return make(2, 3), 1e-12


@dropout.example
def _(make: Any) -> Any:
    return make(2, 3), 1.0


@composite(F.dropout)
def functional_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """`dropout` in training, else the very same tensor"""
    return dropout(input, p, True, inplace) if _drops(p, training) else input


@composite(torch.dropout)
def torch_dropout(input: Any, p: float, train: bool, inplace: bool = False) -> Any:
    """`dropout` as the C++ function spells it"""
    return functional_dropout(input, p, train, inplace)


@primitive(extra="constant")
def feature_dropout(input: Tensor, p: float, batched: bool = True, inplace: bool = False) -> Any:
    """`dropout` of whole channels: axis 1, or axis 0 where there is no batch.   d/dinput = g * (0 or 1 / (1 - p))"""
    noise = _kept(input, p, _channel_shape(input, batched)).mul_(_scale(p))
    return input * noise, noise


@feature_dropout.vjp("input")
def _(g: Tensor, extra: Tensor) -> Tensor:
    return g * extra


@feature_dropout.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 1e-12


@composite(torch.feature_dropout)
def torch_feature_dropout(input: Any, p: float, train: bool, inplace: bool = False) -> Any:
    """`feature_dropout` as the C++ function spells it"""
    return feature_dropout(input, p, True, inplace) if _drops(p, train) else input


@composite(F.dropout1d)
def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Drops channels of (N, C, L) or (C, L)"""
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: expected an input (N, C, L) or (C, L), got shape {tuple(input.shape)}")
    return feature_dropout(input, p, input.dim() == 3, inplace) if _drops(p, training) else input


@composite(F.dropout2d)
def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Drops channels of (N, C, H, W)"""
    if input.dim() != 4:
        warnings.warn(
            f"dropout2d: expected an input (N, C, H, W), got shape {tuple(input.shape)}; "
            "as in torch, axis 1 is taken for the channels",
            stacklevel=5,
        )
    return feature_dropout(input, p, True, inplace) if _drops(p, training) else input


@composite(F.dropout3d)
def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Drops channels of (N, C, D, H, W) or (C, D, H, W)"""
    if input.dim() not in (4, 5):
        warnings.warn(
            f"dropout3d: expected an input (N, C, D, H, W) or (C, D, H, W), got shape {tuple(input.shape)}; "
            "as in torch, axis 0 is taken for the channels",
            stacklevel=5,
        )
    return feature_dropout(input, p, input.dim() == 5, inplace) if _drops(p, training) else input


@primitive(F.alpha_dropout, extra="constant")
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """-1.758 instead of input with probability p, then scaled and moved so that mean 0 and variance 1 stay so.

    d/dinput = g * scale where input was kept, else 0
    """
    return _alpha_dropped(input, p, _kept(input, p, input.shape))


@alpha_dropout.vjp("input")
def _(g: Tensor, extra: Tensor) -> Tensor:
    return g * extra


@alpha_dropout.example
def _(make: Any) -> Any:
    return make(2, 3), 1e-12


@composite(F.alpha_dropout)
def functional_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """`alpha_dropout` in training, else the very same tensor"""
    return alpha_dropout(input, p, True, inplace) if _drops(p, training) else input


@composite(torch.alpha_dropout)
def torch_alpha_dropout(input: Any, p: float, train: bool, inplace: bool = False) -> Any:
    """`alpha_dropout` as the C++ function spells it"""
    return functional_alpha_dropout(input, p, train, inplace)


@primitive(F.feature_alpha_dropout, extra="constant")
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """`alpha_dropout` of whole channels (axis 1).   d/dinput = g * scale where the channel was kept, else 0"""
    return _alpha_dropped(input, p, _kept(input, p, _channel_shape(input, True)))


@feature_alpha_dropout.vjp("input")
def _(g: Tensor, extra: Tensor) -> Tensor:
    return g * extra


@feature_alpha_dropout.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 1e-12


@composite(F.feature_alpha_dropout)
def functional_feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """`feature_alpha_dropout` in training, else the very same tensor"""
    return feature_alpha_dropout(input, p, True, inplace) if _drops(p, training) else input


@composite(torch.feature_alpha_dropout)
def torch_feature_alpha_dropout(input: Any, p: float, train: bool, inplace: bool = False) -> Any:
    """`feature_alpha_dropout` as the C++ function spells it"""
    return functional_feature_alpha_dropout(input, p, train, inplace)


IN_PLACE: dict[Any, Any] = {
    torch.dropout_: torch_dropout,
    torch.feature_dropout_: torch_feature_dropout,
    torch.alpha_dropout_: torch_alpha_dropout,
    torch.feature_alpha_dropout_: torch_feature_alpha_dropout,
}
for function, op in IN_PLACE.items():
    composite(function)(partial(op, inplace=True))


def _drops(p: float, training: bool) -> bool:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return training and p > 0.0


def _scale(p: float) -> float:
    return 0.0 if p == 1 else 1.0 / (1.0 - p)


def _channel_shape(input: Tensor, batched: bool) -> tuple[int, ...]:
    if input.dim() < 2:
        raise RuntimeError(f"dropout of channels needs an input of at least 2 axes, got shape {tuple(input.shape)}")
    kept = 2 if batched else 1
    return tuple(input.shape[:kept]) + (1,) * (input.dim() - kept)


def _kept(input: Tensor, p: float, shape: Any) -> Tensor:
    """1 with probability 1 - p, else 0, drawn as torch draws it."""
    return torch.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)


def _alpha_dropped(input: Tensor, p: float, kept: Tensor) -> Any:
    if p == 1:
        return input * kept, kept
    scale = 1.0 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    shift = (kept - 1).mul_(ALPHA * scale).add_(ALPHA * scale * p)
    noise = kept.mul_(scale)
    return input * noise + shift, noise
