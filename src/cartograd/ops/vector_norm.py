"""Vector norms, over all axes or some of them; also as torch.norm and torch.linalg.norm spell them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, primitive
from cartograd.ops.reduce import Dims, cast, unreduced


@primitive("vector_norm")
def vector_norm(
    input: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """(sum |input|^p)^(1/p); the largest or smallest |input| for p = inf, -inf; how many are not 0 for p = 0.

    d/dinput = g * sign(input) * (|input| / out)^(p - 1), and 0 where out is 0; elements that tie for the largest
    share g evenly.
    """
    return torch.linalg.vector_norm(input, ord, dim, keepdim, dtype=dtype)


@vector_norm.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    g, norm = unreduced(g, dim, keepdim, input.ndim), unreduced(out, dim, keepdim, input.ndim)
    return cast(norm_gradient(g, cast(input, g.dtype), norm, float(ord), dim), input.dtype)


def norm_gradient(g: Tensor, input: Tensor, norm: Tensor, p: float, dim: Dims) -> Tensor:
    """As torch has it for each p, so that nothing overflows that need not and zeros give zero."""
    if p == 0:
        return torch.zeros_like(input)
    if p == 1:
        return g * torch.sgn(input)
    if p == 2:
        return g * (input / norm).masked_fill(norm == 0, 0)
    size = torch.abs(input)
    if math.isinf(p):
        hits = torch.logical_or(size == norm, torch.isnan(size))
        return torch.sgn(input) * (g / hits.sum(dim, keepdim=True) * hits)
    if p < 1:
        return torch.sgn(input) * (size ** (p - 1)).masked_fill(input == 0, 0) * g * norm ** (1 - p)
    scale = (g / norm ** (p - 1)).masked_fill(norm == 0, 0)
    if p < 2:
        return torch.sgn(input) * size ** (p - 1) * scale
    return input * size ** (p - 2) * scale


@vector_norm.example
def _(make: Any) -> Any:
    return make(2, 3), 2, 1


@vector_norm.example
def _(make: Any) -> Any:
    return make(2, 3), 3, (0, 1), True


@vector_norm.example
def _(make: Any) -> Any:
    return make(2, 3), 1.5


@vector_norm.example
def _(make: Any) -> Any:
    return make(2, 3), 0.5, 0


@vector_norm.example
def _(make: Any) -> Any:
    return make(2, 3), math.inf, -1


@composite(torch.norm, torch.Tensor.norm)
def norm(
    input: Any, p: Any = "fro", dim: Dims = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Any:
    """The vector norm; "fro" means p = 2, over at most two axes."""
    axes = 0 if dim is None or isinstance(dim, int) else len(dim)
    if out is not None or p == "nuc" or (p == "fro" and axes > 2):
        return run_torch(torch.norm, (input, p, dim, keepdim, out, dtype), {})
    return vector_norm(input, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)


@composite(torch.linalg.norm)
def linalg_norm(input: Any, ord: Any = None, dim: Dims = None, keepdim: bool = False, **options: Any) -> Any:
    """A vector norm for one axis, or without `ord`; a matrix norm for two."""
    axes = input.ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
    if options.keys() <= {"dtype"}:
        if ord is None or (axes == 1 and not isinstance(ord, str)):
            return vector_norm(input, 2 if ord is None else ord, dim, keepdim, **options)
        if axes == 2 and ord == "fro":
            return vector_norm(input, 2, dim, keepdim, **options)
    return run_torch(torch.linalg.norm, (input, ord, dim, keepdim), options)
