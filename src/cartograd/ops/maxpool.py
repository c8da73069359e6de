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

_gather_backward = torch.ops.aten.gather_backward.default
_nn: Any = torch._C._nn


def values(found: tuple[Tensor, Tensor], input: Tensor, dims: int) -> Any:
    """(result, extra) of an op that gives the values alone."""
    return found[0], (found[1], input.shape, dims)


def both(found: tuple[Tensor, Tensor], input: Tensor, dims: int) -> Any:
    """(results, extra) of an op that gives values and indices."""
    return found, (found[1], input.shape, dims)


def to_winner(g: Any, extra: Any) -> Tensor:
    """The rule of all of them: each element of g is added to the input element that was the maximum."""
    g = g[0] if isinstance(g, tuple) else g
    indices, shape, dims = extra
    plane = (*shape[:-dims], shape[-dims:].numel())
    return _gather_backward(g.flatten(-dims), blank(plane, g), -1, indices.flatten(-dims), False).view(shape)


@primitive(F.max_pool1d, torch.max_pool1d, extra=True)
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
    return values(found, input, 1)


max_pool1d.vjp("input")(to_winner)


@max_pool1d.example
def _(make: Any) -> Any:
    return make(2, 6), 3, 2, 1, 1, True


@primitive("max_pool1d_with_indices", extra=True, multiple=True)
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
    return both(F.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode), input, 1)


max_pool1d_with_indices.vjp("input")(to_winner)


@max_pool1d_with_indices.example
def _(make: Any) -> Any:
    return make(2, 6), 3, 2, 1, 1, True


@primitive(F.max_pool2d, torch.max_pool2d, extra=True)
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
    return values(found, input, 2)


max_pool2d.vjp("input")(to_winner)


@max_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (2, 3), 1, 1, (1, 2)


@primitive("max_pool2d_with_indices", extra=True, multiple=True)
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
    return both(F.max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode), input, 2)


max_pool2d_with_indices.vjp("input")(to_winner)


@max_pool2d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (2, 3), 1, 1, (1, 2)


@primitive(F.max_pool3d, torch.max_pool3d, extra=True)
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
    return values(found, input, 3)


max_pool3d.vjp("input")(to_winner)


@max_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), 2, 1


@primitive("max_pool3d_with_indices", extra=True, multiple=True)
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
    return both(F.max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode), input, 3)


max_pool3d_with_indices.vjp("input")(to_winner)


@max_pool3d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), 2, 1


@primitive(F.adaptive_max_pool1d, extra=True)
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over the windows of `adaptive_avg_pool1d`.   d/dinput[j] = sum of g[i] that j won"""
    return values(F.adaptive_max_pool1d_with_indices(input, output_size), input, 1)


adaptive_max_pool1d.vjp("input")(to_winner)


@adaptive_max_pool1d.example
def _(make: Any) -> Any:
    return make(2, 5), 3


@primitive(F.adaptive_max_pool1d_with_indices, torch.adaptive_max_pool1d, extra=True, multiple=True)
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """As `adaptive_max_pool1d`, with the flat index of each winner in its plane."""
    return both(F.adaptive_max_pool1d_with_indices(input, output_size), input, 1)


adaptive_max_pool1d_with_indices.vjp("input")(to_winner)


@adaptive_max_pool1d_with_indices.example
def _(make: Any) -> Any:
    return make(2, 5), 3


@primitive(F.adaptive_max_pool2d, extra=True)
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool1d`, over two axes; `None` as a size leaves the axis as it is."""
    return values(F.adaptive_max_pool2d_with_indices(input, output_size), input, 2)


adaptive_max_pool2d.vjp("input")(to_winner)


@adaptive_max_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (3, None)


@primitive(F.adaptive_max_pool2d_with_indices, _nn.adaptive_max_pool2d, extra=True, multiple=True)
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """As `adaptive_max_pool2d`, with the flat index of each winner in its plane."""
    return both(F.adaptive_max_pool2d_with_indices(input, output_size), input, 2)


adaptive_max_pool2d_with_indices.vjp("input")(to_winner)


@adaptive_max_pool2d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (3, None)


@primitive(F.adaptive_max_pool3d, extra=True)
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool1d`, over three axes; `None` as a size leaves the axis as it is."""
    return values(F.adaptive_max_pool3d_with_indices(input, output_size), input, 3)


adaptive_max_pool3d.vjp("input")(to_winner)


@adaptive_max_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 3)


@primitive(F.adaptive_max_pool3d_with_indices, _nn.adaptive_max_pool3d, extra=True, multiple=True)
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """As `adaptive_max_pool3d`, with the flat index of each winner in its plane."""
    return both(F.adaptive_max_pool3d_with_indices(input, output_size), input, 3)


adaptive_max_pool3d_with_indices.vjp("input")(to_winner)


@adaptive_max_pool3d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 3)
