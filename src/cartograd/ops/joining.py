"""Several tensors as one, and one as several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.reduce import cast
from cartograd.ops.shape import BUILT_IN


@primitive("cat", "concat", "concatenate", takes_list="tensors", extra="constant")
def cat(tensors: list[Tensor], dim: int = 0) -> Any:
    """One after the other along `dim`.   d/dtensors[i] = its part of g"""
    return torch.cat(tensors, dim), [(one.shape, one.dtype) for one in tensors]


@cat.vjp("tensors")
def _(g: Tensor, dim: int, extra: Any, need: tuple[bool, ...]) -> list[Tensor | None]:
    gradients: list[Tensor | None] = []
    start = 0
    for (shape, dtype), needed in zip(extra, need, strict=True):
        if shape == (0,) and g.ndim != 1:  # torch lets an empty vector stand among tensors of any rank
            gradients.append(g.new_zeros(0, dtype=dtype))
            continue
        gradients.append(cast(g.narrow(dim, start, shape[dim]), dtype) if needed else None)
        start += shape[dim]
    return gradients


@cat.example
def _(make: Any) -> Any:
    return [make(2, 1), make(2, 3)], -1


@primitive("stack", takes_list="tensors", extra="constant")
def stack(tensors: list[Tensor], dim: int = 0) -> Any:
    """One beside the other along a new axis `dim`.   d/dtensors[i] = g[i] along `dim`"""
    return torch.stack(tensors, dim), [one.dtype for one in tensors]


@stack.vjp("tensors")
def _(g: Tensor, dim: int, extra: list[torch.dtype]) -> list[Tensor]:
    return [cast(one, dtype) for one, dtype in zip(g.unbind(dim), extra, strict=True)]


@stack.example
def _(make: Any) -> Any:
    return [make(2, 3), make(2, 3)], 1


def each_at_least(rank: int, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors, those of a lower rank with new axes of size 1: before a vector, after a matrix, as NumPy does."""
    raised = []
    for one in tensors:
        if one.ndim < rank:
            one = one.reshape(1) if one.ndim == 0 else one
            one = one.unsqueeze(0) if one.ndim == 1 and rank > 1 else one
            one = one.unsqueeze(-1) if rank == 3 and one.ndim == 2 else one
        raised.append(one)
    return tuple(raised)


def one_or_several(rank: int, tensors: tuple[Any, ...]) -> Any:
    """`each_at_least` for torch's ways to call it: with a tensor, with several, or with a sequence of them."""
    if len(tensors) != 1:
        return each_at_least(rank, tensors)
    if isinstance(tensors[0], (tuple, list)):
        return each_at_least(rank, tensors[0])
    return each_at_least(rank, tensors)[0]


@composite(torch.atleast_1d, BUILT_IN.atleast_1d)
def atleast_1d(*tensors: Any) -> Any:
    """A number as a vector of one element; the rest as it is."""
    return one_or_several(1, tensors)


@composite(torch.atleast_2d, BUILT_IN.atleast_2d)
def atleast_2d(*tensors: Any) -> Any:
    """A number or vector as a matrix of one row; the rest as it is."""
    return one_or_several(2, tensors)


@composite(torch.atleast_3d, BUILT_IN.atleast_3d)
def atleast_3d(*tensors: Any) -> Any:
    """A vector of n as (1, n, 1), a matrix (m, n) as (m, n, 1); the rest as it is."""
    return one_or_several(3, tensors)


@composite("hstack")
def hstack(tensors: Any) -> Any:
    """Joined along the second axis, vectors along their only one."""
    tensors = each_at_least(1, tensors)
    return cat(tensors, 0 if tensors and tensors[0].ndim == 1 else 1)


@composite("vstack", "row_stack")
def vstack(tensors: Any) -> Any:
    """Joined along the first axis, vectors as rows."""
    return cat(each_at_least(2, tensors), 0)


