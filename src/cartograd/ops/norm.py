"""Normalisation of channels: over a batch, an instance, or a group of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine import modes
from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.transparent import lifted
from cartograd.errors import OptionError
from cartograd.ops.layout import channels_last, dense, regular

aten = torch.ops.aten
_batch_norm_forward = torch._batch_norm_impl_index
_batch_norm_backward = aten._batch_norm_impl_index_backward.default
_frozen_backward = aten.native_batch_norm_backward.default
_group_norm_backward = aten.native_group_norm_backward.default

Needs = tuple[bool, ...]


def layouts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a norm the keyword `layout`: "NLC", "NHWC" or "NDHWC" put the channels last. The batch is never left out."""
    adapted = channels_last(function)

    @functools.wraps(adapted, updated=())
    def with_layout(input: Any, *args: Any, layout: str | None = None, **options: Any) -> Any:
        if layout is not None and layout.endswith("C") and input.dim() != len(layout):
            raise OptionError(
                f"{function.__name__} with layout={layout!r} takes an input of {len(layout)} axes, "
                f"got shape {tuple(input.shape)}"
            )
        return adapted(input, *args, layout=layout, **options)

    return with_layout


def _require_several(size: tuple[int, ...], count: int, what: str) -> None:
    """The variance of a single number is zero whatever it is: torch refuses to normalise by it."""
    if count == 1:
        raise ValueError(f"Expected more than 1 {what} when training, got input size {tuple(size)}")


def _contiguous(parameter: Tensor | None) -> Tensor | None:
    """Return a parameter as the kernels read it: as if it were contiguous, whatever its strides."""
    return None if parameter is None else parameter.contiguous()


def _nothing(input: Tensor, weight: Tensor | None, need: Needs) -> tuple[Any, Any, Any]:
    """The gradients of the norm of an empty batch: zeros. The kernels do not know it."""
    like = input if weight is None else weight
    zeros = [torch.zeros(input.shape[1], dtype=like.dtype, device=like.device) if one else None for one in need[1:]]
    return torch.zeros_like(input) if need[0] else None, zeros[0], zeros[1]


@primitive(extra="constant")
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> Any:
    """(input - mean) * rstd * weight + bias over a batch. With n = (input - mean) * rstd and h = g * weight:

    d/dinput = rstd * (h - mean(h) - n * mean(h * n)),  d/dweight = sum(g * n),  d/dbias = sum(g).
    The kernel writes the new running statistics into `running_mean` and `running_var`; nothing is computed from them.
    """
    given = (running_mean, running_var, True, momentum, eps, torch.backends.cudnn.enabled)
    out, *saved = _batch_norm_forward(regular(input), weight, bias, *given)
    return out, tuple(saved)


@native_batch_norm.vjp("input", "weight", "bias")
def _(g: Tensor, input: Tensor, weight: Tensor | None, eps: float, extra: Any, need: Needs) -> Any:
    if input.numel() == 0:
        return _nothing(input, weight, need)
    mean, rstd, reserve, kind = extra
    both = (regular(input), regular(g))
    return _batch_norm_backward(kind, *both, _contiguous(weight), None, None, mean, rstd, True, eps, need, reserve)


@native_batch_norm.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(2), make(2), None, None, 0.1, 1e-5


@native_batch_norm.example
def _(make: Any) -> Any:
    return make(4, 3), None, None, None, None, 0.1, 1e-5


@primitive(extra="constant")
def frozen_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    eps: float,
) -> Any:
    """(input - running_mean) * rstd * weight + bias with rstd = 1 / sqrt(running_var + eps): no batch statistics.

    d/dinput = g * weight * rstd,  d/dweight = sum(g * (input - running_mean) * rstd),  d/dbias = sum(g).
    The statistics are copied for the rules: a later step in training mode may change them before the backward pass.
    """
    cudnn = torch.backends.cudnn.enabled
    out = torch.batch_norm(input, weight, bias, running_mean, running_var, False, 0.0, eps, cudnn)
    return out, (running_mean.clone(), running_var.clone())


@frozen_batch_norm.vjp("input")
def _(g: Tensor, weight: Tensor | None, eps: float, extra: Any) -> Tensor:
    scale = (extra[1] + eps).rsqrt()
    scale = scale if weight is None else weight * scale
    return (g * scale.view(-1, *[1] * (g.dim() - 2))).to(g.dtype)


@frozen_batch_norm.vjp("weight", "bias")
def _(g: Tensor, input: Tensor, weight: Tensor | None, eps: float, extra: Any, need: Needs) -> Any:
    if input.numel() == 0:
        return _nothing(input, weight, (False, *need))[1:]
    mean, var = extra
    given = (regular(g), regular(input), _contiguous(weight), mean, var, mean, (var + eps).rsqrt())
    return _frozen_backward(*given, False, eps, (False, *need))[1:]


@frozen_batch_norm.example
def _(make: Any) -> Any:
    return make(2, 2, 3), make(2), make(2), torch.tensor([0.1, -0.2]).double(), torch.tensor([0.7, 1.3]).double(), 1e-5


