"""Reading elements by their place: brackets, gather, take, masks, where.

The gradient of a read is a write: what came from a place goes back to it, and is added up where a place was read
more than once. The writes, which have gradients themselves, are in ``ops/scatter.py``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy
import torch
from torch import Tensor

from cartograd.engine import modes
from cartograd.engine.apply import record
from cartograd.engine.fallback import run_torch
from cartograd.engine.graph import REAL
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.engine.tensor import from_raw

_index = torch.ops.aten.index.Tensor
_index_put = torch.ops.aten.index_put.default
_index_put_ = torch.ops.aten.index_put_.default


@primitive(torch.Tensor.__getitem__, extra="constant")
def view_at(input: Tensor, index: Any) -> Any:
    """input[index] for integers, slices, None and ...: a view.   d/dinput = g, placed into zeros"""
    return input[index], input.shape


@view_at.vjp("input")
def _(g: Any, index: Any, extra: Any) -> Any:
    return place(g, index, extra) if isinstance(g, Recorded) else place.forward(g, index, extra)


@view_at.example
def _(make: Any) -> Any:
    return make(3, 4), (None, 1, slice(0, 3, 2))


@primitive()
def place(values: Tensor, index: Any, shape: Any) -> Tensor:
    """Zeros of that shape, but for zeros[index] = values.   d/dvalues = g[index]"""
    made = values.new_zeros(shape)
    made[index] = values
    return made


@place.vjp("values")
def _(g: Any, index: Any) -> Any:
    return g[index]


@place.example
def _(make: Any) -> Any:
    return make(2), (1, slice(0, 4, 2)), (2, 4)


@primitive(torch.ops.aten.index.Tensor, extra="constant")
def index(input: Tensor, indices: Any) -> Any:
    """input[indices] with one index tensor, or None, for an axis.   d/dinput = g, added into zeros at those places"""
    return _index(input, indices), input.shape


@index.vjp("input")
def _(g: Any, indices: Any, extra: Any) -> Any:
    put = _index_put if isinstance(g, Recorded) else _index_put_
    return put(g.new_zeros(extra), indices, g, True)


@index.example
def _(make: Any) -> Any:
    return make(3, 2, 3), [torch.tensor([[2], [0]]), None, torch.tensor([1, 1])]


@primitive(torch.Tensor.__getitem__, extra="constant")
def rows(input: Tensor, index: Tensor) -> Any:
    """input[index] for one vector of row numbers, the commonest of them all.   d/dinput = g, added up row by row

    The kernels for rows are several times faster than those for indices of every shape, on the CPU.
    """
    try:
        return input.index_select(0, index), (input.shape, index)
    except IndexError:  # some count from the end, or there is no such row
        index = torch.where(index < 0, index + input.shape[0], index)
        return input.index_select(0, index), (input.shape, index)


@rows.vjp("input")
def _(g: Tensor, extra: Any) -> Tensor:
    shape, index = extra
    return g.new_zeros(shape).index_add_(0, index, g)


@rows.example
def _(make: Any) -> Any:
    return make(3, 2), torch.tensor([2, -1, 0])


@primitive(_index_put, broadcasts=True)
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with copy[indices] = values, or += if `accumulate`.

    d/dinput = g, but 0 at the places written to unless `accumulate`;  d/dvalues = g[indices]
    """
    return _index_put(input, indices, values, accumulate)


@index_put.vjp("input")
def _(g: Any, indices: Any, accumulate: bool) -> Any:
    return g if accumulate else _index_put(g, indices, torch.zeros((), dtype=g.dtype, device=g.device))


@index_put.vjp("values")
def _(g: Any, indices: Any) -> Any:
    return _index(g, indices)


@index_put.example
def _(make: Any) -> Any:
    return make(3, 2), [torch.tensor([0, 2])], make(2)


@index_put.example
def _(make: Any) -> Any:
    return make(3, 2), [torch.tensor([0, 2, 0]), torch.tensor([1, 1, 1])], make(3), True


@composite("index_put")
def any_index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """`index_put` with index tensors of ours among the indices."""
    return index_put(input, [one.data if isinstance(one, Recorded) else one for one in indices], values, accumulate)


