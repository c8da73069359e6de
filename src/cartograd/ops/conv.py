"""Convolutions and their transposes, in one, two and three dimensions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive

_convolution_backward = torch.ops.aten.convolution_backward.default


def _conv_rule(
    g: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    need: tuple[bool, ...],
) -> tuple[Any, Any, Any]:
    """d/dinput = the transposed convolution of g, d/dweight = the correlation of input and g, d/dbias = sum of g."""
    dims = weight.dim() - 2
    dilation = _each_axis(dilation, dims)
    padding, after = _resolved(padding, weight, dilation)
    padded = F.pad(input, after) if any(after) else input
    grads = _gradients(g, padded, weight, stride, padding, dilation, False, 0, groups, need)
    if any(after) and need[0]:
        return F.pad(grads[0], [-width for width in after]), *grads[1:]
    return grads


def _transposed_rule(
    g: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    need: tuple[bool, ...],
) -> tuple[Any, Any, Any]:
    """d/dinput = the convolution of g, d/dweight = the correlation of g and input, d/dbias = sum of g."""
    return _gradients(g, input, weight, stride, padding, dilation, True, output_padding, groups, need)


def _gradients(
    g: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    need: tuple[bool, ...],
) -> tuple[Any, Any, Any]:
    """The gradients that are needed, by torch's one kernel for all of them; it only knows batches."""
    dims = weight.dim() - 2
    unbatched = input.dim() < weight.dim()
    if unbatched:
        g, input = g.unsqueeze(0), input.unsqueeze(0)
    of_input, of_weight, of_bias = _convolution_backward(
        g,
        input,
        weight,
        [g.shape[1]],
        _each_axis(stride, dims),
        _each_axis(padding, dims),
        _each_axis(dilation, dims),
        transposed,
        _each_axis(output_padding, dims),
        groups,
        need,
    )
    return of_input.squeeze(0) if unbatched and need[0] else of_input, of_weight, of_bias


def _each_axis(value: Any, dims: int) -> Any:
    """An option given once or for every axis, for every axis."""
    if isinstance(value, int):
        return (value,) * dims
    return value if len(value) == dims else tuple(value) * dims


def _resolved(padding: Any, weight: Tensor, dilation: tuple[int, ...]) -> tuple[Any, list[int]]:
    """The padding on both sides in numbers, and what 'same' adds after the end of each axis, in the order of `F.pad`.

    An even kernel needs one more element of padding than both sides alike can give; torch adds it at the end.
    """
    if not isinstance(padding, str):
        return padding, []
    if padding == "valid":
        return 0, []
    total = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
    after = [extra for width in reversed(total) for extra in (0, width % 2)]
    return [width // 2 for width in total], after


@primitive("conv1d")
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """out[n, o, i] = bias[o] + sum over c, k of input[n, c, i * stride + k * dilation - padding] * weight[o, c, k]"""
    return torch.conv1d(input, weight, bias, stride, padding, dilation, groups)


conv1d.vjp("input", "weight", "bias")(_conv_rule)


@conv1d.example
def _(make: Any) -> Any:
    return make(1, 2, 5), make(2, 1, 3), make(2), 1, "same", 1, 2


@primitive("conv2d")
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv1d`, over two axes: weight is (out, in / groups, KH, KW)."""
    return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)


conv2d.vjp("input", "weight", "bias")(_conv_rule)


@conv2d.example
def _(make: Any) -> Any:
    return make(1, 2, 3, 3), make(1, 2, 2, 2), make(1), (2, 1), 1


@conv2d.example
def _(make: Any) -> Any:
    return make(1, 3, 4), make(1, 1, 2, 2), None, 1, "same", 2


@primitive("conv3d")
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv1d`, over three axes: weight is (out, in / groups, KD, KH, KW)."""
    return torch.conv3d(input, weight, bias, stride, padding, dilation, groups)


conv3d.vjp("input", "weight", "bias")(_conv_rule)


@conv3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 2), make(1, 1, 2, 2, 1), make(1)


@primitive("conv_transpose1d")
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """out[n, o, i * stride + k * dilation - padding] += input[n, c, i] * weight[c, o, k], on top of bias[o]"""
    return torch.conv_transpose1d(input, weight, bias, stride, padding, output_padding, groups, dilation)


conv_transpose1d.vjp("input", "weight", "bias")(_transposed_rule)


@conv_transpose1d.example
def _(make: Any) -> Any:
    return make(1, 2, 3), make(2, 1, 2), make(2), 2, 1, 1, 2


@primitive("conv_transpose2d")
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """As `conv_transpose1d`, over two axes: weight is (in, out / groups, KH, KW)."""
    return torch.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)


conv_transpose2d.vjp("input", "weight", "bias")(_transposed_rule)


@conv_transpose2d.example
def _(make: Any) -> Any:
    return make(1, 2, 2, 2), make(2, 1, 2, 2), make(1), (2, 1), 1, (1, 0), 1, 2


@primitive("conv_transpose3d")
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """As `conv_transpose1d`, over three axes: weight is (in, out / groups, KD, KH, KW)."""
    return torch.conv_transpose3d(input, weight, bias, stride, padding, output_padding, groups, dilation)


conv_transpose3d.vjp("input", "weight", "bias")(_transposed_rule)


@conv_transpose3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 2, 2), make(1, 1, 1, 2, 1), make(1), (1, 2, 1)
