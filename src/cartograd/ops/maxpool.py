"""Maxima over windows of fixed and adaptive size.

Every one of them keeps the indices of the winners and the input's shape, never the input. The ops named as torch's
functions give the values alone; those that end in `with_indices` give both.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.ops.layout import blank
from cartograd.ops.pool import as_row, given

_aten = torch.ops.aten
_nn: Any = torch._C._nn
_max_pool2d_backward = _aten.max_pool2d_with_indices_backward.default
_max_pool3d_backward = _aten.max_pool3d_with_indices_backward.default
_adaptive_max_pool2d_backward = _aten.adaptive_max_pool2d_backward.default
_adaptive_max_pool3d_backward = _aten.adaptive_max_pool3d_backward.default


def values(found: tuple[Tensor, Tensor], input: Tensor) -> Any:
    """(result, extra) of an op that gives the values alone."""
    return found[0], (found[1], input.shape)


def both(found: tuple[Tensor, Tensor], input: Tensor) -> Any:
    """(results, extra) of an op that gives values and indices."""
    return found, (found[1], input.shape)


def of_values(g: Any) -> Any:
    """The gradient of the values, of an op with or without indices."""
    return g[0] if isinstance(g, (tuple, list)) else g


def _max_rule1d(
    g: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, extra: Any
) -> Tensor:
    """One axis is a picture of one row."""
    g, (indices, shape) = of_values(g).unsqueeze(-2), extra
    options = as_row(1, kernel_size), as_row(1, stride), as_row(0, padding), as_row(1, dilation), ceil_mode
    like = blank((*shape[:-1], 1, shape[-1]), g)
    return _max_pool2d_backward(g, like, *options, indices.unsqueeze(-2)).squeeze(-2)


def _max_rule2d(
    g: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, extra: Any
) -> Tensor:
    g, (indices, shape) = of_values(g), extra
    options = kernel_size, given(stride), padding, dilation, ceil_mode
    return _max_pool2d_backward(g, blank(shape, g), *options, indices)


def _max_rule3d(
    g: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, extra: Any
) -> Tensor:
    g, (indices, shape) = of_values(g), extra
    options = kernel_size, given(stride), padding, dilation, ceil_mode
    return _max_pool3d_backward(g, blank(shape, g), *options, indices)


def _adaptive_rule1d(g: Any, extra: Any) -> Tensor:
    g, (indices, shape) = of_values(g).unsqueeze(-2), extra
    like = blank((*shape[:-1], 1, shape[-1]), g)
    return _adaptive_max_pool2d_backward(g, like, indices.unsqueeze(-2)).squeeze(-2)


def _adaptive_rule2d(g: Any, extra: Any) -> Tensor:
    g, (indices, shape) = of_values(g), extra
    return _adaptive_max_pool2d_backward(g, blank(shape, g), indices)


def _adaptive_rule3d(g: Any, extra: Any) -> Tensor:
    g, (indices, shape) = of_values(g), extra
    return _adaptive_max_pool3d_backward(g, blank(shape, g), indices)


@primitive(F.max_pool1d, torch.max_pool1d, extra="constant")
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """out[i] = max of input over window i.   d/dinput[j] = sum of the g[i] whose maximum j was

    Of equals the first wins, and a NaN wins over every number.
    """
    found = F.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return values(found, input)


max_pool1d.vjp("input")(_max_rule1d)


@max_pool1d.example
def _(make: Any) -> Any:
    return make(2, 6), 3, 2, 1, 1, True


@primitive("max_pool1d_with_indices", extra="constant", multiple=True)
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:
    """As `max_pool1d`, with the flat index of each winner in its plane."""
    return both(F.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode), input)


max_pool1d_with_indices.vjp("input")(_max_rule1d)


@max_pool1d_with_indices.example
def _(make: Any) -> Any:
    return make(2, 6), 3, 2, 1, 1, True


@primitive(F.max_pool2d, torch.max_pool2d, extra="constant")
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool1d`, over two axes."""
    found = F.max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return values(found, input)


max_pool2d.vjp("input")(_max_rule2d)


@max_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (2, 3), 1, 1, (1, 2)


@primitive("max_pool2d_with_indices", extra="constant", multiple=True)
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:
    """As `max_pool2d`, with the flat index of each winner in its plane."""
    return both(F.max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode), input)


max_pool2d_with_indices.vjp("input")(_max_rule2d)


@max_pool2d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (2, 3), 1, 1, (1, 2)


@primitive(F.max_pool3d, torch.max_pool3d, extra="constant")
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool1d`, over three axes."""
    found = F.max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return values(found, input)


max_pool3d.vjp("input")(_max_rule3d)


@max_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), 2, 1


@primitive("max_pool3d_with_indices", extra="constant", multiple=True)
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:
    """As `max_pool3d`, with the flat index of each winner in its plane."""
    return both(F.max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode), input)


max_pool3d_with_indices.vjp("input")(_max_rule3d)


@max_pool3d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), 2, 1


@primitive(F.adaptive_max_pool1d, extra="constant")
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over the windows of `adaptive_avg_pool1d`.   d/dinput[j] = sum of g[i] that j won"""
    return values(F.adaptive_max_pool1d_with_indices(input, output_size), input)


adaptive_max_pool1d.vjp("input")(_adaptive_rule1d)


@adaptive_max_pool1d.example
def _(make: Any) -> Any:
    return make(2, 5), 3


@primitive(F.adaptive_max_pool1d_with_indices, torch.adaptive_max_pool1d, extra="constant", multiple=True)
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """As `adaptive_max_pool1d`, with the flat index of each winner in its plane."""
    return both(F.adaptive_max_pool1d_with_indices(input, output_size), input)


adaptive_max_pool1d_with_indices.vjp("input")(_adaptive_rule1d)


@adaptive_max_pool1d_with_indices.example
def _(make: Any) -> Any:
    return make(2, 5), 3


@primitive(F.adaptive_max_pool2d, extra="constant")
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool1d`, over two axes; `None` as a size leaves the axis as it is."""
    return values(F.adaptive_max_pool2d_with_indices(input, output_size), input)


adaptive_max_pool2d.vjp("input")(_adaptive_rule2d)


@adaptive_max_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (3, None)


@primitive(F.adaptive_max_pool2d_with_indices, _nn.adaptive_max_pool2d, extra="constant", multiple=True)
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """As `adaptive_max_pool2d`, with the flat index of each winner in its plane."""
    return both(F.adaptive_max_pool2d_with_indices(input, output_size), input)


adaptive_max_pool2d_with_indices.vjp("input")(_adaptive_rule2d)


@adaptive_max_pool2d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (3, None)


@primitive(F.adaptive_max_pool3d, extra="constant")
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool1d`, over three axes; `None` as a size leaves the axis as it is."""
    return values(F.adaptive_max_pool3d_with_indices(input, output_size), input)


adaptive_max_pool3d.vjp("input")(_adaptive_rule3d)


@adaptive_max_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 3)


@primitive(F.adaptive_max_pool3d_with_indices, _nn.adaptive_max_pool3d, extra="constant", multiple=True)
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """As `adaptive_max_pool3d`, with the flat index of each winner in its plane."""
    return both(F.adaptive_max_pool3d_with_indices(input, output_size), input)


adaptive_max_pool3d_with_indices.vjp("input")(_adaptive_rule3d)


@adaptive_max_pool3d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 3)
