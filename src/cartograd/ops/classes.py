"""Negative log-likelihoods of classes: of class indices, class probabilities, and sequences of labels (CTC)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.transparent import lifted
from cartograd.errors import OptionError
from cartograd.ops.loss import MEAN, NONE, SUM, UNSAID, reduced, reduction_code

_nn: Any = torch._C._nn
_nll_forward = torch.ops.aten.nll_loss_forward.default
_nll_backward = torch.ops.aten.nll_loss_backward.default
_nll2d_forward = torch.ops.aten.nll_loss2d_forward.default
_nll2d_backward = torch.ops.aten.nll_loss2d_backward.default
_ctc_forward = torch.ops.aten._ctc_loss
_ctc_backward = torch.ops.aten._ctc_loss_backward

_SMALL = 2**16
"""Logits up to here are worth one node instead of two, at the price of keeping them for a second derivative."""


def _class_dim(input: Any) -> int:
    return 0 if input.dim() == 1 else 1


def _as_image(values: Any, channels: tuple[int, ...]) -> Any:
    """(n, c, d1, ..., dk) as (n, c, 1, d1 ... dk): torch has kernels for (n, c) and for images only."""
    return values.reshape(values.shape[0], *channels, *((1, -1) if values.numel() else (0, 0)))


def _nll_of_any_shape(
    log_probs: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """(loss, sum of the weights that took part)"""
    expected = (*log_probs.shape[:1], *log_probs.shape[2:])
    if log_probs.dim() > 1 and target.shape != expected:
        raise OptionError(
            f"an input of shape {tuple(log_probs.shape)} needs a target of class indices of shape {expected}, "
            f"got {tuple(target.shape)}"
        )
    if log_probs.dim() < 3:
        return _nll_forward(log_probs, target, weight, reduction, ignore_index)
    image = _as_image(log_probs, (log_probs.shape[1],))
    out, total = _nll2d_forward(image, _as_image(target, ()), weight, reduction, ignore_index)
    return (out.reshape(target.shape) if reduction == NONE else out), total


def _nll_gradient(
    g: Any, log_probs: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any
) -> Any:
    if log_probs.dim() < 3:
        return _nll_backward(g, log_probs, target, weight, reduction, ignore_index, total)
    image = _as_image(log_probs.contiguous(), (log_probs.shape[1],))  # the kernel refuses other strides
    if reduction == NONE:
        g = _as_image(g, ())
    gradient = _nll2d_backward(g, image, _as_image(target, ()), weight, reduction, ignore_index, total)
    return gradient.reshape(log_probs.shape)


@primitive(_nn.nll_loss_nd, _nn.nll_loss, _nn.nll_loss2d, extra="constant")
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = UNSAID, ignore_index: int = -100
) -> Any:
    """-weight[target] input[target].   d/dinput[target] = -g weight[target];  over the sum of weights for the mean"""
    return _nll_of_any_shape(input, target, weight, reduction, ignore_index)


@nll_loss.vjp("input")
def _(
    g: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, extra: Tensor
) -> Tensor:
    return _nll_gradient(g, input, target, weight, reduction, ignore_index, extra)


@nll_loss.example
def _(make: Any) -> Any:
    return make(3, 4), torch.tensor([1, 3, 0]), make(4, low=0.5, high=2.0), MEAN, 3


@nll_loss.example
def _(make: Any) -> Any:
    return make(2, 3, 2), torch.tensor([[0, 2], [1, 1]]), None, NONE


@composite(F.nll_loss)
def functional_nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    """`nll_loss` with its reduction as a word"""
    return nll_loss(input, target, weight, reduction_code(reduction, size_average, reduce), ignore_index)


@primitive(extra="constant")
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = UNSAID, ignore_index: int = -100
) -> Any:
    """-weight[target] log_softmax(input)[target].   d/dinput = g weight[target] (softmax(input) - onehot(target))"""
    log_probs = torch.log_softmax(input, _class_dim(input))
    out, total = _nll_of_any_shape(log_probs, target, weight, reduction, ignore_index)
    return out, (log_probs, total)


@cross_entropy.vjp("input")
def _(
    g: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    extra: tuple[Tensor, Tensor],
) -> Tensor:
    log_probs, total = extra
    gradient = _nll_gradient(g, log_probs, target, weight, reduction, ignore_index, total)
    return torch._log_softmax_backward_data(gradient, log_probs, _class_dim(log_probs), log_probs.dtype)


@cross_entropy.restate
def _two_steps(input: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    return nll_loss(torch.log_softmax(lifted(input), _class_dim(input)), target, weight, reduction, ignore_index)


@cross_entropy.example
def _(make: Any) -> Any:
    return make(3, 4), torch.tensor([1, 3, 0]), make(4, low=0.5, high=2.0), MEAN, 3


@cross_entropy.example
def _(make: Any) -> Any:
    return make(4), torch.tensor(2), None, SUM


@cross_entropy.example
def _(make: Any) -> Any:
    return make(2, 3, 2), torch.tensor([[0, 2], [1, 1]]), None, NONE


@composite(_nn.cross_entropy_loss)
def cross_entropy_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    reduction: int = UNSAID,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """The target is class indices, or class probabilities if it has the input's shape"""
    logits, labels = raw(input), raw(target)
    if not 0.0 <= label_smoothing <= 1.0:
        raise OptionError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if labels.shape == logits.shape:
        return _cross_entropy_of_probabilities(input, target, weight, reduction, ignore_index, label_smoothing)
    if label_smoothing > 0:
        return _smoothed_cross_entropy(input, labels, weight, reduction, ignore_index, label_smoothing)
    steps = cross_entropy if logits.numel() <= _SMALL else _two_steps
    return steps(input, labels, weight, reduction, ignore_index)


