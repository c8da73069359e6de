"""Reductions: sums, products, extremes and spreads over all axes or some of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Union

import torch
from torch import Tensor

from cartograd.engine.primitive import Primitive, composite, primitive

Axes = Union[int, list[int], tuple[int, ...]]
Dims = Union[Axes, None]
"""One axis, several, or all of them: `None` and an empty sequence both mean all."""


def unreduced(value: Tensor, dim: Dims, keepdim: bool, rank: int) -> Tensor:
    """The result of a reduction with its reduced axes back, of size 1; a 0-d value broadcasts as it is."""
    if keepdim or dim is None or rank == 0:
        return value
    if isinstance(dim, int):
        return value.unsqueeze(dim)
    for axis in sorted(axis % rank for axis in dim):
        value = value.unsqueeze(axis)
    return value


def reduced_count(shape: Sequence[int], dim: Dims) -> int:
    """How many elements a reduction over `dim` makes one of."""
    if len(shape) == 0:
        return 1
    if isinstance(dim, int):
        return shape[dim]
    return math.prod(shape[axis] for axis in dim) if dim else math.prod(shape)


def cast(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """`gradient` in the dtype of the input, which a reduction with ``dtype=`` left."""
    return gradient if gradient.dtype == dtype else gradient.to(dtype)


@primitive("sum", extra="constant")
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Sum over `dim`.   d/dinput = g, repeated along the reduced axes"""
    return torch.sum(input, dim, keepdim, dtype=dtype), (input.shape, input.dtype)


@sum.vjp("input")
def _(g: Tensor, dim: Dims, keepdim: bool, extra: Any) -> Tensor:
    shape, dtype = extra
    return cast(torch.broadcast_to(unreduced(g, dim, keepdim, len(shape)), shape), dtype)


@sum.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@sum.example
def _(make: Any) -> Any:
    return make(2, 3, 2), (0, -1), False


@sum.example
def _(make: Any) -> Any:
    return make(2, 3), 1, True


@primitive("mean", extra="constant")
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Mean over `dim`, n elements each.   d/dinput = g / n, repeated along the reduced axes"""
    return torch.mean(input, dim, keepdim, dtype=dtype), (input.shape, input.dtype)


@mean.vjp("input")
def _(g: Tensor, dim: Dims, keepdim: bool, extra: Any) -> Tensor:
    shape, dtype = extra
    each = g / reduced_count(shape, dim)
    return cast(torch.broadcast_to(unreduced(each, dim, keepdim, len(shape)), shape), dtype)


@mean.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@mean.example
def _(make: Any) -> Any:
    return make(2, 3, 2), (0, -1)


@primitive("nansum")
def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Sum of what is not NaN.   d/dinput = g where input is not NaN, else 0"""
    return torch.nansum(input, dim, keepdim, dtype=dtype)


