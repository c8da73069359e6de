"""Normalisation over the last axes: layer norm and root-mean-square norm."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import composite, primitive
from cartograd.ops.norm import Needs, moments

aten = torch.ops.aten
_layer_norm_backward = aten.native_layer_norm_backward.default
_rms_norm_backward = aten._fused_rms_norm_backward.default


@primitive(F.layer_norm, torch.layer_norm, extra="constant")
def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    """(input - mean) * rstd * weight + bias over the last axes. With n = (input - mean) * rstd and h = g * weight:

    d/dinput = rstd * (h - mean(h) - n * mean(h * n)),  d/dweight = sum(g * n),  d/dbias = sum(g)
    """
    out, mean, rstd = torch.native_layer_norm(input, normalized_shape, weight, bias, eps)
    return out, (mean, rstd)


@layer_norm.vjp("input", "weight", "bias")
def _(
    g: Tensor, input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, extra: Any, need: Needs
) -> Any:
    return _layer_norm_backward(g, input, normalized_shape, *extra, weight, bias, need)


@layer_norm.example
def _(make: Any) -> Any:
    return make(2, 3, 2), [3, 2], make(3, 2), make(3, 2)


@layer_norm.example
def _(make: Any) -> Any:
    return make(3, 4), [4]


@composite(torch.native_layer_norm, aten.native_layer_norm.default, aten.native_layer_norm)
def layer_norm_and_statistics(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """(out, mean, rstd), all three differentiable; torch has no gradient for the statistics."""
    axes = list(range(input.dim() - len(normalized_shape), input.dim()))
    return layer_norm(input, normalized_shape, weight, bias, eps), *moments(input, axes, eps, keepdim=True)


@primitive(F.rms_norm, torch.rms_norm, extra="constant")
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
    """input * r * weight with r = 1 / sqrt(mean(input^2) + eps) over the last axes. With n = input * r, h = g * weight:

    d/dinput = r * (h - n * mean(h * n)),  d/dweight = sum(g * n).   `eps` of None is the dtype's own.
    """
    if weight is None or weight.dtype is input.dtype:
        return torch._fused_rms_norm(input, normalized_shape, weight, eps)
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    return torch.rms_norm(input, normalized_shape, weight, eps), _inverse_rms(wide, normalized_shape, eps, input.dtype)


def _inverse_rms(input: Any, normalized_shape: Any, eps: float | None, dtype: torch.dtype) -> Any:
    axes = list(range(input.dim() - len(normalized_shape), input.dim()))
    return ((input * input).mean(axes, keepdim=True) + (torch.finfo(dtype).eps if eps is None else eps)).rsqrt()


@rms_norm.vjp("input", "weight")
def _(g: Tensor, input: Tensor, normalized_shape: Any, weight: Tensor | None, extra: Tensor, need: Needs) -> Any:
    if input.is_cuda and (weight is None or weight.dtype is input.dtype):
        return _rms_norm_backward(g, input, normalized_shape, extra, weight, need)
    axes = list(range(input.dim() - len(normalized_shape), input.dim()))
    normal = input * extra  # float32 for half precision, as the statistics are
    of_input = of_weight = None
    if need[0]:
        scaled = g if weight is None else g * weight
        of_input = (extra * (scaled - normal * (scaled * normal).mean(axes, keepdim=True))).to(input.dtype)
    if weight is not None and need[1]:
        of_weight = (g * normal).sum_to_size(weight.shape).to(weight.dtype)
    return of_input, of_weight


@rms_norm.restate
def _(input: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    out = input * _inverse_rms(input, normalized_shape, eps, input.dtype)
    return out if weight is None else out * weight


@rms_norm.example
def _(make: Any) -> Any:
    return make(2, 3, 2), [3, 2], make(3, 2), 1e-3


@rms_norm.example
def _(make: Any) -> Any:
    return make(3, 4), [4]
