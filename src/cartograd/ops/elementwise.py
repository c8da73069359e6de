"""Arithmetic and elementary functions, element by element, with NumPy's broadcasting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fastpath import binary
from cartograd.engine.primitive import composite, primitive


@primitive(broadcasts=True)
def add(input: Tensor, other: Tensor) -> Tensor:
    """input + other.   Both gradients are g."""
    return input + other


@add.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@add.vjp("other")
def _(g: Tensor) -> Tensor:
    return g


@add.example
def _(make: Any) -> Any:
    return make(2, 3), make(3)


fast_add = composite("__add__", "__radd__")(binary(add, torch.add))


@composite("add")
def scaled_add(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input + alpha * other"""
    return fast_add(input, other if alpha == 1 else alpha * other)


@primitive(broadcasts=True)
def sub(input: Tensor, other: Tensor) -> Tensor:
    """input - other.   d/dinput = g,  d/dother = -g"""
    return input - other


@sub.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@sub.vjp("other")
def _(g: Tensor) -> Tensor:
    return -g


@sub.example
def _(make: Any) -> Any:
    return make(2, 1), make(2, 3)


fast_sub = composite("__sub__")(binary(sub, torch.sub))


@composite("__rsub__")
def reflected_sub(input: Any, other: Any) -> Any:
    """other - input"""
    return fast_sub(other, input)


@composite("sub", "subtract")
def scaled_sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input - alpha * other"""
    return fast_sub(input, other if alpha == 1 else alpha * other)


@primitive(broadcasts=True)
def mul(input: Tensor, other: Tensor) -> Tensor:
    """input * other.   d/dinput = g * other,  d/dother = g * input"""
    return input * other


@mul.vjp("input")
def _(g: Tensor, other: Tensor) -> Tensor:
    return g * other


@mul.vjp("other")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * input


@mul.example
def _(make: Any) -> Any:
    return make(2, 3), make(3)


fast_mul = composite("mul", "multiply", "__mul__", "__rmul__")(binary(mul, torch.mul))


@primitive("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input.   d/dinput = -g"""
    return -input


@neg.vjp("input")
def _(g: Tensor) -> Tensor:
    return -g


@neg.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("exp", "__exp__")
def exp(input: Tensor) -> Tensor:
    """e^input.   d/dinput = g * out"""
    return torch.exp(input)


@exp.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return g * out


@exp.example
def _(make: Any) -> Any:
    return (make(2, 3),)
