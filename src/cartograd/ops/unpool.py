"""Maxima over windows of random places (fractional pooling), and the way back from any maximum (unpooling)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.ops.layout import blank
from cartograd.ops.maxpool import both, of_values, values

_gather_backward = torch.ops.aten.gather_backward.default


def _to_winner(g: Any, extra: Any, dims: int) -> Tensor:
    """Each element of g is added to the input element that was the maximum; the kernels' indices are flat."""
    g, (indices, shape) = of_values(g), extra
    plane = (*shape[:-dims], shape[-dims:].numel())
    return _gather_backward(g.flatten(-dims), blank(plane, g), -1, indices.flatten(-dims), False).view(shape)


@primitive(F.fractional_max_pool2d, extra="constant")
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima over windows that start at random, increasing places.   d/dinput[j] = sum of g[i] that j won"""
    found = F.fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples=_random_samples
    )
    return values(found, input)


@fractional_max_pool2d.vjp("input")
def _(g: Any, extra: Any) -> Tensor:
    return _to_winner(g, extra, 2)


@fractional_max_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), 2, (2, 3), None, False, torch.full((1, 1, 2), 0.4, dtype=torch.float64)


@primitive(F.fractional_max_pool2d_with_indices, extra="constant", multiple=True)
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = True,
    _random_samples: Tensor | None = None,
) -> Any:
    """As `fractional_max_pool2d`, with the flat index of each winner in its plane."""
    found = F.fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples=_random_samples
    )
    return both(found, input)


@fractional_max_pool2d_with_indices.vjp("input")
def _(g: Any, extra: Any) -> Tensor:
    return _to_winner(g, extra, 2)


@fractional_max_pool2d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), 2, (2, 3), None, True, torch.full((1, 1, 2), 0.4, dtype=torch.float64)


@primitive(F.fractional_max_pool3d, extra="constant")
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """As `fractional_max_pool2d`, over three axes."""
    found = F.fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples=_random_samples
    )
    return values(found, input)


@fractional_max_pool3d.vjp("input")
def _(g: Any, extra: Any) -> Tensor:
    return _to_winner(g, extra, 3)


@fractional_max_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 2), (1, 1, 2), None, False, torch.full((1, 1, 3), 0.4, dtype=torch.float64)


@primitive(F.fractional_max_pool3d_with_indices, extra="constant", multiple=True)
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = True,
    _random_samples: Tensor | None = None,
) -> Any:
    """As `fractional_max_pool3d`, with the flat index of each winner in its volume."""
    found = F.fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples=_random_samples
    )
    return both(found, input)


@fractional_max_pool3d_with_indices.vjp("input")
def _(g: Any, extra: Any) -> Tensor:
    return _to_winner(g, extra, 3)


@fractional_max_pool3d_with_indices.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 2), (1, 1, 2), None, True, torch.full((1, 1, 3), 0.4, dtype=torch.float64)


def _at_indices(g: Tensor, indices: Tensor, dims: int) -> Tensor:
    """What g has at the flat index of each element."""
    return g.flatten(-dims).gather(-1, indices.flatten(-dims)).reshape(indices.shape)


@primitive(F.max_unpool1d)
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros, but out[indices[i]] = input[i] in each plane.   d/dinput[i] = g[indices[i]]

    Equal indices: one of their values is written, and all of them get its gradient, as in torch.
    """
    return F.max_unpool1d(input, indices, kernel_size, stride, padding, output_size)


@max_unpool1d.vjp("input")
def _(g: Tensor, indices: Tensor) -> Tensor:
    return _at_indices(g, indices, 1)


@max_unpool1d.example
def _(make: Any) -> Any:
    return make(1, 1, 3), torch.tensor([[[1, 2, 5]]]), 2


@primitive(F.max_unpool2d)
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """As `max_unpool1d`, over two axes."""
    return F.max_unpool2d(input, indices, kernel_size, stride, padding, output_size)


@max_unpool2d.vjp("input")
def _(g: Tensor, indices: Tensor) -> Tensor:
    return _at_indices(g, indices, 2)


@max_unpool2d.example
def _(make: Any) -> Any:
    return make(1, 2, 2), torch.tensor([[[0, 3], [9, 14]]]), 2


@primitive(F.max_unpool3d)
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """As `max_unpool1d`, over three axes."""
    return F.max_unpool3d(input, indices, kernel_size, stride, padding, output_size)


@max_unpool3d.vjp("input")
def _(g: Tensor, indices: Tensor) -> Tensor:
    return _at_indices(g, indices, 3)


@max_unpool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 1, 2, 1), torch.tensor([[[[[1], [6]]]]]), 2