@composite("__getitem__")
def getitem(input: Any, index: Any) -> Any:
    """input[index] with everything that torch takes as an index."""
    kind = type(index)
    if kind in _BASIC or (kind is tuple and _BASIC.issuperset(map(type, index))):
        return _quick_view(input, index)
    items = _items(index)
    if items is None or sum(map(_axes, items)) > input.dim():
        return run_torch(torch.Tensor.__getitem__, (input, index), {})
    if not any(isinstance(item, Tensor) for item in items):
        return view_at(input, items)
    basic, indices = _split(items, input.dim())
    if any(item != slice(None) for item in basic):
        input = view_at(input, basic)
    first = indices[0]
    if len(indices) == 1 and first.device == input.device:
        if first.dtype is torch.bool and first.shape == input.shape:
            return masked_select(input, first)
        if first.dtype is torch.int64 and first.dim() == 1 and first.is_cpu:
            return rows(input, first)
    return index_at(input, indices)


def _quick_view(input: Any, index: Any) -> Any:
    """`view_at` without the general way's bookkeeping."""
    if type(input) is not Recorded or modes.watchers:
        return view_at(input, index)
    x, edge = input.data, input._edge
    out = x[index]
    if edge is None or not torch.is_grad_enabled():
        return from_raw(out)
    if edge.dtype not in REAL:
        return view_at(input, index)
    return record(_VIEW, (edge,), _VIEW.take((x, index, out, x.shape)), out, sys._getframe(2))


_BASIC = frozenset((int, slice, type(None), type(...)))
_VIEW = view_at.plan((True,))
index_at = index  # `index` is also the name of what stands in brackets


def _items(index: Any) -> tuple[Any, ...] | None:
    """What stands between the brackets: integers, slices, None, ... and index tensors; `None` for anything else."""
    if isinstance(index, list) and not all(isinstance(item, (int, numpy.integer)) for item in index):
        return None  # torch decides whether such a list is an index tensor or several
    items = [_item(item) for item in (index if isinstance(index, tuple) else (index,))]
    known = all(item is None or item is ... or isinstance(item, (int, slice, Tensor)) for item in items)
    masks = any(isinstance(item, Tensor) and item.dtype is torch.uint8 for item in items)
    return tuple(items) if known and not masks and sum(item is ... for item in items) < 2 else None


def _item(item: Any) -> Any:
    if isinstance(item, Recorded):
        item = item.data
    elif isinstance(item, list) and all(isinstance(one, (int, list, numpy.integer)) for one in item):
        item = torch.tensor(item) if item else torch.zeros(0, dtype=torch.int64)
    elif isinstance(item, (numpy.ndarray, numpy.generic)):
        item = torch.as_tensor(item)
    if isinstance(item, bool):
        return torch.tensor(item)
    if isinstance(item, Tensor) and item.dim() == 0 and item.dtype not in (torch.bool, torch.uint8):
        return item.__index__()
    return item


def _axes(item: Any) -> int:
    """How many axes of the input this item of an index stands for."""
    if item is None or item is ...:
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype is torch.bool else 1


def _split(items: tuple[Any, ...], rank: int) -> tuple[tuple[Any, ...], list[Any]]:
    """The index in two steps: a view, and index tensors for axes of that view."""
    basic: list[Any] = []
    indices: list[Any] = []
    for item in items:
        if item is ...:
            count = rank - sum(map(_axes, items))
            basic += [slice(None)] * count
            indices += [None] * count
        elif isinstance(item, Tensor):
            axes = _axes(item)
            basic += [slice(None)] * axes if axes else [None]
            indices.append(item if axes else torch.zeros(int(item), dtype=torch.int64))
        else:
            basic.append(item)
            indices += [] if isinstance(item, int) else [None]
    while indices[-1] is None:
        indices.pop()
    return tuple(basic), indices


@primitive("index_select", extra="constant")
def index_select(input: Tensor, dim: int, index: Tensor) -> Any:
    """The slices of input along `dim` that `index` names.   d/dinput = g, added into zeros slice by slice"""
    return torch.index_select(input, dim, index), input.shape