@nansum.vjp("input")
def _(g: Tensor, input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    spread = cast(unreduced(g, dim, keepdim, input.ndim), input.dtype)
    return spread * torch.logical_not(torch.isnan(input))


@nansum.example
def _(make: Any) -> Any:
    return make(2, 3), -1


@composite("nanmean")
def nanmean(input: Any, dim: Dims = None, keepdim: bool = False, **options: Any) -> Any:
    """Mean of what is not NaN; NaN where nothing is."""
    options = dict(options)
    dim, keepdim = options.pop("axis", dim), options.pop("keepdims", keepdim)
    count = torch.sum(torch.logical_not(torch.isnan(input)), dim, keepdim)
    return torch.nansum(input, dim, keepdim, **options) / count


def products_of_others(input: Tensor, dim: int) -> Tensor:
    """For each element the product of all others along `dim`; not a division, so zeros do no harm."""
    others = input.shape[dim] - 1
    one = torch.ones_like(input.narrow(dim, 0, 1))
    before = torch.cat([one, input.narrow(dim, 0, others)], dim).cumprod(dim)
    after = torch.cat([one, input.flip(dim).narrow(dim, 0, others)], dim).cumprod(dim).flip(dim)
    return before * after


@primitive("prod")
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Product over all, or over `dim`.   d/dinput = g * the product of the others"""
    return torch.prod(input, dtype=dtype) if dim is None else torch.prod(input, dim, keepdim, dtype=dtype)


@prod.vjp("input")
def _(g: Tensor, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if input.numel() == 0:
        return torch.zeros_like(input)
    factors = cast(input, g.dtype)
    if dim is None or input.ndim == 0:
        others = products_of_others(factors.reshape(-1), 0).reshape(input.shape)
    else:
        others = products_of_others(factors, dim)
    return cast(unreduced(g, dim, keepdim, input.ndim) * others, input.dtype)


@prod.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@prod.example
def _(make: Any) -> Any:
    with_zeros = make(3, 3)
    with_zeros[0, 0] = with_zeros[1, 1] = with_zeros[2, 1] = 0
    return with_zeros, 0


def shared_evenly(g: Tensor, input: Tensor, extreme: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """`g` to the elements that equal the extreme; several that do share it evenly."""
    hits = input == unreduced(extreme, dim, keepdim, input.ndim)
    return unreduced(g, dim, keepdim, input.ndim) * hits / hits.sum(dim, keepdim=True)


@primitive("amax")
def amax(input: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
    """Largest element.   d/dinput = g at the largest, shared evenly by those that tie"""
    return torch.amax(input, dim, keepdim)


@amax.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return shared_evenly(g, input, out, dim, keepdim)


@amax.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@primitive("amin")
def amin(input: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
    """Smallest element.   d/dinput = g at the smallest, shared evenly by those that tie"""
    return torch.amin(input, dim, keepdim)


@amin.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return shared_evenly(g, input, out, dim, keepdim)


@amin.example
def _(make: Any) -> Any:
    return make(2, 3), (0, 1), True


@primitive("logsumexp")
def logsumexp(input: Tensor, dim: Axes, keepdim: bool = False) -> Tensor:
    """log of the sum of e^input, the largest taken out first.   d/dinput = g * e^(input - out)"""
    return torch.logsumexp(input, dim, keepdim)


@logsumexp.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    rank = input.ndim
    return unreduced(g, dim, keepdim, rank) * torch.exp(input - unreduced(out, dim, keepdim, rank))


@logsumexp.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@logsumexp.example
def _(make: Any) -> Any:
    return make(2, 3), (0, 1), True


def variance_gradient(g: Tensor, input: Tensor, mean: Tensor, dim: Dims, correction: float) -> Tensor:
    """2 g (input - mean) / (n - correction); `g` and `mean` have the rank of `input`, or are 0-d."""
    freedom = reduced_count(input.shape, dim) - correction
    if freedom <= 0 and (dim is None or input.ndim == 0):
        # The variance is infinite, and so is its slope, but for an element at the mean: 0 * infinity.
        return g * torch.where(input == mean, math.nan, math.inf).to(input.dtype)
    return (g * (2 / freedom if freedom else math.inf)) * (input - mean)


def deviation_gradient(g: Tensor, deviation: Tensor) -> Tensor:
    """From the gradient of a standard deviation to that of its square; 0 where it is 0, as torch has it."""
    return (g / (deviation * 2)).masked_fill(deviation == 0, 0)


@primitive("var")
def var(input: Tensor, dim: Dims = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """Variance, sum((input - mean)^2) / (n - correction).   d/dinput = 2 g (input - mean) / (n - correction)"""
    return torch.var(input, dim, correction=correction, keepdim=keepdim)


@var.vjp("input")
def _(g: Tensor, input: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    return variance_gradient(
        unreduced(g, dim, keepdim, input.ndim), input, input.mean(dim, keepdim=True), dim, correction
    )


@var.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@var.example
def _(make: Any) -> Any:
    return make(2, 3), None, 0


@primitive("std")
def std(input: Tensor, dim: Dims = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """Standard deviation.   d/dinput = g (input - mean) / (out (n - correction)), 0 where out is 0"""
    return torch.std(input, dim, correction=correction, keepdim=keepdim)


@std.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    g = unreduced(deviation_gradient(g, out), dim, keepdim, input.ndim)
    return variance_gradient(g, input, input.mean(dim, keepdim=True), dim, correction)


@std.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@primitive("var_mean", multiple=True)
def var_mean(input: Tensor, dim: Dims = None, correction: float = 1, keepdim: bool = False) -> Any:
    """(variance, mean).   d/dinput = 2 g[0] (input - mean) / (n - correction) + g[1] / n"""
    return torch.var_mean(input, dim, correction=correction, keepdim=keepdim)


@var_mean.vjp("input")
def _(g: Any, input: Tensor, out: Any, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    by_variance, by_mean, mean = (unreduced(one, dim, keepdim, input.ndim) for one in (*g, out[1]))
    through_variance = variance_gradient(by_variance, input, mean, dim, correction)
    return through_variance + by_mean / reduced_count(input.shape, dim)


@var_mean.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@primitive("std_mean", multiple=True)
def std_mean(input: Tensor, dim: Dims = None, correction: float = 1, keepdim: bool = False) -> Any:
    """(standard deviation, mean).   The gradient is the sum of the two"""
    return torch.std_mean(input, dim, correction=correction, keepdim=keepdim)


@std_mean.vjp("input")
def _(g: Any, input: Tensor, out: Any, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    by_variance = deviation_gradient(g[0], out[0])
    by_variance, by_mean, mean = (unreduced(one, dim, keepdim, input.ndim) for one in (by_variance, g[1], out[1]))
    through_variance = variance_gradient(by_variance, input, mean, dim, correction)
    return through_variance + by_mean / reduced_count(input.shape, dim)


@std_mean.example
def _(make: Any) -> Any:
    return make(2, 3), (0, 1), 0, True


def with_unbiased(op: Primitive) -> Callable[..., Any]:
    """`op` with torch's other way to give the correction: ``unbiased=``, also alone in the place of `dim`."""

    def call(
        input: Any,
        dim: Any = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
        **options: Any,
    ) -> Any:
        dim, keepdim = options.pop("axis", dim), options.pop("keepdims", keepdim)
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return op(input, dim, correction, keepdim, **options)

    call.__name__ = op.name
    return call


composite("var")(with_unbiased(var))
composite("std")(with_unbiased(std))
composite("var_mean")(with_unbiased(var_mean))
composite("std_mean")(with_unbiased(std_mean))
