"""The same elements under another shape or order of axes: views, and what undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.fastpath import specialise
from cartograd.engine.primitive import composite, primitive
from cartograd.ops.reduce import Axes

BUILT_IN: Any = torch._C._VariableFunctions
"""What a Python function of torch reaches when it is given a list of tensors."""


@primitive(torch.Tensor.reshape, torch.reshape, extra="constant")
def reshape(input: Tensor, *shape: int) -> Any:
    """The elements in row-major order, under `shape`.   d/dinput = g under the old shape"""
    return input.reshape(shape), input.shape


@reshape.vjp("input")
def _(g: Tensor, extra: torch.Size) -> Tensor:
    return g.reshape(extra)


@reshape.example
def _(make: Any) -> Any:
    return make(2, 3), 3, -1


@primitive(torch.Tensor.view, extra="constant")
def view(input: Tensor, *size: int) -> Any:
    """As `reshape`, of the same memory or not at all.   d/dinput = g under the old shape"""
    return input.view(size), input.shape


@view.vjp("input")
def _(g: Tensor, extra: torch.Size) -> Tensor:
    return g.reshape(extra)


@view.example
def _(make: Any) -> Any:
    return make(2, 3), 6


@composite(torch.Tensor.view)
def view_as_size_or_dtype(input: Any, *size: Any, **options: Any) -> Any:
    """`view` for a size; the bits under another dtype carry no gradient, as in torch."""
    if "dtype" in options or (size and isinstance(size[0], torch.dtype)):
        return run_torch(torch.Tensor.view, (input, *size), options)
    return view(input, *size, **options)


@composite("view_as")
def view_as(input: Any, other: Any) -> Any:
    """`input` under the shape of `other`."""
    return view(input, other.shape)


@composite("reshape_as")
def reshape_as(input: Any, other: Any) -> Any:
    """`input` under the shape of `other`."""
    return reshape(input, other.shape)


@composite("ravel")
def ravel(input: Any) -> Any:
    """One axis of all elements."""
    return reshape(input, -1)


@primitive("flatten", extra="constant")
def merge_axes(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Axes `start_dim` to `end_dim` as one.   d/dinput = g under the old shape"""
    return torch.flatten(input, start_dim, end_dim), input.shape


@merge_axes.vjp("input")
def _(g: Tensor, extra: torch.Size) -> Tensor:
    return g.reshape(extra)


@merge_axes.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 1


@composite("flatten")
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """`merge_axes`; a single axis is left as it is, the very same tensor, as in torch."""
    rank = input.ndim
    if rank and -rank <= start_dim < rank and start_dim % rank == end_dim % rank:
        return input
    return merge_axes(input, start_dim, end_dim)


@primitive("unflatten", extra="constant")
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    """Axis `dim` as several of `sizes`.   d/dinput = g under the old shape"""
    return torch.unflatten(input, dim, sizes), input.shape


@unflatten.vjp("input")
def _(g: Tensor, extra: torch.Size) -> Tensor:
    return g.reshape(extra)


@unflatten.example
def _(make: Any) -> Any:
    return make(2, 6), -1, (3, -1)


@primitive(torch.Tensor.squeeze, torch.squeeze, extra="constant")
def squeeze(input: Tensor, dim: Axes | None = None) -> Any:
    """Without the axes of size 1, or those of them in `dim`.   d/dinput = g under the old shape"""
    return torch.squeeze(input) if dim is None else torch.squeeze(input, dim), input.shape


@squeeze.vjp("input")
def _(g: Tensor, extra: torch.Size) -> Tensor:
    return g.reshape(extra)


@squeeze.example
def _(make: Any) -> Any:
    return (make(1, 3, 1),)


@squeeze.example
def _(make: Any) -> Any:
    return make(1, 3, 1), (0, 1)


@primitive("unsqueeze")
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new axis of size 1 at `dim`.   d/dinput = g without it"""
    return torch.unsqueeze(input, dim)


@unsqueeze.vjp("input")
def _(g: Tensor, dim: int) -> Tensor:
    return g.squeeze(dim)


@unsqueeze.example
def _(make: Any) -> Any:
    return make(2, 3), -2


@primitive("transpose")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two axes exchanged.   d/dinput = g with them exchanged back"""
    return torch.transpose(input, dim0, dim1)


@transpose.vjp("input")
def _(g: Tensor, dim0: int, dim1: int) -> Tensor:
    return g.transpose(dim0, dim1)


@transpose.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 0, -1


@composite("swapaxes")
def swapaxes(input: Any, axis0: int, axis1: int) -> Any:
    """NumPy's name of `transpose`."""
    return transpose(input, axis0, axis1)


@composite("swapdims")
def swapdims(input: Any, dim0: int, dim1: int) -> Any:
    """Another name of `transpose`."""
    return transpose(input, dim0, dim1)


@primitive("t")
def t(input: Tensor) -> Tensor:
    """A matrix transposed, a vector as it is.   d/dinput = g transposed"""
    return torch.t(input)