@index_select.vjp("input")
def _(g: Tensor, dim: int, index: Tensor, extra: Any) -> Tensor:
    return g.new_zeros(extra).index_add_(dim, index, g)


@index_select.example
def _(make: Any) -> Any:
    return make(2, 3), 1, torch.tensor([2, 0, 2])


@primitive("gather", extra="constant")
def gather(input: Tensor, dim: int, index: Tensor) -> Any:
    """input[index[i, j], j] for dim 0, and so on.   d/dinput = g, added into zeros at those places"""
    return torch.gather(input, dim, index), input.shape


@gather.vjp("input")
def _(g: Tensor, dim: int, index: Tensor, extra: Any) -> Tensor:
    return g.new_zeros(extra).scatter_add_(dim, index, g)


@gather.example
def _(make: Any) -> Any:
    return make(3, 4), 1, torch.tensor([[3, 0, 0], [1, 2, 3]])


@composite("take_along_dim")
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """`gather` with the other axes broadcast; from the flattened input if no axis is given."""
    if dim is None:
        return torch.gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.dim() != indices.dim() or not -input.dim() <= dim < max(input.dim(), 1):
        return run_torch(torch.take_along_dim, (input, indices, dim), {})
    dim %= max(input.dim(), 1)
    shapes = [[*one.shape[:dim], 1, *one.shape[dim + 1 :]] for one in (input, indices)]
    common = torch.broadcast_shapes(*shapes)
    indices = torch.where(indices < 0, indices + input.shape[dim : dim + 1].numel(), indices)
    wide = [one.expand(*common[:dim], *one.shape[dim : dim + 1], *common[dim + 1 :]) for one in (input, indices)]
    return torch.gather(wide[0], dim, wide[1])


@primitive("take", extra="constant")
def take(input: Tensor, index: Tensor) -> Any:
    """The elements of the flattened input that `index` names.   d/dinput = g, added into zeros at those places"""
    return torch.take(input, index), input.shape


@take.vjp("input")
def _(g: Tensor, index: Tensor, extra: Any) -> Tensor:
    return g.new_zeros(extra).put_(index, g, accumulate=True)


@take.example
def _(make: Any) -> Any:
    return make(2, 3), torch.tensor([[5, 0], [0, -1]])


@primitive("masked_select", broadcasts=True, extra="constant")
def masked_select(input: Tensor, mask: Tensor) -> Any:
    """The elements where `mask` is true, in order, as a vector.   d/dinput = g, placed into zeros"""
    shape = input.shape if input.shape == mask.shape else torch.broadcast_shapes(input.shape, mask.shape)
    return torch.masked_select(input, mask), shape


@masked_select.vjp("input")
def _(g: Tensor, mask: Tensor, extra: Any) -> Tensor:
    return g.new_zeros(extra).masked_scatter_(mask, g)


@masked_select.example
def _(make: Any) -> Any:
    return make(3), torch.tensor([[True, False, True], [False, False, True]])


@primitive(torch.where, broadcasts=True)
def where(condition: Tensor, input: Tensor, other: Tensor) -> Tensor:
    """input where the condition holds, else other.   d/dinput = g where it holds, else 0;  d/dother = g elsewhere"""
    return torch.where(condition, input, other)


@where.vjp("input")
def _(g: Tensor, condition: Tensor) -> Tensor:
    return torch.where(condition, g, 0)


@where.vjp("other")
def _(g: Tensor, condition: Tensor) -> Tensor:
    return torch.where(condition, 0, g)


@where.example
def _(make: Any) -> Any:
    return torch.tensor([True, False, True]), make(2, 3), make(3)


@composite(torch.where)
def any_where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """`where`, or with the condition alone the places where it holds."""
    if input is None and other is None:
        return run_torch(torch.where, (condition,), {})
    return where(condition, input, other)


@composite(torch.Tensor.where)
def method_where(self: Any, condition: Any, other: Any) -> Any:
    """self where the condition holds, else other."""
    return where(condition, self, other)
