"""Running sums, products and extremes along one axis."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.ops.reduce import cast

_cumprod_backward = torch.ops.aten.cumprod_backward.default


@primitive("cumsum", extra="constant")
def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Sums of the elements up to each.   d/dinput = the sums of g from each to the end"""
    return torch.cumsum(input, dim, dtype=dtype), input.dtype


@cumsum.vjp("input")
def _(g: Tensor, dim: int, extra: torch.dtype) -> Tensor:
    if g.ndim == 0 or g.shape[dim] < 2:
        return cast(g, extra)
    return cast(g.flip(dim).cumsum(dim).flip(dim), extra)


@cumsum.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@primitive("cumprod")
def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Products of the elements up to each.   d/dinput[i] = sum over j >= i of g[j] * the product up to j without i"""
    return torch.cumprod(input, dim, dtype=dtype)


@cumprod.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, dim: int) -> Tensor:
    return cast(_cumprod_backward(g, cast(input, g.dtype), dim, out), input.dtype)


@cumprod.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.5, high=1.5), 1


@cumprod.example
def _(make: Any) -> Any:
    with_zeros = make(4, 3)
    with_zeros[1, 0] = with_zeros[0, 1] = with_zeros[2, 1] = 0
    return with_zeros, 0


@primitive("logcumsumexp")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Logarithms of the running sums of e^input.   d/dinput[i] = sum over j >= i of g[j] e^(input[i] - out[j])"""
    return torch.logcumsumexp(input, dim)


@logcumsumexp.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, dim: int) -> Tensor:
    if g.ndim == 0 or g.numel() == 0:
        return g
    # e^(-out) alone overflows where out is very negative, so the sums are taken of logarithms too: those of the
    # positive and of the negative gradients apart.
    lowest = torch.finfo(g.dtype).min
    size = g.abs().log()
    positive = torch.where(g > 0, size, lowest) - out
    negative = torch.where(g < 0, size, lowest) - out
    both = torch.stack([positive, negative])
    dim = dim % g.ndim + 1
    sums = torch.exp(both.flip(dim).logcumsumexp(dim).flip(dim) + input)
    return sums[0] - sums[1]


@logcumsumexp.restate
def _(input: Any, dim: int) -> Any:
    """Row j of a square is the input up to j: the rule above takes logarithms of g, which may be zero."""
    if input.ndim == 0:
        return input.reshape(())
    row = input.movedim(dim, -1)
    later = torch.ones(row.shape[-1], row.shape[-1], dtype=torch.bool, device=row.device).triu(1)
    square = row.unsqueeze(-2).expand(*row.shape, row.shape[-1]).masked_fill(later, -math.inf)
    return torch.logsumexp(square, -1).movedim(-1, dim)


@logcumsumexp.example
def _(make: Any) -> Any:
    return make(2, 4), 1


def gathered(g: Tensor, indices: Tensor, dim: int) -> Tensor:
    """Each g added at the place its value was taken from."""
    return torch.zeros_like(g).scatter_add(dim, indices, g)


@primitive("cummax", multiple=True, extra="constant")
def cummax(input: Tensor, dim: int) -> Any:
    """The largest element up to each, and where it stands.   d/dinput = g at the elements that were largest"""
    result = torch.cummax(input, dim)
    return result, result.indices


@cummax.vjp("input")
def _(g: Any, dim: int, extra: Tensor) -> Tensor:
    return gathered(g[0], extra, dim)


@cummax.example
def _(make: Any) -> Any:
    return make(2, 4), 1


@primitive("cummin", multiple=True, extra="constant")
def cummin(input: Tensor, dim: int) -> Any:
    """The smallest element up to each, and where it stands.   d/dinput = g at the elements that were smallest"""
    result = torch.cummin(input, dim)
    return result, result.indices


@cummin.vjp("input")
def _(g: Any, dim: int, extra: Tensor) -> Tensor:
    return gathered(g[0], extra, dim)


@cummin.example
def _(make: Any) -> Any:
    return make(4, 2), 0
