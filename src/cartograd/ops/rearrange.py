"""Elements repeated, turned, picked out by their place: repeat, flip, roll, diagonals, triangles, windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.reduce import Axes

_select_backward = torch.ops.aten.select_backward.default
_slice_backward = torch.ops.aten.slice_backward.default
_diagonal_backward = torch.ops.aten.diagonal_backward.default
_unfold_backward = torch.ops.aten.unfold_backward.default


@primitive(torch.Tensor.repeat, extra="constant")
def repeat(input: Tensor, *repeats: int) -> Any:
    """Copies side by side, repeats[i] of them along axis i.   d/dinput = the sum of g over the copies"""
    return input.repeat(repeats), input.shape


@repeat.vjp("input")
def _(g: Tensor, repeats: Sequence[int], extra: torch.Size) -> Tensor:
    sizes = [1] * (len(repeats) - len(extra)) + list(extra)
    split: list[int] = []
    copies: list[int] = []
    for count, size in zip(repeats, sizes, strict=True):
        if count != 1:
            copies.append(len(split))
            split.append(count)
        split.append(size)
    return (g.reshape(split).sum(copies) if copies else g).reshape(extra)


@repeat.example
def _(make: Any) -> Any:
    return make(2, 2), 2, 1, 3


@composite("tile")
def tile(input: Any, *dims: Any, **options: Any) -> Any:
    """`repeat`, with ones put before the counts where they are fewer than the axes."""
    counts = options.pop("dims", dims)
    counts = counts[0] if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts
    return repeat(input, *[1] * (input.ndim - len(counts)), *counts, **options)


@primitive(extra="constant")
def interleave(input: Tensor, repeats: int, dim: int) -> Any:
    """Each slice along `dim` as many times, one after the other.   d/dinput = the sum of g over the copies"""
    return torch.repeat_interleave(input, repeats, dim), input.shape


interleave.torch_functions = [torch.repeat_interleave]  # for complex numbers


@interleave.vjp("input")
def _(g: Tensor, repeats: int, dim: int, extra: torch.Size) -> Tensor:
    after = dim % len(extra) + 1
    return g.reshape(*extra[:after], repeats, *extra[after:]).sum(after)


@interleave.example
def _(make: Any) -> Any:
    return make(2, 3), 2, 1


@composite("repeat_interleave")
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Any:
    """`interleave`; a tensor of counts, one for each slice, picks the slices by index."""
    if repeats is None:
        return run_torch(torch.repeat_interleave, (input,), {"output_size": output_size})
    if dim is None or input.ndim == 0:
        input, dim = input.reshape(-1), 0
    if not isinstance(repeats, (torch.Tensor, Recorded)):
        return interleave(input, repeats, dim)
    counts = repeats.data if isinstance(repeats, Recorded) else repeats
    counts = counts.reshape(-1).expand(input.shape[dim]) if counts.numel() == 1 else counts
    return torch.index_select(input, dim, torch.repeat_interleave(counts, output_size=output_size))


@primitive(torch.Tensor.flip, torch.flip)
def flip(input: Tensor, *dims: int) -> Tensor:
    """The order along `dims` reversed.   d/dinput = g, reversed back"""
    return input.flip(dims)


@flip.vjp("input")
def _(g: Tensor, dims: tuple[int, ...]) -> Tensor:
    return g.flip(dims)


@flip.example
def _(make: Any) -> Any:
    return make(2, 3), 0, -1


@composite("fliplr")
def fliplr(input: Any) -> Any:
    """The order of the columns reversed."""
    return flip(input, 1)


@composite("flipud")
def flipud(input: Any) -> Any:
    """The order of the rows reversed."""
    return flip(input, 0)


@primitive("roll")
def roll(input: Tensor, shifts: Axes, dims: Axes = ()) -> Tensor:
    """The elements moved by `shifts` along `dims`, what leaves comes in again.   d/dinput = g, moved back"""
    return torch.roll(input, shifts, dims)


@roll.vjp("input")
def _(g: Tensor, shifts: Axes, dims: Axes) -> Tensor:
    back = -shifts if isinstance(shifts, int) else [-shift for shift in shifts]
    return torch.roll(g, back, dims)


@roll.example
def _(make: Any) -> Any:
    return make(2, 3), (1, -1), (0, 1)


@primitive("rot90")
def rot90(input: Tensor, k: int = 1, dims: tuple[int, ...] = (0, 1)) -> Tensor:
    """The plane of two axes turned by k right angles.   d/dinput = g, turned back"""
    return torch.rot90(input, k, dims)


@rot90.vjp("input")
def _(g: Tensor, k: int, dims: tuple[int, ...]) -> Tensor:
    return torch.rot90(g, -k, dims)


@rot90.example
def _(make: Any) -> Any:
    return make(2, 3), 1, (1, 0)


@primitive("tril")
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Zero above the diagonal.   d/dinput = g, zero above the diagonal"""
    return torch.tril(input, diagonal)