@composite("dstack")
def dstack(tensors: Any) -> Any:
    """Joined along the third axis."""
    return cat(each_at_least(3, tensors), 2)


@composite("column_stack")
def column_stack(tensors: Any) -> Any:
    """Joined along the second axis, vectors as columns."""
    return cat([one.reshape(-1, 1) if one.ndim < 2 else one for one in tensors], 1)


@primitive(torch.split, multiple=True)
def split_along(input: Tensor, split_size: int | list[int], dim: int = 0) -> Any:
    """Parts of `split_size` along `dim`, the last as large as is left; or of the sizes listed.

    d/dinput = the gradients of the parts, joined
    """
    return torch.split(input, split_size, dim)


@split_along.vjp("input")
def _(g: Any, dim: int) -> Tensor:
    return torch.cat(g, dim)


@split_along.example
def _(make: Any) -> Any:
    return make(5, 2), 2


@split_along.example
def _(make: Any) -> Any:
    return make(2, 5), (4, 1), -1


@composite(torch.split, torch.Tensor.split, "unsafe_split")
def split(tensor: Any, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> Any:
    """`split_along`, whose second argument torch gives two names."""
    size = split_size if split_size_or_sections is None else split_size_or_sections
    return split_along(tensor, int(size) if isinstance(size, (torch.Tensor, Recorded)) else size, dim)


@composite("split_with_sizes", "unsafe_split_with_sizes")
def split_with_sizes(input: Any, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """`split_along` for a list of sizes."""
    return split_along(input, split_sizes, dim)


@primitive("chunk", "unsafe_chunk", multiple=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` parts of one size along `dim`.   d/dinput = the gradients of the parts, joined"""
    return torch.chunk(input, chunks, dim)


@chunk.vjp("input")
def _(g: Any, dim: int) -> Tensor:
    return torch.cat(g, dim)


@chunk.example
def _(make: Any) -> Any:
    return make(2, 5), 2, 1


@primitive(multiple=True)
def split_at(input: Tensor, places: int | Sequence[int], dim: int = 0) -> Any:
    """So many parts along `dim`, or cut at the places listed.   d/dinput = the gradients of the parts, joined"""
    return torch.tensor_split(input, places, dim)


split_at.torch_functions = [torch.tensor_split]  # for complex numbers


@split_at.vjp("input")
def _(g: Any, dim: int) -> Tensor:
    return torch.cat(g, dim)


@split_at.example
def _(make: Any) -> Any:
    return make(2, 5), (1, -2), 1


@composite("tensor_split")
def tensor_split(input: Any, places: Any = None, dim: int = 0, **names: Any) -> Any:
    """`split_at`, where the parts do not overlap; `places` has three names in torch."""
    for name in ("indices_or_sections", "indices", "sections", "tensor_indices_or_sections"):
        places = names.pop(name, places)
    if isinstance(places, (torch.Tensor, Recorded)):
        places = places.tolist()
    if not isinstance(places, int):
        size = input.shape[dim]
        cuts = [place + size if place < 0 else place for place in places]
        if any(before > after for before, after in pairwise(cuts)):
            return run_torch(torch.tensor_split, (input, tuple(places), dim), names)
        places = tuple(places)
    return split_at(input, places, dim, **names)


@primitive("unbind", multiple=True)
def unbind_axis(input: Tensor, dim: int = 0) -> Any:
    """The slices along `dim`, without that axis.   d/dinput = the gradients of the slices, stacked"""
    return torch.unbind(input, dim)


@unbind_axis.vjp("input")
def _(g: Any, dim: int) -> Tensor:
    return torch.stack(g, dim)


@unbind_axis.example
def _(make: Any) -> Any:
    return make(2, 3), 1


@composite("unbind")
def unbind(input: Any, dim: int = 0) -> Any:
    """`unbind_axis`, but for an axis of size 0, which leaves nothing to record."""
    return unbind_axis(input, dim) if input.ndim == 0 or input.shape[dim] else ()
