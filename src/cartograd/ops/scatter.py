"""Writing elements by their place, into a copy: scatter, index_add, masked_fill and their kin.

Where a place is written to more than once, one value wins, and which one is not defined. As in torch, all of them get
the gradient of the place; the sums (``_add``, ``accumulate=True``) have no such case.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.indexing import place


def shape_of(value: Any) -> torch.Size | None:
    """The shape of a tensor; `None` for a number."""
    return value.shape if isinstance(value, Tensor) else None


def read_back(g: Any, dim: int, index: Tensor, shape: Any) -> Any:
    """The gradient of what was written along `dim`, of that shape; a smaller index used only a corner of it."""
    used = torch.gather(g, dim, index)
    if used.shape == shape:
        return used
    corner = tuple(slice(0, size) for size in used.shape)
    return place(used, corner, shape) if isinstance(g, Recorded) else place.forward(used, corner, shape)


@primitive("scatter", extra="constant")
def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """A copy of input with copy[index[i, j], j] = src[i, j] for dim 0, and so on; `src` may be a number.

    d/dinput = g, but 0 at the places written to;  d/dsrc = g at the places it was written to
    """
    return torch.scatter(input, dim, index, src), shape_of(src)


@scatter.vjp("input")
def _(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.scatter(g, dim, index, 0)


@scatter.vjp("src")
def _(g: Tensor, dim: int, index: Tensor, extra: Any) -> Any:
    return read_back(g, dim, index, extra)


@scatter.example
def _(make: Any) -> Any:
    return make(3, 2), 0, torch.tensor([[2, 0]]), make(2, 2)


@composite("scatter")
def any_scatter(input: Any, dim: Any, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None) -> Any:
    """`scatter` of a tensor or a number; with `reduce`, torch's derivative."""
    src = value if src is None else src
    if reduce is not None:
        return run_torch(torch.scatter, (input, dim, index, src), {"reduce": reduce})
    return scatter(input, dim, index, src)


@primitive("scatter_add", extra="constant")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """A copy of input with copy[index[i, j], j] += src[i, j] for dim 0, and so on.

    d/dinput = g,  d/dsrc = g at the places it was added to
    """
    return torch.scatter_add(input, dim, index, src), src.shape


@scatter_add.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@scatter_add.vjp("src")
def _(g: Tensor, dim: int, index: Tensor, extra: Any) -> Any:
    return read_back(g, dim, index, extra)


@scatter_add.example
def _(make: Any) -> Any:
    return make(3, 2), 0, torch.tensor([[2, 0], [2, 1]]), make(3, 2)


@primitive("index_add", extra="constant")
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    """A copy of input with alpha * source added, slice by slice, to the slices that `index` names.

    d/dinput = g,  d/dsource = alpha * the slices of g
    """
    return torch.index_add(input, dim, index, source, alpha=alpha), source.shape


@index_add.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@index_add.vjp("source")
def _(g: Tensor, dim: int, index: Tensor, alpha: float, extra: Any) -> Tensor:
    slices = torch.index_select(g, dim, index).reshape(extra)
    return slices if alpha == 1 else slices * alpha


@index_add.example
def _(make: Any) -> Any:
    return make(3, 2), 0, torch.tensor([2, 2]), make(2, 2), 0.5


@primitive("index_copy", extra="constant")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """A copy of input with the slices that `index` names replaced by those of source.

    d/dinput = g, but 0 in those slices;  d/dsource = those slices of g
    """
    return torch.index_copy(input, dim, index, source), source.shape


@index_copy.vjp("input")
def _(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.index_fill(g, dim, index, 0)


@index_copy.vjp("source")
def _(g: Tensor, dim: int, index: Tensor, extra: Any) -> Tensor:
    return torch.index_select(g, dim, index).reshape(extra)


@index_copy.example
def _(make: Any) -> Any:
    return make(3, 2), 0, torch.tensor([2, 0]), make(2, 2)


@primitive("index_fill")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """A copy of input with the slices that `index` names set to one value.

    d/dinput = g, but 0 in those slices;  d/dvalue = the sum of g over them
    """
    return torch.index_fill(input, dim, index, value)


@index_fill.vjp("input")
def _(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.index_fill(g, dim, index, 0)


@index_fill.vjp("value")
def _(g: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.index_select(g, dim, torch.unique(index)).sum()


@index_fill.example
def _(make: Any) -> Any:
    return make(3, 2), 0, torch.tensor([2, 0]), make(1)[0]


@primitive("put", extra="constant")
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    """A copy of input with elements of its flattened form set to those of source, or added to if `accumulate`.

    d/dinput = g, but 0 at the places written to unless `accumulate`;  d/dsource = g at its places
    """
    return torch.put(input, index, source, accumulate), source.shape


@put.vjp("input")
def _(g: Tensor, index: Tensor, accumulate: bool) -> Tensor:
    return g if accumulate else torch.put(g, index, torch.zeros(index.shape, dtype=g.dtype, device=g.device))


@put.vjp("source")
def _(g: Tensor, index: Tensor, extra: Any) -> Tensor:
    return torch.take(g, index).reshape(extra)


@put.example
def _(make: Any) -> Any:
    return make(2, 3), torch.tensor([5, 1]), make(2)


@primitive("masked_fill", broadcasts=True)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """value where `mask` is true, else input.   d/dinput = g, but 0 where it is true;  d/dvalue = the sum of g there"""
    return torch.masked_fill(input, mask, value)


@masked_fill.vjp("input")
def _(g: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_fill(g, mask, 0)


@masked_fill.vjp("value")
def _(g: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, g, 0).sum()


@masked_fill.example
def _(make: Any) -> Any:
    return make(2, 3), torch.tensor([True, False, True]), make(1)[0]


@primitive("masked_scatter", broadcasts=True, extra="constant")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Any:
    """The elements of source, in order, where `mask` is true, else input.

    d/dinput = g, but 0 where it is true;  d/dsource = g where it is true, 0 for elements that were not used
    """
    return torch.masked_scatter(input, mask, source), source.shape


@masked_scatter.vjp("input")
def _(g: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_fill(g, mask, 0)


@masked_scatter.vjp("source")
def _(g: Tensor, mask: Tensor, extra: Any) -> Tensor:
    used = torch.masked_select(g, mask)
    return torch.nn.functional.pad(used, (0, extra.numel() - used.numel())).reshape(extra)


@masked_scatter.example
def _(make: Any) -> Any:
    return make(2, 3), torch.tensor([True, False, True]), make(5)