@composite(F.cross_entropy)
def functional_cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """`cross_entropy_loss` with its reduction as a word"""
    code = reduction_code(reduction, size_average, reduce)
    return cross_entropy_loss(input, target, weight, code, ignore_index, label_smoothing)


def _along_classes(weight: Any, input: Any) -> Any:
    """The weights of the classes in a shape that broadcasts with the input."""
    if weight.shape != (input.shape[_class_dim(input)],):
        raise OptionError(
            f"weight must have one element a class, {input.shape[_class_dim(input)]}, got {tuple(weight.shape)}"
        )
    return weight if input.dim() == 1 else weight.reshape(-1, *(1,) * (input.dim() - 2))


def _cross_entropy_of_probabilities(
    input: Any, target: Any, weight: Any, reduction: int, ignore_index: int, label_smoothing: float
) -> Any:
    """-sum over classes of weight * target * log_softmax(input)"""
    if not target.is_floating_point():
        raise OptionError(f"Expected floating point type for target with class probabilities, got {target.dtype}")
    if ignore_index >= 0:
        raise OptionError("ignore_index is not supported for floating point target")
    dim = _class_dim(input)
    classes = input.shape[dim]
    if label_smoothing > 0:
        target = lifted(target) * (1 - label_smoothing) + label_smoothing / classes
    terms = torch.log_softmax(lifted(input), dim) * lifted(target)
    if weight is not None:
        terms = terms * _along_classes(weight, input)
    if reduction == NONE:
        return -terms.sum(dim)
    return -terms.sum() if reduction == SUM else -terms.sum() / (input.numel() // max(classes, 1))


def _smoothed_cross_entropy(
    input: Any, target: Any, weight: Any, reduction: int, ignore_index: int, label_smoothing: float
) -> Any:
    """(1 - s) times the cross-entropy, plus s / classes times the sum of it over every class as the target"""
    dim = _class_dim(input)
    log_probs = torch.log_softmax(lifted(input), dim)
    hard = nll_loss(log_probs, target, weight, reduction, ignore_index)
    every = log_probs if weight is None else log_probs * _along_classes(weight, input)
    ignored = target == ignore_index
    smooth = torch.masked_fill(-every.sum(dim), ignored, 0.0)
    if reduction == MEAN:
        total = (~ignored).sum() if weight is None else raw(weight)[target[~ignored]].sum()
        smooth = smooth.sum() / total
    elif reduction == SUM:
        smooth = smooth.sum()
    return (1 - label_smoothing) * hard + label_smoothing / input.shape[dim] * smooth


@primitive(extra="constant", once="torch has no kernel for the second derivative of ctc_loss")
def ctc_of_sequences(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | list[int],
    target_lengths: Tensor | list[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """-log p(targets), one for each of n sequences, of (t, n, c) log-probabilities.

    p sums over all alignments; d/dlog_probs[t, n, c] = g[n] (e^log_probs - p(the alignment has c at t | targets)): as
    torch has it, that is the gradient by the scores whose log_softmax is given, and a log_softmax before it keeps it.
    """
    loss, log_alpha = _ctc_forward(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    shown = torch.where(torch.isinf(loss), 0.0, loss) if zero_infinity else loss
    return shown, (loss, log_alpha)


@ctc_of_sequences.vjp("log_probs")
def _(
    g: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
    extra: tuple[Tensor, Tensor],
) -> Tensor:
    return _ctc_backward(g, log_probs, targets, input_lengths, target_lengths, *extra, blank, zero_infinity)


def _ctc_example(make: Any) -> Any:
    return make(4, 2, 3), torch.tensor([[1, 2], [2, 0]]), [4, 3], [2, 1]


ctc_of_sequences.example(_ctc_example, through=lambda scores: torch.log_softmax(scores, 2))


@composite(F.ctc_loss, torch.ctc_loss)
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = UNSAID,
    zero_infinity: bool = False,
) -> Any:
    """The losses of the sequences; the mean is that of the loss per label"""
    code = reduction_code(reduction)
    batched = log_probs.dim() == 3
    every = log_probs if batched else log_probs.unsqueeze(1)
    labels = raw(targets).to(every.device, torch.long)
    input_lengths, target_lengths = raw(input_lengths), raw(target_lengths)
    loss = ctc_of_sequences(every, labels, input_lengths, target_lengths, blank, zero_infinity)
    if code == MEAN:
        return (loss / torch.as_tensor(target_lengths, dtype=loss.dtype, device=loss.device).clamp_min(1)).mean()
    return loss.squeeze(0) if code == NONE and not batched else reduced(loss, code)
