"""Negative log-likelihoods: of bits, counts and Gaussians; and the KL divergence. Those of classes are in `classes`."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.transparent import lifted
from cartograd.errors import OptionError
from cartograd.ops.loss import MEAN, SUM, UNSAID, reduced, reduction_code, share

_nn: Any = torch._C._nn
_bce_backward = torch.ops.aten.binary_cross_entropy_backward.default


@primitive(_nn.binary_cross_entropy)
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = UNSAID
) -> Tensor:
    """-(t log x + (1 - t) log(1 - x)), logs no less than -100.   d/dx = g (x - t) / (x (1 - x)),  d/dt = -g logit(x)"""
    return _nn.binary_cross_entropy(input, target, weight, reduction)


@binary_cross_entropy.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, reduction: int) -> Tensor:
    return _bce_backward(g, input, target, weight, reduction)


@binary_cross_entropy.vjp("target")
def _(g: Tensor, input: Tensor, weight: Tensor | None, reduction: int) -> Tensor:
    return _spread(torch.log1p(-input) - torch.log(input), g, weight, reduction)


@binary_cross_entropy.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.1, high=0.9), make(2, 3, low=0.1, high=0.9), make(3, low=0.5), MEAN


@composite(F.binary_cross_entropy)
def functional_binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    """`binary_cross_entropy` with its reduction as a word"""
    _require_equal_sizes(input, target)
    return binary_cross_entropy(input, target, weight, reduction_code(reduction, size_average, reduce))


def _require_equal_sizes(input: Any, target: Any) -> None:
    if target.shape != input.shape:
        raise OptionError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")


def _spread(slope: Any, g: Any, weight: Any, reduction: int) -> Any:
    """The chain rule behind a weight and a reduction, where `slope` is the derivative of every single loss."""
    if weight is not None:
        slope = slope * weight
    return slope * share(g, reduction, slope.numel())


@primitive(torch.binary_cross_entropy_with_logits, broadcasts=True)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = UNSAID,
) -> Tensor:
    """-(p t log s + (1 - t) log(1 - s)), s = sigmoid(input).   d/dinput = g ((p t + 1 - t) s - p t)

    p is `pos_weight`, or 1;  d/dtarget = g (log(1 - s) - p log s), which is -g input for p = 1.
    """
    return torch.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)


@binary_cross_entropy_with_logits.vjp("input")
def _(
    g: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: int
) -> Tensor:
    if pos_weight is None:
        return _spread(torch.sigmoid(input) - target, g, weight, reduction)
    positive = pos_weight * target
    return _spread((positive + 1 - target) * torch.sigmoid(input) - positive, g, weight, reduction)


@binary_cross_entropy_with_logits.vjp("target")
def _(
    g: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: int
) -> Tensor:
    slope = -input if pos_weight is None else F.logsigmoid(-input) - pos_weight * F.logsigmoid(input)
    return _spread(slope if slope.shape == target.shape else slope.expand_as(target), g, weight, reduction)


@binary_cross_entropy_with_logits.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3), None, None, SUM


@binary_cross_entropy_with_logits.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3), make(2, 1, low=0.5), make(3, low=0.5), MEAN


@composite(F.binary_cross_entropy_with_logits)
def functional_binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    pos_weight: Any = None,
) -> Any:
    """`binary_cross_entropy_with_logits` with its reduction as a word"""
    _require_equal_sizes(input, target)
    code = reduction_code(reduction, size_average, reduce)
    return binary_cross_entropy_with_logits(input, target, weight, pos_weight, code)


@primitive(torch.kl_div, broadcasts=True, extra="constant")
def kl_div(input: Tensor, target: Tensor, reduction: int = UNSAID, *, log_target: bool = False) -> Any:
    """target (log target - input), or e^target (target - input).   d/dinput = -g target, or -g e^target

    d/dtarget = g (log target + 1 - input), or g e^target (target - input + 1).
    """
    shape = input.shape if input.shape == target.shape else torch.broadcast_shapes(input.shape, target.shape)
    return torch.kl_div(input, target, reduction, log_target=log_target), shape


@kl_div.vjp("input")
def _(g: Tensor, target: Tensor, reduction: int, log_target: bool, extra: torch.Size) -> Tensor:
    slope = -(torch.exp(target) if log_target else target)
    return (slope * share(g, reduction, extra.numel())).expand(extra)


@kl_div.vjp("target")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int, log_target: bool, extra: torch.Size) -> Tensor:
    slope = torch.exp(target) * (target - input + 1) if log_target else torch.log(target) + 1 - input
    return slope * share(g, reduction, extra.numel())


@kl_div.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3, low=0.1), SUM


@kl_div.example
def _(make: Any) -> Any:
    return make(2, 3), make(3), MEAN, True


@composite(F.kl_div)
def functional_kl_div(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    log_target: bool = False,
) -> Any:
    """`kl_div` with its reduction as a word, which may also be "batchmean": the sum over the first axis's length"""
    legacy = size_average is not None or reduce is not None
    if reduction == "mean" and not legacy:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
            stacklevel=5,
        )
    by_batch = reduction == "batchmean"
    code = reduction_code("sum" if by_batch else reduction, size_average, reduce)
    loss = kl_div(input, target, code, log_target=log_target)
    return loss / input.shape[0] if by_batch and input.dim() else loss


@composite(torch.poisson_nll_loss)
def poisson_nll_loss(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    """e^input - target input, or input - target log(input + eps); `full` adds Stirling's log(target!) above 1"""
    input, target = lifted(input), lifted(target)
    if log_input:
        loss = torch.exp(input) - target * input
    else:
        loss = input - target * torch.log(input + eps)
    if full:
        stirling = target * torch.log(target) - target + 0.5 * torch.log(2 * math.pi * target)
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


@composite(F.poisson_nll_loss)
def functional_poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`poisson_nll_loss` with its reduction as a word"""
    code = reduction_code(reduction, size_average, reduce)
    return poisson_nll_loss(input, target, log_input, full, eps, code)


@primitive()
def raised_to(input: Tensor, floor: float) -> Tensor:
    """max(input, floor).   d/dinput = g even below the floor, so that a variance can grow out of it again"""
    return torch.clamp_min(input, floor)


@raised_to.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@raised_to.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.5), 0.1


@composite(F.gaussian_nll_loss)
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: Any = "mean"
) -> Any:
    """(log v + (input - target)^2 / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2"""
    if isinstance(var, float):
        var = torch.full_like(raw(input), var)
    if bool((raw(var) < 0).any()):
        raise OptionError("var has negative entry/entries")
    var = raised_to(_variance_for(input, var), eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction_code(reduction))


def _variance_for(input: Any, var: Any) -> Any:
    """`var` with an axis for the last one of the input, where it lacks it."""
    if var.shape == input.shape:
        return var
    if var.shape == input.shape[:-1]:
        return torch.unsqueeze(var, -1)
    unequal = [v for v, n in zip(var.shape, input.shape, strict=False) if v != n]
    if var.dim() == input.dim() and sum(unequal) == 1:
        return var
    raise OptionError(f"var is of incorrect size: {tuple(var.shape)}, for an input of {tuple(input.shape)}")
