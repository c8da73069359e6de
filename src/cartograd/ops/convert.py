"""Copies, and copies of another dtype or on another device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import composite, primitive
from cartograd.engine.tensor import Tensor as OurTensor


@primitive("clone")
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy in memory of its own.   d/dinput = g"""
    return input.clone() if memory_format is None else input.clone(memory_format=memory_format)


@clone.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@clone.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive(torch.Tensor.to, extra="constant")
def convert(
    input: Tensor,
    device: Any = None,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: Any = None,
) -> Any:
    """input with another dtype or on another device.   d/dinput = g, brought back to the input's"""
    device = input.device if device is None else device
    out = input.to(device, dtype, non_blocking, copy, memory_format=memory_format)
    return out, (input.device, input.dtype)


@convert.vjp("input")
def _(g: Tensor, extra: Any) -> Tensor:
    device, dtype = extra
    return g.to(device=device, dtype=dtype)


@convert.example
def _(make: Any) -> Any:
    return make(2, 3), None, torch.float64, False, True


@composite("to")
def to(input: Any, *args: Any, **kwargs: Any) -> Any:
    """``to(dtype)``, ``to(device, dtype)`` or ``to(other)``, each with non_blocking, copy and memory_format"""
    first = args[0] if args else None
    if isinstance(first, torch.dtype):
        args = (None, *args)
    elif isinstance(first, (Tensor, OurTensor)):
        args = (first.device, first.dtype, *args[1:])
    return converted(input, *args, **kwargs)


def converted(
    input: Any,
    device: Any = None,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: Any = None,
) -> Any:
    """`convert` where something changes; else the very same tensor, as in torch."""
    formatted = memory_format in (None, torch.preserve_format) or input.is_contiguous(memory_format=memory_format)
    if not copy and formatted and (dtype is None or dtype == input.dtype) and _is_on(input, device):
        return input
    return convert(input, device, dtype, non_blocking, copy, memory_format=memory_format)


def _is_on(input: Any, device: Any) -> bool:
    if device is None:
        return True
    wanted, actual = torch.device(device), input.device
    if wanted.index is None and wanted.type == actual.type == "cuda":
        return actual.index == torch.cuda.current_device()
    return wanted == actual or (wanted.type == actual.type == "cpu")


@composite("type_as")
def type_as(input: Any, other: Any) -> Any:
    """input with the dtype and on the device of other"""
    return converted(input, other.device, other.dtype)


@composite("float")
def to_float(input: Any, *, memory_format: Any = None) -> Any:
    """input as float32"""
    return converted(input, dtype=torch.float32, memory_format=memory_format)


@composite("double")
def to_double(input: Any, *, memory_format: Any = None) -> Any:
    """input as float64"""
    return converted(input, dtype=torch.float64, memory_format=memory_format)


@composite("half")
def to_half(input: Any, *, memory_format: Any = None) -> Any:
    """input as float16"""
    return converted(input, dtype=torch.float16, memory_format=memory_format)


@composite("bfloat16")
def to_bfloat16(input: Any, *, memory_format: Any = None) -> Any:
    """input as bfloat16"""
    return converted(input, dtype=torch.bfloat16, memory_format=memory_format)


@composite("cpu")
def to_cpu(input: Any, *, memory_format: Any = None) -> Any:
    """input in main memory"""
    return converted(input, "cpu", memory_format=memory_format)


@composite("cuda")
def to_cuda(input: Any, device: Any = None, non_blocking: bool = False, *, memory_format: Any = None) -> Any:
    """input on a CUDA device, the current one if none is named"""
    return converted(input, "cuda" if device is None else device, None, non_blocking, memory_format=memory_format)


@composite("positive", "__pos__")
def positive(input: Any) -> Any:
    """+input, the very same tensor"""
    return input
