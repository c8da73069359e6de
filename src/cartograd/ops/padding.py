"""Padding, and cropping as padding by less than nothing."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.ops.layout import blank

_aten = torch.ops.aten
_KERNELS = {
    (mode, axes): getattr(_aten, f"{name}_pad{axes}d_backward").default
    for mode, name in (("reflect", "reflection"), ("replicate", "replication"))
    for axes in (1, 2, 3)
}


@primitive("pad", extra="constant")
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """input with `pad` = (before, after) of the last axis, of the one before it, ...; a negative width cuts off.

    d/dinput = g without the margins, to which 'reflect', 'replicate' and 'circular' add each element of g in a margin
    at the place in the input that it was copied from.
    """
    return F.pad(input, pad, mode, value), input.shape


@pad.vjp("input")
def _(g: Tensor, pad: Any, mode: str, extra: Any) -> Tensor:
    if mode == "constant":
        return F.pad(g, [-width for width in pad])
    if mode == "circular":
        return _unwrap(g, pad)
    return _KERNELS[mode, len(pad) // 2](g, blank(extra, g), pad)


def _unwrap(g: Tensor, pad: Any) -> Tensor:
    """The rule of 'circular': cut off what was negative last, add the margins to the opposite ends before that."""
    for axis in range(len(pad) // 2):
        before, after = (max(0, width) for width in pad[2 * axis : 2 * axis + 2])
        if before or after:
            g = _add_margins(g, -1 - axis, before, after)
    return F.pad(g, [max(0, -width) for width in pad])


def _add_margins(g: Tensor, axis: int, before: int, after: int) -> Tensor:
    size = g.shape[axis] - before - after
    others = [0, 0] * (-1 - axis)
    inner = g.narrow(axis, before, size)
    if before:
        inner = inner + F.pad(g.narrow(axis, 0, before), [*others, size - before, 0])
    if after:
        inner = inner + F.pad(g.narrow(axis, before + size, after), [*others, 0, size - after])
    return inner


@pad.example
def _(make: Any) -> Any:
    return make(2, 3, 4), (1, -1, 0, 2)


@pad.example
def _(make: Any) -> Any:
    return make(1, 3, 4), (2, 1, 1, 2), "reflect"


@pad.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 2, 3), (1, 1, 0, 1, 2, 0), "replicate"


@pad.example
def _(make: Any) -> Any:
    return make(1, 3, 4), (3, 2, -1, 2), "circular"


@composite("constant_pad_nd")
def constant_pad_nd(input: Any, pad: Any, value: float = 0) -> Any:
    """`pad` with a constant, which may be complex."""
    if input.is_complex():
        return run_torch(torch.constant_pad_nd, (input, pad, value), {})
    return F.pad(input, pad, "constant", value)