@tril.vjp("input")
def _(g: Tensor, diagonal: int) -> Tensor:
    return g.tril(diagonal)


@tril.example
def _(make: Any) -> Any:
    return make(3, 3), -1


@primitive("triu")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Zero below the diagonal.   d/dinput = g, zero below the diagonal"""
    return torch.triu(input, diagonal)


@triu.vjp("input")
def _(g: Tensor, diagonal: int) -> Tensor:
    return g.triu(diagonal)


@triu.example
def _(make: Any) -> Any:
    return make(3, 3), 1


@primitive(torch.diagonal, torch.Tensor.diagonal, extra="constant")
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of two axes as a last axis.   d/dinput = g on that diagonal, else 0"""
    return torch.diagonal(input, offset, dim1, dim2), input.shape


@diagonal.vjp("input")
def _(g: Tensor, offset: int, dim1: int, dim2: int, extra: torch.Size) -> Tensor:
    return _diagonal_backward(g, extra, offset, dim1, dim2)


@diagonal.example
def _(make: Any) -> Any:
    return make(3, 2, 3), 1, 0, 2


@composite(torch.linalg.diagonal)
def linalg_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """`diagonal`, of the last two axes."""
    return diagonal(A, offset, dim1, dim2)


@primitive("diag_embed")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last axis as the diagonal of two.   d/dinput = the diagonal of g"""
    return torch.diag_embed(input, offset, dim1, dim2)


@diag_embed.vjp("input")
def _(g: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    return torch.diagonal(g, offset, dim1, dim2)


@diag_embed.example
def _(make: Any) -> Any:
    return make(2, 3), -1


@primitive("diag", extra="constant")
def diag(input: Tensor, diagonal: int = 0) -> Any:
    """A vector as the diagonal of a matrix; the diagonal of a matrix.   d/dinput is each for the other"""
    return torch.diag(input, diagonal), input.shape


@diag.vjp("input")
def _(g: Tensor, diagonal: int, extra: torch.Size) -> Tensor:
    return torch.diagonal(g, diagonal) if len(extra) == 1 else _diagonal_backward(g, extra, diagonal, 0, 1)


@diag.example
def _(make: Any) -> Any:
    return make(3), 1


@diag.example
def _(make: Any) -> Any:
    return make(3, 4), -1


@composite("diagflat")
def diagflat(input: Any, offset: int = 0) -> Any:
    """All elements as the diagonal of a matrix."""
    return diag_embed(input.reshape(-1), offset)


@primitive("narrow", extra="constant")
def narrow(input: Tensor, dim: int, start: int, length: int) -> Any:
    """Slices `start` to `start + length` along `dim`.   d/dinput = g there, else 0"""
    return torch.narrow(input, dim, start, length), input.shape


@narrow.vjp("input")
def _(g: Tensor, dim: int, start: int, length: int, extra: torch.Size) -> Tensor:
    start = start + extra[dim] if start < 0 else start
    return _slice_backward(g, extra, dim, start, start + length, 1)


@narrow.example
def _(make: Any) -> Any:
    return make(2, 4), 1, -3, 2


@composite("narrow")
def narrow_from(input: Any, dim: int, start: Any, length: int) -> Any:
    """`narrow`, whose start may be a tensor of one integer."""
    return narrow(input, dim, int(start), length)


@primitive("select", extra="constant")
def select(input: Tensor, dim: int, index: int) -> Any:
    """One slice along `dim`, without that axis.   d/dinput = g there, else 0"""
    return torch.select(input, dim, index), input.shape


@select.vjp("input")
def _(g: Tensor, dim: int, index: int, extra: torch.Size) -> Tensor:
    return _select_backward(g, extra, dim, index)


@select.example
def _(make: Any) -> Any:
    return make(2, 3), 1, -1


@primitive(torch.Tensor.unfold, extra="constant")
def unfold_axis(input: Tensor, dimension: int, size: int, step: int) -> Any:
    """Windows of `size` along an axis, `step` apart, as a last axis.   d/dinput = the sum of g over the windows"""
    return input.unfold(dimension, size, step), input.shape


@unfold_axis.vjp("input")
def _(g: Tensor, dimension: int, size: int, step: int, extra: torch.Size) -> Tensor:
    return _unfold_backward(g, extra, dimension, size, step)


@unfold_axis.example
def _(make: Any) -> Any:
    return make(2, 5), 1, 3, 1


@primitive("contiguous")
def compact(input: Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    """A copy in the order of memory that is asked for.   d/dinput = g"""
    return input.contiguous(memory_format=memory_format)


@compact.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@compact.example
def _(make: Any) -> Any:
    return (make(2, 3).t(),)


@composite("contiguous")
def contiguous(input: Any, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    """`compact` where needed; else the very same tensor, as in torch."""
    return input if input.is_contiguous(memory_format=memory_format) else compact(input, memory_format)
