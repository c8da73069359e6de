"""Channels-last adapters, and stand-ins for tensors of which only the shape matters.

A tensor (N, H, W, C) seen as (N, C, H, W) is what torch calls the channels-last memory format: the kernels know it,
nothing is copied on the way in, and what comes out is dense again when it is seen as (N, OH, OW, C).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cartograd.errors import OptionError

CHANNELS_FIRST = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
CHANNELS_LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}


def channels_last(function: Callable[..., Any], dims: int | None = None) -> Callable[..., Any]:
    """Give a function of channels-first tensors the keyword `layout`.

    Only the first argument and the results change their layout; weights, masks and statistics keep torch's own.

    Parameters
    ----------
    function : callable
        Takes its input as (N, C, ...) or, without the batch, as (C, ...); returns a tensor or a tuple of them.
    dims : int, default=None
        How many spatial axes it works on: 1, 2 or 3. `None` means any, told by the layout that is asked for.

    Examples
    --------
    >>> import torch
    >>> upsample = channels_last(torch.nn.functional.pixel_shuffle, 2)
    >>> upsample(torch.ones(1, 5, 5, 8), 2, layout="NHWC").shape
    torch.Size([1, 10, 10, 2])
    """
    spatial = [dims] if dims else list(CHANNELS_FIRST)
    first = {CHANNELS_FIRST[n] for n in spatial}
    last = {CHANNELS_LAST[n]: n for n in spatial}
    name = getattr(function, "__name__", str(function))
    default = CHANNELS_FIRST[spatial[0]] if dims else None

    @functools.wraps(function, updated=())
    def with_layout(input: Any, *args: Any, layout: str | None = default, **options: Any) -> Any:
        if layout is None or layout in first:
            return function(input, *args, **options)
        if layout not in last:
            raise OptionError(f"{name} takes layout={_either([*sorted(first), *last])}, got {layout!r}")
        results = function(_channels_to_front(input, last[layout], name, layout), *args, **options)
        if isinstance(results, (tuple, list)):
            return tuple(_channels_to_back(result, last[layout]) for result in results)
        return _channels_to_back(results, last[layout])

    with_layout.__signature__ = _with_option(function, "layout", default)  # type: ignore[attr-defined]
    with_layout.__doc__ = f"{function.__doc__}\n\n    `layout`: {_either([*sorted(first), *last])}."
    return with_layout


def _either(names: list[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _with_option(function: Callable[..., Any], name: str, default: Any) -> inspect.Signature | None:
    """The signature of `function` with one more keyword; `None` if it has none that can be read."""
    try:
        signature = inspect.signature(getattr(function, "forward", function))
    except ValueError:
        return None
    parameters = list(signature.parameters.values())
    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
    place = next((i for i, one in enumerate(parameters) if one.kind is one.VAR_KEYWORD), len(parameters))
    return signature.replace(parameters=[*parameters[:place], added, *parameters[place:]])


def _channels_to_front(input: Any, dims: int, name: str, layout: str) -> Any:
    axes = input.dim()
    if axes not in (dims + 1, dims + 2):
        raise OptionError(
            f"{name} with layout={layout!r} takes an input of {dims + 2} axes ({', '.join(layout)}), "
            f"or {dims + 1} without N; got shape {tuple(input.shape)}"
        )
    batch = range(axes - dims - 1)
    return input.permute(*batch, axes - 1, *range(axes - dims - 1, axes - 1))


def _channels_to_back(result: Any, dims: int) -> Any:
    channel = result.dim() - dims - 1
    return result.permute(*range(channel), *range(channel + 1, result.dim()), channel)


def blank(shape: tuple[int, ...], g: Tensor) -> Tensor:
    """A tensor of this shape to give to a gradient kernel that only asks for the shape of an input.

    It takes one element of memory; the whole, in the channels-last format, where `g` has that format, because then the
    kernel answers in it.
    """
    if len(shape) == 4 and not g.is_contiguous() and g.is_contiguous(memory_format=torch.channels_last):
        return torch.empty(shape, dtype=g.dtype, device=g.device, memory_format=torch.channels_last)
    return torch.empty((), dtype=g.dtype, device=g.device).expand(shape)


_AXES_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
_AXES_SECOND = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def regular(input: Tensor) -> Tensor:
    """Return `input` with the usual strides along axes of size 1, where they mean nothing.

    Some kernels choose between memory formats by looking at those strides, too, and then read the wrong one.
    """
    if 1 not in input.shape:
        return input
    if input.is_contiguous():
        return input.view(-1).view(input.shape)
    axes = input.dim()
    if axes in _FORMATS and input.is_contiguous(memory_format=_FORMATS[axes]):
        last = input.permute(_AXES_LAST[axes])
        return last.view(-1).view(last.shape).permute(_AXES_SECOND[axes])
    return input


def dense(input: Tensor) -> Tensor:
    """Return `input` contiguous, or channels-last where the kernels know that (on the CPU)."""
    axes = input.dim()
    if input.is_cpu and axes in _FORMATS and input.is_contiguous(memory_format=_FORMATS[axes]):
        return regular(input)
    return regular(input.contiguous())
