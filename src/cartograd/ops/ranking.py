"""Losses with a margin: of the right class over the others, of pairs, of triplets."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.transparent import lifted
from cartograd.errors import OptionError
from cartograd.ops.likelihood import binary_cross_entropy_with_logits
from cartograd.ops.loss import MEAN, NONE, SUM, UNSAID, pair, reduced, reduction_code

_nn: Any = torch._C._nn
_multi_margin_backward = torch.ops.aten.multi_margin_loss_backward.default
_multilabel_margin_forward = torch.ops.aten.multilabel_margin_loss_forward.default
_multilabel_margin_backward = torch.ops.aten.multilabel_margin_loss_backward.default
_soft_margin_backward = torch.ops.aten.soft_margin_loss_backward.default


@primitive(_nn.multi_margin_loss)
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: int = UNSAID,
) -> Tensor:
    """h = sum over j != t of weight[t] max(0, margin - x[t] + x[j])^p / classes.   d/dx[j] = g times its own term's

    slope, p weight[t] max(0, ...)^(p - 1) / classes;  d/dx[t] is minus the sum of those.
    """
    return _nn.multi_margin_loss(input, target, p, margin, weight, reduction)


@multi_margin_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, p: int, margin: float, weight: Tensor | None, reduction: int) -> Tensor:
    return _multi_margin_backward(g, input, target, p, margin, weight, reduction)


@multi_margin_loss.restate
def _(input: Any, target: Any, p: int, margin: float, weight: Any, reduction: int) -> Any:
    rows = input.reshape(-1, input.shape[-1])
    right = target.reshape(-1, 1)
    terms = torch.relu(margin - torch.gather(rows, 1, right) + rows) ** p
    terms = terms.masked_fill(right == torch.arange(rows.shape[1], device=right.device), 0.0)
    if weight is not None:
        terms = terms * weight[right]
    loss = terms.sum(1) / rows.shape[1]
    return reduced(loss.reshape(target.shape) if reduction == NONE else loss, reduction)


@multi_margin_loss.example
def _(make: Any) -> Any:
    return make(3, 4), torch.tensor([0, 3, 1]), 2, 3.0, make(4, low=0.5), MEAN


@multi_margin_loss.example
def _(make: Any) -> Any:
    return make(4), torch.tensor(2), 1, 3.0, None, NONE


@composite(F.multi_margin_loss)
def functional_multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`multi_margin_loss` with its reduction as a word"""
    if p not in (1, 2):
        raise OptionError(f"only p == 1 and p == 2 supported, got {p}")
    if weight is not None and weight.dim() != 1:
        raise OptionError(f"weight must be one-dimensional, got shape {tuple(weight.shape)}")
    return multi_margin_loss(input, target, p, margin, weight, reduction_code(reduction, size_average, reduce))


@primitive(_nn.multilabel_margin_loss, extra="constant")
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: int = UNSAID) -> Any:
    """sum over targets t and all other classes j of max(0, 1 - x[t] + x[j]) / classes; a row's targets end at a -1

    d/dx[j] = g / classes for every such term that is positive,  d/dx[t] = -g / classes for each of its own.
    """
    return _multilabel_margin_forward(input, target, reduction)


@multilabel_margin_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int, extra: Tensor) -> Tensor:
    return _multilabel_margin_backward(g, input, target, reduction, extra)


@multilabel_margin_loss.restate
def _(input: Any, target: Any, reduction: int) -> Any:
    named = torch.cumprod(target >= 0, -1).bool()  # those before the first -1
    right = target.clamp_min(0)
    is_target = torch.zeros_like(target).scatter_add(-1, right, named.long()) > 0
    terms = torch.relu(1 - torch.gather(input, -1, right).unsqueeze(-1) + input.unsqueeze(-2))
    counted = named.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    return reduced(torch.where(counted, terms, 0.0).sum((-2, -1)) / input.shape[-1], reduction)


@multilabel_margin_loss.example
def _(make: Any) -> Any:
    return make(2, 4) * 0.4, torch.tensor([[3, 0, -1, 1], [2, -1, 0, 0]]), MEAN


@multilabel_margin_loss.example
def _(make: Any) -> Any:
    return make(4) * 0.4, torch.tensor([3, 0, -1, 1]), SUM


@composite(F.multilabel_margin_loss)
def functional_multilabel_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    """`multilabel_margin_loss` with its reduction as a word"""
    return multilabel_margin_loss(input, target, reduction_code(reduction, size_average, reduce))


@primitive(_nn.soft_margin_loss, broadcasts=True)
def soft_margin_loss(input: Tensor, target: Tensor, reduction: int = UNSAID) -> Tensor:
    """log(1 + e^(-target input)).   d/dinput = -g target sigmoid(-target input), and likewise for the target"""
    return _nn.soft_margin_loss(input, target, reduction)


