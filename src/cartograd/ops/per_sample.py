"""Gradients by samples, for the ops that have parameters: one for each sample where the gradient sums over them.

Samples come first. Where an array has more rows than there are samples, as after flattening (batch, time) into one
axis, the rows of a sample stand together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.ops.addmm import addmm
from cartograd.ops.conv import (
    _conv_rule,
    _transposed_rule,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from cartograd.ops.embedding import embedding
from cartograd.ops.layernorm import layer_norm, rms_norm
from cartograd.ops.norm import frozen_batch_norm, native_group_norm
from cartograd.ops.products import linear, matmul_rows, mm


def _rows(array: Tensor, samples: int) -> Tensor:
    """(samples, rows of each, last axis)"""
    return array.reshape(samples, -1, array.shape[-1])


def _outer(left: Tensor, right: Tensor, samples: int) -> Tensor:
    """left^T @ right of each sample: (samples, last axis of left, last axis of right)"""
    a, b = _rows(left, samples), _rows(right, samples)
    return a.mT * b if a.shape[1] == 1 else torch.bmm(a.mT, b)  # for one row the product needs no kernel of its own


def _outer_norm(left: Tensor, right: Tensor, samples: int) -> Tensor:
    """|left^T @ right|^2 of each sample. Over its rows s, t it is the sum of (left_s . left_t) (right_s . right_t).

    That takes rows^2 (m + n) products where the matrix itself takes rows m n: with one row, |left|^2 |right|^2.
    """
    a, b = _rows(left, samples), _rows(right, samples)
    rows, m, n = a.shape[1], a.shape[2], b.shape[2]
    if rows * (m + n) < m * n:
        return (torch.bmm(a, a.mT) * torch.bmm(b, b.mT)).sum((1, 2))
    return torch.bmm(a.mT, b).square().sum((1, 2))


@linear.per_sample("weight")
def _(g: Tensor, input: Tensor, samples: int) -> Tensor:
    if g.dim() < input.dim():  # the weight was a vector
        return _outer(g.unsqueeze(-1), input, samples).squeeze(1)
    return _outer(g, input, samples)


@linear.per_sample("weight", norm=True)
def _(g: Tensor, input: Tensor, samples: int) -> Tensor:
    return _outer_norm(g.unsqueeze(-1) if g.dim() < input.dim() else g, input, samples)


@linear.per_sample("bias")
def _(g: Tensor, samples: int) -> Tensor:
    return _rows(g, samples).sum(1)


@matmul_rows.per_sample("other")
def _(g: Tensor, input: Tensor, samples: int) -> Tensor:
    return _outer(input, g, samples)


@matmul_rows.per_sample("other", norm=True)
def _(g: Tensor, input: Tensor, samples: int) -> Tensor:
    return _outer_norm(input, g, samples)


@mm.per_sample("mat2")
def _(g: Tensor, input: Tensor, samples: int) -> Tensor:
    return _outer(input, g, samples)


@mm.per_sample("mat2", norm=True)
def _(g: Tensor, input: Tensor, samples: int) -> Tensor:
    return _outer_norm(input, g, samples)


@addmm.per_sample("mat2")
def _(g: Tensor, mat1: Tensor, alpha: float, samples: int) -> Tensor:
    return alpha * _outer(mat1, g, samples)


@addmm.per_sample("input")
def _(g: Tensor, beta: float, samples: int) -> Tensor:
    return beta * _rows(g, samples).sum(1)


def _into_groups(array: Tensor) -> Tensor:
    """A batch of images as one image whose channels are those of all."""
    return array.reshape(1, -1, *array.shape[2:])


def _conv_weight(
    g: Tensor, input: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, samples: int
) -> Tensor:
    """A convolution of each sample on its own is one convolution with a group (or `groups` of them) for each."""
    each = weight.repeat(samples, *[1] * (weight.dim() - 1))
    need = (False, True, False)
    of_weight = _conv_rule(
        _into_groups(g), _into_groups(input), each, stride, padding, dilation, groups * samples, need
    )[1]
    return of_weight.reshape(samples, *weight.shape)


def _transposed_weight(
    g: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    samples: int,
) -> Tensor:
    """As `_conv_weight`."""
    each = weight.repeat(samples, *[1] * (weight.dim() - 1))
    options = (stride, padding, output_padding, groups * samples, dilation, (False, True, False))
    of_weight = _transposed_rule(_into_groups(g), _into_groups(input), each, *options)[1]
    return of_weight.reshape(samples, *weight.shape)


def _channel_sums(g: Tensor) -> Tensor:
    """The sum over everything but samples and channels."""
    return g.flatten(2).sum(2) if g.dim() > 2 else g


for _op in (conv1d, conv2d, conv3d):
    _op.per_sample("weight")(_conv_weight)
    _op.per_sample("bias")(_channel_sums)
for _op in (conv_transpose1d, conv_transpose2d, conv_transpose3d):
    _op.per_sample("weight")(_transposed_weight)
    _op.per_sample("bias")(_channel_sums)


@embedding.per_sample("weight")
def _(g: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, extra: int, samples: int) -> Tensor:
    if scale_grad_by_freq:  # how often is a matter of the whole batch
        return g
    width = g.shape[-1]
    rows = indices.reshape(samples, -1) + extra * torch.arange(samples, device=indices.device).unsqueeze(1)
    made = g.new_zeros(samples * extra, width).index_add_(0, rows.reshape(-1), g.reshape(-1, width))
    made = made.view(samples, extra, width)
    if padding_idx >= 0:
        made[:, padding_idx] = 0
    return made


def _last_axes(array: Tensor, shape: Any, samples: int) -> Tensor:
    """The sum over all axes but the samples and the last ones, of the given shape."""
    return array.reshape(samples, -1, *shape).sum(1)


@layer_norm.per_sample("weight")
def _(g: Tensor, input: Tensor, normalized_shape: Any, extra: Any, samples: int) -> Tensor:
    mean, rstd = extra
    return _last_axes(g * ((input - mean) * rstd), normalized_shape, samples)


@layer_norm.per_sample("bias")
def _(g: Tensor, normalized_shape: Any, samples: int) -> Tensor:
    return _last_axes(g, normalized_shape, samples)


@rms_norm.per_sample("weight")
def _(g: Tensor, input: Tensor, normalized_shape: Any, extra: Tensor, samples: int) -> Tensor:
    return _last_axes(g * (input * extra), normalized_shape, samples)


@native_group_norm.per_sample("weight")
def _(g: Tensor, input: Tensor, num_groups: int, extra: Any) -> Tensor:
    mean, rstd = (one.reshape(input.shape[0], num_groups, 1) for one in extra)
    normal = ((input.reshape(input.shape[0], num_groups, -1) - mean) * rstd).reshape(input.shape)
    return _channel_sums(g * normal)


@native_group_norm.per_sample("bias")
def _(g: Tensor) -> Tensor:
    return _channel_sums(g)


@frozen_batch_norm.per_sample("weight")
def _(g: Tensor, input: Tensor, eps: float, extra: Any) -> Tensor:
    mean, var = (one.view(-1, *[1] * (input.dim() - 2)) for one in extra)
    return _channel_sums(g * (input - mean) * (var + eps).rsqrt())


@frozen_batch_norm.per_sample("bias")
def _(g: Tensor) -> Tensor:
    return _channel_sums(g)
