"""Reading elements by their place: brackets, gather, take, masks, where."""

from __future__ import annotations

import operator
from typing import Any

import numpy
import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded

_index = torch.ops.aten.index.Tensor
_index_put_ = torch.ops.aten.index_put_.default


@primitive(torch.Tensor.__getitem__, extra=True)
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


@primitive(torch.ops.aten.index.Tensor, extra=True)
def index(input: Tensor, indices: Any) -> Any:
    """input[indices] for one index tensor, or None, an axis.   d/dinput = g, added into zeros at those places"""
    return _index(input, indices), input.shape


@index.vjp("input")
def _(g: Any, indices: Any, extra: Any) -> Any:
    if isinstance(g, Recorded):
        return torch.index_put(g.data.new_zeros(extra), indices, g, accumulate=True)  # type: ignore[arg-type]
    if len(extra) == 1 or indices[0] is None or indices[0].dtype is torch.bool or any(i is not None for i in indices[1:]):
        return _index_put_(g.new_zeros(extra), indices, g, True)
    return g.new_zeros(extra).index_add_(0, indices[0].reshape(-1) % extra[0], g.reshape(-1, *extra[1:]))
