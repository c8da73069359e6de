"""Softmax and its relatives, along one axis."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import composite, primitive

_softmax_backward: Any = torch._softmax_backward_data
_log_softmax_backward: Any = torch._log_softmax_backward_data


@primitive("softmax", extra="constant")
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """e^input over its sum along dim, computed in `dtype` if one is given.   d/dinput = out * (g - sum(g * out))"""
    return torch.softmax(input, dim, dtype=dtype), input.dtype


@softmax.vjp("input")
def _(g: Tensor, dim: int, out: Tensor, extra: torch.dtype) -> Tensor:
    gradient = _softmax_backward(g, out, dim, out.dtype)
    return gradient if out.dtype == extra else gradient.to(extra)


@softmax.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 1


@composite(F.softmax)
def functional_softmax(
    input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Any:
    """`softmax`, along an axis that torch chooses, with a warning, if none is given"""
    return softmax(input, _axis("softmax", input, dim, _stacklevel), dtype)


@primitive("log_softmax", extra="constant")
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """input - log(sum(e^input)) along dim, as it stands: never the log of a rounded softmax.

    d/dinput = g - e^out * sum(g)
    """
    return torch.log_softmax(input, dim, dtype=dtype), input.dtype


@log_softmax.vjp("input")
def _(g: Tensor, dim: int, out: Tensor, extra: torch.dtype) -> Tensor:
    gradient = _log_softmax_backward(g, out, dim, out.dtype)
    return gradient if out.dtype == extra else gradient.to(extra)


@log_softmax.example
def _(make: Any) -> Any:
    return make(2, 3, 2), 1


@composite(F.log_softmax)
def functional_log_softmax(
    input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Any:
    """`log_softmax`, along an axis that torch chooses, with a warning, if none is given"""
    return log_softmax(input, _axis("log_softmax", input, dim, _stacklevel), dtype)


@composite(F.softmin)
def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Any:
    """`softmax` of -input"""
    return softmax(-input, _axis("softmin", input, dim, _stacklevel), dtype)


def _axis(name: str, input: Any, dim: int | None, stacklevel: int) -> int:
    if dim is not None:
        return dim
    chosen = 0 if input.dim() in (0, 1, 3) else 1
    warnings.warn(f"{name} without dim= is deprecated in torch; axis {chosen} was taken", stacklevel=stacklevel + 3)
    return chosen
