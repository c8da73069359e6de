"""Arithmetic, element by element, with NumPy's broadcasting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fastpath import binary, unary
from cartograd.engine.primitive import composite, primitive


def no_gradient(g: Tensor) -> Tensor:
    """Zeros like `g`: for functions that are constant in steps. Recorded, they stay connected to `g`."""
    if torch.is_grad_enabled():
        return g.masked_fill(torch.ones_like(g, dtype=torch.bool), 0)
    return torch.zeros_like(g)


@primitive("add", broadcasts=True)
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


fast_add = composite("__add__", "__radd__")(binary(add, torch.add, arithmetic=True))


@composite("add")
def scaled_add(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input + alpha * other"""
    return fast_add(input, other if alpha == 1 else alpha * other)


@primitive("sub", broadcasts=True)
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


fast_sub = composite("__sub__")(binary(sub, torch.sub, arithmetic=True))


@primitive("rsub", broadcasts=True)
def rsub(input: Tensor, other: Tensor) -> Tensor:
    """other - input.   d/dinput = -g,  d/dother = g"""
    return torch.rsub(input, other)


@rsub.vjp("input")
def _(g: Tensor) -> Tensor:
    return -g


@rsub.vjp("other")
def _(g: Tensor) -> Tensor:
    return g


@rsub.example
def _(make: Any) -> Any:
    return make(2, 3), make(3)


fast_rsub = composite("__rsub__")(binary(rsub, torch.rsub, arithmetic=True))


@composite("rsub")
def scaled_reflected_sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """other - alpha * input"""
    return fast_rsub(input if alpha == 1 else alpha * input, other)


@composite("sub", "subtract")
def scaled_sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input - alpha * other"""
    return fast_sub(input, other if alpha == 1 else alpha * other)


@primitive("mul", broadcasts=True)
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


fast_mul = composite("mul", "multiply", "__mul__", "__rmul__")(binary(mul, torch.mul, arithmetic=True))


@primitive("true_divide", broadcasts=True)
def div(input: Tensor, other: Tensor) -> Tensor:
    """input / other.   d/dinput = g / other,  d/dother = -g * (input / other) / other"""
    return input / other


@div.vjp("input")
def _(g: Tensor, other: Tensor) -> Tensor:
    return g / other


@div.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return -g * ((input / other) / other)


@div.example
def _(make: Any) -> Any:
    return make(2, 3), make(3, low=0.5, high=2.0)


fast_div = composite("true_divide", "__truediv__", "__div__")(binary(div, torch.div, arithmetic=True))


@primitive("__rtruediv__", broadcasts=True)
def rdiv(input: Tensor, other: Tensor) -> Tensor:
    """other / input.   d/dinput = -g * (other / input) / input,  d/dother = g / input"""
    return torch.reciprocal(input) * other


@rdiv.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return -g * ((other / input) / input)


@rdiv.vjp("other")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / input


@rdiv.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.5, high=2.0), make(3)


@rdiv.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.5, high=2.0), 3


fast_rdiv = composite("__rtruediv__", "__rdiv__")(binary(rdiv, rdiv.forward, arithmetic=True))


@primitive(broadcasts=True)
def rounded_div(input: Tensor, other: Tensor, *, rounding_mode: str) -> Tensor:
    """input / other, rounded to a whole number ("floor" or "trunc").   Both gradients are 0 wherever there is one."""
    return torch.div(operand(input, other), other, rounding_mode=rounding_mode)


@rounded_div.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@rounded_div.vjp("other")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@rounded_div.example
def _(make: Any) -> Any:
    return make(2, 3, low=1.1, high=1.9), torch.full((3,), 2.0, dtype=torch.float64), "floor"


def is_number(value: Any) -> bool:
    """Whether `value` is no tensor, neither torch's nor ours: Python's numbers, and NumPy's."""
    return not hasattr(value, "dim")


def operand(value: Any, other: Tensor) -> Any:
    """A number as a tensor that can stand beside `other`, for functions that take no number there."""
    if is_number(value):
        return torch.as_tensor(value, dtype=torch.result_type(value, other), device=other.device)
    return value


@composite("div", "divide")
def general_div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """input / other, rounded if a mode is given"""
    return fast_div(input, other) if rounding_mode is None else rounded_div(input, other, rounding_mode=rounding_mode)


@composite("floor_divide", "__floordiv__")
def floor_divide(input: Any, other: Any) -> Any:
    """The whole number at or below input / other"""
    return rounded_div(input, other, rounding_mode="floor")


@composite("__rfloordiv__")
def reflected_floor_divide(input: Any, other: Any) -> Any:
    """The whole number at or below other / input"""
    return rounded_div(other, input, rounding_mode="floor")


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


fast_neg = composite("neg", "negative", "__neg__")(unary(neg))


@primitive("abs", "absolute", "__abs__")
def abs(input: Tensor) -> Tensor:
    """|input|.   d/dinput = g * sign(input), which is 0 at 0"""
    return torch.abs(input)


@abs.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.sgn(input)


@abs.example
def _(make: Any) -> Any:
    return (torch.cat([make(3, low=-1.0, high=-0.1), make(3, low=0.1)]),)


fast_abs = composite("abs", "absolute", "__abs__")(unary(abs))


@primitive("fmod", broadcasts=True)
def fmod(input: Tensor, other: Tensor) -> Tensor:
    """What is left of input / other, with the sign of input.   d/dinput = g,  d/dother = -g * trunc(input / other)"""
    return torch.fmod(input, other)


@fmod.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@fmod.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return -g * torch.div(input, other, rounding_mode="trunc")


@fmod.example
def _(make: Any) -> Any:
    return make(2, 3, low=-2.9, high=-2.1), torch.ones(3, dtype=torch.float64)


@primitive("remainder", "__mod__", broadcasts=True)
def remainder(input: Tensor, other: Tensor) -> Tensor:
    """What is left of input / other, with the sign of other.   d/dinput = g,  d/dother = -g * floor(input / other)"""
    return torch.remainder(input, other)


@remainder.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@remainder.vjp("other")
def _(g: Tensor, input: Any, other: Tensor) -> Tensor:
    return -g * torch.div(operand(input, other), other, rounding_mode="floor")


@remainder.example
def _(make: Any) -> Any:
    return make(2, 3, low=-2.9, high=-2.1), torch.ones(3, dtype=torch.float64)


@composite("__rmod__")
def reflected_remainder(input: Any, other: Any) -> Any:
    """other % input"""
    return remainder(other, input)
