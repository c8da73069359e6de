"""Elements chosen by their rank: the largest, the smallest, the median, the first k; and where they stand.

Indices carry no gradient. A value chosen along an axis sends its gradient to the one element it was taken from; a
value chosen among all elements is shared evenly by those that equal it, as torch has it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import Primitive, composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.reduce import shared_evenly

_to_selected = torch.ops.aten.value_selecting_reduction_backward.default


def to_equals(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    """The scalar `g` shared evenly by all elements that equal the scalar `out`; NaN equals NaN here."""
    equal = torch.logical_or(input == out, torch.logical_and(torch.isnan(input), torch.isnan(out)))
    return equal * (g / equal.sum())


def chosen(result: Any, input: Tensor) -> Any:
    """A (values, indices) result, and what the gradient needs to know of it."""
    return result, (result.indices, input.shape)


def to_chosen(g: Any, dim: int, extra: Any, keepdim: bool) -> Tensor:
    """Zeros, and the gradients of the values at the places these were taken from."""
    indices, shape = extra
    return _to_selected(g[0], dim, indices, shape, keepdim)


@primitive()
def max_of_all(input: Tensor) -> Tensor:
    """The largest element.   d/dinput = g, shared evenly by all that equal it"""
    return torch.max(input)


@max_of_all.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    return to_equals(g, input, out)


@max_of_all.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("max", multiple=True, extra="constant")
def max_along(input: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The largest element along `dim`, and its index.   d/dinput = g at that index, else 0"""
    return chosen(torch.max(input, dim, keepdim), input)


@max_along.vjp("input")
def _(g: Any, dim: int, keepdim: bool, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim)


@max_along.example
def _(make: Any) -> Any:
    return make(2, 3), -1


@primitive()
def min_of_all(input: Tensor) -> Tensor:
    """The smallest element.   d/dinput = g, shared evenly by all that equal it"""
    return torch.min(input)


@min_of_all.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    return to_equals(g, input, out)


@min_of_all.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("min", multiple=True, extra="constant")
def min_along(input: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The smallest element along `dim`, and its index.   d/dinput = g at that index, else 0"""
    return chosen(torch.min(input, dim, keepdim), input)


@min_along.vjp("input")
def _(g: Any, dim: int, keepdim: bool, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim)


@min_along.example
def _(make: Any) -> Any:
    return make(2, 3), 0, True


def extreme(of_all: Primitive, along: Primitive, of_two: Any, input: Any, args: Any, options: Any) -> Any:
    """Sort out the three meanings of max and min: of all elements, along an axis, and of two tensors."""
    if not args and not options:
        return of_all(input)
    other = args[0] if args else options.get("other", options.get("x2"))
    if isinstance(other, (torch.Tensor, Recorded)):
        return of_two(input, other)
    return along(input, *args, **options)


@composite("max")
def max(input: Any, *args: Any, **options: Any) -> Any:
    """The largest element; or (values, indices) along `dim`; or the larger of `input` and `other`."""
    return extreme(max_of_all, max_along, torch.maximum, input, args, options)


@composite("min")
def min(input: Any, *args: Any, **options: Any) -> Any:
    """The smallest element; or (values, indices) along `dim`; or the smaller of `input` and `other`."""
    return extreme(min_of_all, min_along, torch.minimum, input, args, options)


@primitive("aminmax", multiple=True)
def aminmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """(smallest, largest).   Each gradient is shared evenly by the elements that tie"""
    return torch.aminmax(input, dim=dim, keepdim=keepdim)


@aminmax.vjp("input")
def _(g: Any, input: Tensor, out: Any, dim: int | None, keepdim: bool) -> Tensor:
    by_smallest = shared_evenly(g[0], input, out[0], dim, keepdim)
    return by_smallest + shared_evenly(g[1], input, out[1], dim, keepdim)


@aminmax.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@primitive()
def median_of_all(input: Tensor) -> Tensor:
    """The lower median.   d/dinput = g, shared evenly by all that equal it"""
    return torch.median(input)


@median_of_all.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    return to_equals(g, input, out)


@median_of_all.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("median", multiple=True, extra="constant")
def median_along(input: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower median along `dim`, and its index.   d/dinput = g at that index, else 0"""
    return chosen(torch.median(input, dim, keepdim), input)


@median_along.vjp("input")
def _(g: Any, dim: int, keepdim: bool, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim)


@median_along.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@composite("median")
def median(input: Any, *args: Any, **options: Any) -> Any:
    """The lower median of all elements, or (values, indices) along `dim`."""
    return median_along(input, *args, **options) if args or options else median_of_all(input)


@primitive()
def nanmedian_of_all(input: Tensor) -> Tensor:
    """The lower median of what is not NaN.   d/dinput = g, shared evenly by all that equal it"""
    return torch.nanmedian(input)


@nanmedian_of_all.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    return to_equals(g, input, out)


@nanmedian_of_all.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("nanmedian", multiple=True, extra="constant")
def nanmedian_along(input: Tensor, dim: int, keepdim: bool = False) -> Any:
    """As `median_along`, of what is not NaN.   d/dinput = g at that index, else 0"""
    return chosen(torch.nanmedian(input, dim, keepdim), input)


@nanmedian_along.vjp("input")
def _(g: Any, dim: int, keepdim: bool, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim)


@nanmedian_along.example
def _(make: Any) -> Any:
    return make(2, 3), 0


@composite("nanmedian")
def nanmedian(input: Any, *args: Any, **options: Any) -> Any:
    """The lower median of what is not NaN: of all elements, or (values, indices) along `dim`."""
    return nanmedian_along(input, *args, **options) if args or options else nanmedian_of_all(input)


@primitive("mode", multiple=True, extra="constant")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The commonest value along `dim`, and an index of it.   d/dinput = g at that index, else 0"""
    return chosen(torch.mode(input, dim, keepdim), input)


@mode.vjp("input")
def _(g: Any, dim: int, keepdim: bool, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim)


@mode.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@primitive("kthvalue", multiple=True, extra="constant")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element along `dim`, and its index.   d/dinput = g at that index, else 0"""
    return chosen(torch.kthvalue(input, k, dim, keepdim), input)


@kthvalue.vjp("input")
def _(g: Any, dim: int, keepdim: bool, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim)


@kthvalue.example
def _(make: Any) -> Any:
    return make(2, 3), 2


@primitive("topk", multiple=True, extra="constant")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest elements along `dim`, and their indices.   d/dinput = g at those indices, else 0"""
    return chosen(torch.topk(input, k, dim, largest, sorted), input)


@topk.vjp("input")
def _(g: Any, dim: int, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim=True)


@topk.example
def _(make: Any) -> Any:
    return make(2, 4), 2


@primitive("sort", multiple=True, extra="constant")
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """The elements in order along `dim`, and where each stood.   d/dinput = g, put back in the old order"""
    return chosen(torch.sort(input, dim=dim, descending=descending, stable=bool(stable)), input)


@sort.vjp("input")
def _(g: Any, dim: int, extra: Any) -> Tensor:
    return to_chosen(g, dim, extra, keepdim=True)


@sort.example
def _(make: Any) -> Any:
    return make(3, 3), 0, True


@composite("msort")
def msort(input: Any) -> Any:
    """The elements in order along the first axis."""
    return sort(input, 0)[0]
