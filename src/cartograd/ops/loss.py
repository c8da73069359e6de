"""Distances between a prediction and its target: squared, absolute, and the two mixtures of both.

Every loss, here and in `classes`, `likelihood` and `ranking`, has torch's two spellings: the function of
``torch.nn.functional``, whose `reduction` is a word, and the kernel's, whose `reduction` is a number.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import _reduction

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import composite, primitive
from cartograd.errors import OptionError

NONE, MEAN, SUM = 0, 1, 2
_CODES = {"none": NONE, "mean": MEAN, "sum": SUM, NONE: NONE, MEAN: MEAN, SUM: SUM}
UNSAID = MEAN if torch._C._nn.mse_loss(torch.zeros(2), torch.zeros(2)).dim() == 0 else NONE
"""What a kernel does that is told no reduction: the mean by its signature, but torch up to 2.13 at least does none."""

_nn: Any = torch._C._nn
_mse_backward = torch.ops.aten.mse_loss_backward.default
_smooth_l1_backward = torch.ops.aten.smooth_l1_loss_backward.default
_huber_backward = torch.ops.aten.huber_loss_backward.default


def reduction_code(reduction: Any, size_average: Any = None, reduce: Any = None) -> int:
    """The number torch's kernels know a reduction by; `size_average` and `reduce` are its deprecated spelling."""
    if size_average is not None or reduce is not None:
        return _reduction.legacy_get_enum(size_average, reduce)
    code = _CODES.get(reduction)
    return _reduction.get_enum(reduction) if code is None else code


def reduced(loss: Any, code: int) -> Any:
    """`loss` itself, its mean or its sum."""
    if code == NONE:
        return loss
    return loss.mean() if code == MEAN else loss.sum()


def share(g: Any, code: int, count: int) -> Any:
    """What each of `count` terms gets of the gradient `g` of their reduction."""
    return g / count if code == MEAN else g


def pair(input: Any, target: Any) -> tuple[Any, Any]:
    """Both in one shape and dtype: the backward kernels neither broadcast nor promote."""
    if input.shape != target.shape:
        input, target = torch.broadcast_tensors(input, target)
    if input.dtype != target.dtype:
        dtype = torch.promote_types(input.dtype, target.dtype)
        input, target = input.to(dtype), target.to(dtype)
    return input, target


def warn_of_broadcasting(input: Any, target: Any) -> None:
    """Torch's warning, at the place of the user's call."""
    if raw(target).shape != raw(input).shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=6,  # this, the composite, __torch_function__, handle_torch_function, F.*_loss, the caller
        )


def _weighted(loss: Any, weight: Any, code: int, total: Any) -> Any:
    """The reduction of ``loss * weight``; its mean is over `total`."""
    if weight.shape != loss.shape:
        raise OptionError(f"weight has shape {tuple(weight.shape)}, and the losses have {tuple(loss.shape)}")
    loss = loss * weight
    if code == NONE:
        return loss
    return loss.sum() / total if code == MEAN else loss.sum()


@primitive(_nn.mse_loss, broadcasts=True)
def mse_loss(input: Tensor, target: Tensor, reduction: int = UNSAID) -> Tensor:
    """(input - target)^2.   d/dinput = 2 g (input - target),  d/dtarget = -d/dinput;  g / n each for the mean"""
    return _nn.mse_loss(input, target, reduction)


@mse_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    return _mse_backward(g, *pair(input, target), reduction)


@mse_loss.vjp("target")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    return _mse_backward(g, *pair(target, input), reduction)


@mse_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3), MEAN


@mse_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(3), NONE


@composite(F.mse_loss)
def functional_mse_loss(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    weight: Any = None,
) -> Any:
    """(input - target)^2, reduced; with `weight`, its weighted mean or sum"""
    warn_of_broadcasting(input, target)
    code = reduction_code(reduction, size_average, reduce)
    if weight is None:
        return mse_loss(input, target, code)
    return _weighted(mse_loss(input, target, NONE), weight, code, weight.sum())


@primitive(_nn.l1_loss, broadcasts=True)
def l1_loss(input: Tensor, target: Tensor, reduction: int = UNSAID) -> Tensor:
    """|input - target|.   d/dinput = g sign(input - target),  d/dtarget = -d/dinput;  g / n each for the mean"""
    return _nn.l1_loss(input, target, reduction)


@l1_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    sign = torch.sign(input - target)
    return sign * share(g, reduction, sign.numel())


@l1_loss.vjp("target")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    sign = torch.sign(target - input)
    return sign * share(g, reduction, sign.numel())


@l1_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3) + 3.0, MEAN


@l1_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(3) - 3.0, SUM


def _weight_torch_forgot() -> Any:
    """The `weight` of the ``F.l1_loss`` being called: torch 2.13 does not hand it on to ``__torch_function__``."""
    frame = sys._getframe(2)
    for _ in range(4):  # __torch_function__, in recording() also the mode's, handle_torch_function, F.l1_loss
        if frame.f_code is F.l1_loss.__code__:
            return frame.f_locals.get("weight")
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


@composite(F.l1_loss)
def functional_l1_loss(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    weight: Any = None,
) -> Any:
    """|input - target|, reduced; with `weight`, its weighted mean or sum"""
    warn_of_broadcasting(input, target)
    code = reduction_code(reduction, size_average, reduce)
    weight = _weight_torch_forgot() if weight is None else weight
    if weight is None:
        return l1_loss(input, target, code)
    return _weighted(l1_loss(input, target, NONE), weight, code, weight.sum())


@primitive(_nn.smooth_l1_loss, broadcasts=True)
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: int = UNSAID, beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2.   d/dinput = g clamp(d / beta, -1, 1)"""
    return _nn.smooth_l1_loss(input, target, reduction, beta)


@smooth_l1_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    return _smooth_l1_backward(g, *pair(input, target), reduction, beta)


@smooth_l1_loss.vjp("target")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    return _smooth_l1_backward(g, *pair(target, input), reduction, beta)


@smooth_l1_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3) * 0.1 + torch.tensor([0.0, 2.0, -2.0], dtype=torch.float64), MEAN, 0.5


@composite(F.smooth_l1_loss)
def functional_smooth_l1_loss(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    beta: float = 1.0,
) -> Any:
    """The kernel's, and `l1_loss` for a beta of 0"""
    warn_of_broadcasting(input, target)
    code = reduction_code(reduction, size_average, reduce)
    return l1_loss(input, target, code) if beta == 0.0 else smooth_l1_loss(input, target, code, beta)


@primitive(_nn.huber_loss, broadcasts=True)
def huber_loss(input: Tensor, target: Tensor, reduction: int = UNSAID, delta: float = 1.0) -> Tensor:
    """d^2 / 2 where d = |input - target| < delta, else delta (d - delta / 2).   d/dinput = g clamp(d, -delta, delta)"""
    return _nn.huber_loss(input, target, reduction, delta)


@huber_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    return _huber_backward(g, *pair(input, target), reduction, delta)


@huber_loss.vjp("target")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    return _huber_backward(g, *pair(target, input), reduction, delta)


@huber_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3) * 0.1 + torch.tensor([0.0, 2.0, -2.0], dtype=torch.float64), SUM, 0.7


@composite(F.huber_loss)
def functional_huber_loss(
    input: Any, target: Any, reduction: Any = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    """The kernel's; with `weight`, the plain mean or sum of the weighted losses"""
    warn_of_broadcasting(input, target)
    code = reduction_code(reduction)
    if weight is None:
        return huber_loss(input, target, code, delta)
    return _weighted(huber_loss(input, target, NONE, delta), weight, code, weight.numel())