@soft_margin_loss.vjp("input")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    return _soft_margin_backward(g, *pair(input, target), reduction)


@soft_margin_loss.vjp("target")
def _(g: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    return _soft_margin_backward(g, *pair(target, input), reduction)


@soft_margin_loss.restate
def _(input: Any, target: Any, reduction: int) -> Any:
    return reduced(-F.logsigmoid(target * input), reduction)


@soft_margin_loss.example
def _(make: Any) -> Any:
    return make(2, 3), make(2, 3), MEAN


@composite(F.soft_margin_loss)
def functional_soft_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    """`soft_margin_loss` with its reduction as a word"""
    return soft_margin_loss(input, target, reduction_code(reduction, size_average, reduce))


@composite(F.multilabel_soft_margin_loss)
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Any:
    """The mean over classes, the last axis, of `binary_cross_entropy_with_logits`"""
    code = reduction_code(reduction, size_average, reduce)
    loss = binary_cross_entropy_with_logits(input, target, None, None, NONE)
    loss = loss if weight is None else loss * weight
    return reduced(loss.sum(-1) / input.shape[-1], code)


@composite(torch.hinge_embedding_loss)
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, reduction: int = UNSAID) -> Any:
    """input where the target is 1, max(0, margin - input) where it is -1, and both where it is neither"""
    input, target = lifted(input), raw(target)
    apart = torch.where(target != 1, torch.clamp_min(margin - input, 0), 0.0)
    return reduced(apart + torch.where(target != -1, input, 0.0), reduction)


@composite(F.hinge_embedding_loss)
def functional_hinge_embedding_loss(
    input: Any,
    target: Any,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`hinge_embedding_loss` with its reduction as a word"""
    return hinge_embedding_loss(input, target, margin, reduction_code(reduction, size_average, reduce))


@composite(torch.margin_ranking_loss)
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = UNSAID) -> Any:
    """max(0, margin - target (input1 - input2)): a target of 1 wants input1 above input2, -1 below"""
    input1, input2, target = lifted(input1), lifted(input2), lifted(target)
    return reduced(torch.clamp_min(-target * (input1 - input2) + margin, 0), reduction)


@composite(F.margin_ranking_loss)
def functional_margin_ranking_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`margin_ranking_loss` with its reduction as a word"""
    if not input1.dim() == input2.dim() == target.dim():
        dims = [tuple(one.shape) for one in (input1, input2, target)]
        raise OptionError(f"margin_ranking_loss: all input tensors should have the same number of axes, got {dims}")
    return margin_ranking_loss(input1, input2, target, margin, reduction_code(reduction, size_average, reduce))


@composite(torch.cosine_embedding_loss)
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = UNSAID) -> Any:
    """1 - cos(input1, input2) where the target is 1, max(0, cos - margin) where it is -1"""
    target = raw(target)
    if target.dim() > 1 or input1.dim() != target.dim() + 1:
        raise OptionError(
            "cosine_embedding_loss takes (n, d) inputs with an (n,) target, or (d,) with (): "
            f"got {tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(target.shape)}"
        )
    input1, input2 = lifted(input1), lifted(input2)
    tiny = 1e-12  # torch's, added to each square
    squares = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = (input1 * input2).sum(-1) / torch.sqrt(squares)
    near = torch.where(target == 1, 1 - cosine, 0.0)
    return reduced(near + torch.where(target == -1, torch.clamp_min(cosine - margin, 0), 0.0), reduction)


@composite(F.cosine_embedding_loss)
def functional_cosine_embedding_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`cosine_embedding_loss` with its reduction as a word"""
    return cosine_embedding_loss(input1, input2, target, margin, reduction_code(reduction, size_average, reduce))


@composite(F.triplet_margin_with_distance_loss)
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: Any = "mean",
) -> Any:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)); `swap` takes d(positive, negative) if smaller"""
    if margin <= 0:
        raise OptionError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        shapes = [tuple(one.shape) for one in (anchor, positive, negative)]
        raise OptionError(f"anchor, positive and negative need the same number of axes, got shapes {shapes}")
    anchor, positive, negative = lifted(anchor), lifted(positive), lifted(negative)
    distance = torch.pairwise_distance if distance_function is None else distance_function
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return reduced(torch.clamp_min(margin + distance(anchor, positive) - far, 0), reduction_code(reduction))


@composite(torch.triplet_margin_loss)
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = UNSAID,
) -> Any:
    """`triplet_margin_with_distance_loss` by the p-norm of the difference"""

    def distance(x1: Any, x2: Any) -> Any:
        return torch.pairwise_distance(x1, x2, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


@composite(F.triplet_margin_loss)
def functional_triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`triplet_margin_loss` with its reduction as a word"""
    code = reduction_code(reduction, size_average, reduce)
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, code)