def _batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Either of the two ops above. The new running statistics are computed in copies and stored once, here.

    So the op itself can be run again (to recompute what it had saved) without moving them a second time.
    """
    if not training:
        if mean is None or var is None:
            raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
        return frozen_batch_norm(input, weight, bias, mean, var, eps)
    running = [(raw(one).detach(), raw(one).detach().clone()) for one in (mean, var) if one is not None]
    copies = iter(copy for _, copy in running)
    new_mean, new_var = (None if one is None else next(copies) for one in (mean, var))
    out = native_batch_norm(input, weight, bias, new_mean, new_var, momentum, eps)
    for statistic, copy in running:
        if not modes.watch.replaying:  # a recomputation moves no statistics
            statistic.copy_(copy)
    return out


@layouts
@composite(F.batch_norm)
def batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """As `torch.nn.functional.batch_norm`: normalise every channel over the batch, or with running statistics."""
    if training:
        size = tuple(input.shape)
        _require_several(size, math.prod((size[0], *size[2:])), "value per channel")
    if eps < 0 or (training and eps == 0):
        raise ValueError(f"batch_norm eps must be {'positive during training' if training else '>= 0'}, got {eps}")
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite(torch.batch_norm)
def torch_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """`batch_norm` as torch spells it inside."""
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite(torch.native_batch_norm, aten.native_batch_norm.default, aten.native_batch_norm)
def batch_norm_and_statistics(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """(out, mean, rstd), all three differentiable; torch has no gradient for the statistics."""
    out = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training:
        return out, torch.empty(0, dtype=input.dtype), torch.empty(0, dtype=input.dtype)
    return out, *moments(input, [axis for axis in range(input.dim()) if axis != 1], eps)


def moments(input: Any, axes: list[int], eps: float, keepdim: bool = False) -> tuple[Any, Any]:
    """The mean and 1 / sqrt(variance + eps) over these axes."""
    mean = input.mean(axes, keepdim=True)
    centred = input - mean
    rstd = ((centred * centred).mean(axes, keepdim=keepdim) + eps).rsqrt()
    return mean if keepdim else mean.reshape(rstd.shape), rstd


@layouts
@composite(F.instance_norm)
def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """As `torch.nn.functional.instance_norm`: normalise every channel of every element of the batch on its own."""
    if use_input_stats:
        _require_several(input.shape, math.prod(input.shape[2:]), "spatial element")
    return _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


@composite(torch.instance_norm)
def torch_instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """`instance_norm` as torch spells it inside."""
    return _instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


def _instance_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, momentum: float, eps: float
) -> Any:
    """A group norm with one group a channel; with running statistics, a batch norm of the batch's channels in a row."""
    if not use_input_stats:
        return _batch_norm(input, weight, bias, mean, var, False, momentum, eps)
    batch, channels = input.shape[:2]
    if mean is None and var is None:
        return native_group_norm(input, weight, bias, channels, eps)
    repeated: list[Any] = [None if one is None else raw(one).detach().repeat(batch) for one in (mean, var)]
    affine = [None if one is None else lifted(one).repeat(batch) for one in (weight, bias)]
    row = input.reshape(1, batch * channels, *input.shape[2:])
    out = native_batch_norm(row, *affine, *repeated, momentum, eps)
    for running, every in zip((mean, var), repeated, strict=True):
        if running is not None and not modes.watch.replaying:
            raw(running).detach().copy_(every.view(batch, channels).mean(0))
    return out.reshape(input.shape)


def _sizes(input: Tensor) -> tuple[int, int, int]:
    """Batch, channels, and elements a channel."""
    return input.shape[0], input.shape[1], math.prod(input.shape[2:])


@primitive(extra="constant")
def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, num_groups: int, eps: float) -> Any:
    """(input - mean) * rstd * weight + bias over the channels of a group. With n and h as for `native_batch_norm`:

    d/dinput = rstd * (h - mean(h) - n * mean(h * n)),  d/dweight = sum(g * n),  d/dbias = sum(g)
    """
    weight, bias = _contiguous(weight), _contiguous(bias)
    out, mean, rstd = torch.native_group_norm(dense(input), weight, bias, *_sizes(input), num_groups, eps)
    return out, (mean, rstd)


@native_group_norm.vjp("input", "weight", "bias")
def _(g: Tensor, input: Tensor, weight: Tensor | None, num_groups: int, extra: Any, need: Needs) -> Any:
    input = dense(input)
    g = regular(g.contiguous()) if input.is_contiguous() else torch.empty_like(input).copy_(g)
    return _group_norm_backward(g, input, *extra, _contiguous(weight), *_sizes(input), num_groups, need)


@native_group_norm.restate
def _(input: Any, weight: Any, bias: Any, num_groups: int, eps: float) -> Any:
    batch, channels, rest = _sizes(input)
    grouped = input.reshape(batch, num_groups, channels // num_groups * rest)
    mean, rstd = moments(grouped, [2], eps, keepdim=True)
    out = ((grouped - mean) * rstd).reshape(input.shape)
    shape = (1, -1, *[1] * (input.dim() - 2))
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


@native_group_norm.example
def _(make: Any) -> Any:
    return make(2, 4, 2), make(4), make(4), 2, 1e-5


@native_group_norm.example
def _(make: Any) -> Any:
    return make(1, 2, 2, 2), None, None, 2, 1e-5


@layouts
@composite(F.group_norm)
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """As `torch.nn.functional.group_norm`: normalise every group of channels of every element on its own."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    batch, channels, rest = _sizes(input)
    _require_several(input.shape, batch * channels // num_groups * rest, "value per channel")
    return native_group_norm(input, weight, bias, num_groups, eps)


@composite(torch.group_norm)
def torch_group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    """`group_norm` as torch spells it inside."""
    return native_group_norm(input, weight, bias, num_groups, eps)


@composite(torch.native_group_norm, aten.native_group_norm.default, aten.native_group_norm)
def group_norm_and_statistics(
    input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    """(out, mean, rstd), all three differentiable."""
    both = moments(input.reshape(N, group, C // group * HxW), [2], eps)
    return native_group_norm(input, weight, bias, group, eps), *both