@t.vjp("input")
def _(g: Tensor) -> Tensor:
    return g.t()


@t.example
def _(make: Any) -> Any:
    return (make(2, 3),)


composite("t")(specialise(t))


@composite(torch.Tensor.T.__get__)  # type: ignore[attr-defined]
def reversed_axes(input: Any) -> Any:
    """The axes in reverse order: what ``x.T`` means."""
    return permute(input, *reversed(range(input.ndim)))


@composite(torch.Tensor.mT.__get__)  # type: ignore[attr-defined]
def matrix_transpose(input: Any) -> Any:
    """The last two axes exchanged: what ``x.mT`` means."""
    return transpose(input, -2, -1)


@composite("adjoint", torch.Tensor.mH.__get__)  # type: ignore[attr-defined]
def adjoint(input: Any) -> Any:
    """The last two axes exchanged, and complex numbers conjugated."""
    return run_torch(torch.adjoint, (input,), {}) if input.is_complex() else transpose(input, -2, -1)


@composite(torch.Tensor.H.__get__)  # type: ignore[attr-defined]
def conjugate_transpose(input: Any) -> Any:
    """A matrix transposed, and complex numbers conjugated: what ``x.H`` means."""
    if input.is_complex() or input.ndim != 2:
        return run_torch(torch.Tensor.H.__get__, (input,), {})  # type: ignore[attr-defined]
    return transpose(input, 0, 1)


@primitive(torch.Tensor.permute, torch.permute)
def permute(input: Tensor, *dims: int) -> Tensor:
    """Axis dims[i] as axis i.   d/dinput = g with axis i as axis dims[i]"""
    return input.permute(dims)


@permute.vjp("input")
def _(g: Tensor, dims: Sequence[int]) -> Tensor:
    back = [0] * len(dims)
    for place, axis in enumerate(dims):
        back[axis] = place
    return g.permute(back)


@permute.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 2, 0, -2


@primitive("movedim", "moveaxis")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Axes `source` at `destination`, the others in their order.   d/dinput = g with them moved back"""
    return torch.movedim(input, source, destination)


@movedim.vjp("input")
def _(g: Tensor, source: Any, destination: Any) -> Tensor:
    return torch.movedim(g, destination, source)


@movedim.example
def _(make: Any) -> Any:
    return make(2, 3, 2), (0, 1), (-1, 0)


@primitive(torch.Tensor.expand, broadcasts=True)
def expand(input: Tensor, *size: int) -> Tensor:
    """Axes of size 1 repeated without a copy, and new ones in front.   d/dinput = the sum of g over them"""
    return input.expand(size)


@expand.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@expand.example
def _(make: Any) -> Any:
    return make(2, 1), 2, -1, 3


@composite("expand_as")
def expand_as(input: Any, other: Any) -> Any:
    """`input` expanded to the shape of `other`."""
    return expand(input, other.shape)


@composite("broadcast_to")
def broadcast_to(input: Any, *size: Any, **options: Any) -> Any:
    """NumPy's name of `expand`."""
    return expand(input, *size, **options)


@primitive("sum_to_size", extra="constant")
def sum_over_broadcast(input: Tensor, *size: int) -> Any:
    """Summed over the axes that broadcasting from `size` made.   d/dinput = g, broadcast"""
    return input.sum_to_size(size), input.shape


@sum_over_broadcast.vjp("input")
def _(g: Tensor, extra: torch.Size) -> Tensor:
    return g.expand(extra)


@sum_over_broadcast.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 3, 1


@composite("sum_to_size")
def sum_to_size(input: Any, *size: Any) -> Any:
    """`sum_over_broadcast`; the very same tensor where there is nothing to sum, as in torch."""
    wanted = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return input if tuple(wanted) == tuple(input.shape) else sum_over_broadcast(input, *wanted)


@composite(torch.broadcast_tensors, BUILT_IN.broadcast_tensors)
def broadcast_tensors(*tensors: Any) -> Any:
    """All tensors expanded to the shape they broadcast to together."""
    tensors = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = torch.broadcast_shapes(*(one.shape for one in tensors))
    return tuple(expand(one, shape) for one in tensors)


@composite(torch.meshgrid, BUILT_IN.meshgrid)
def meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    """Grid i varies along axis i as tensor i does; with "xy" the first two exchange their axes."""
    tensors = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if indexing == "xy" and len(tensors) > 1:
        second, first, *rest = meshgrid(tensors[1], tensors[0], *tensors[2:], indexing="ij")
        return (first, second, *rest)
    if indexing not in ("ij", "xy"):
        return run_torch(torch.meshgrid, tuple(tensors), {"indexing": indexing})  # torch warns, or refuses
    sizes = [one.numel() for one in tensors]
    ones = [1] * len(sizes)
    return tuple(
        expand(reshape(one, *ones[:axis], sizes[axis], *ones[axis + 1 :]), sizes) for axis, one in enumerate(tensors)
    )
