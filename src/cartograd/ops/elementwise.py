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


fast_add = composite("__add__", "__radd__")(binary(add, torch.add))


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


fast_sub = composite("__sub__")(binary(sub, torch.sub))


@composite("__rsub__")
def reflected_sub(input: Any, other: Any) -> Any:
    """other - input"""
    return fast_sub(other, input)


@composite("rsub")
def scaled_reflected_sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """other - alpha * input"""
    return fast_sub(other, input if alpha == 1 else alpha * input)


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


fast_mul = composite("mul", "multiply", "__mul__", "__rmul__")(binary(mul, torch.mul))


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


fast_div = composite("true_divide", "__truediv__", "__div__")(binary(div, torch.div))


@composite("__rtruediv__", "__rdiv__")
def reflected_div(input: Any, other: Any) -> Any:
    """other / input"""
    return fast_div(other, input)


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


def operand(value: Any, other: Tensor) -> Any:
    """A number as a tensor that can stand beside `other`, for functions that take no number there."""
    if isinstance(value, (int, float)):
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


@primitive("lerp", broadcasts=True)
def lerp(input: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """input + weight * (end - input); the weight may be a number.

    d/dinput = g * (1 - weight),  d/dend = g * weight,  d/dweight = g * (end - input)
    """
    return torch.lerp(input, end, weight)


@lerp.vjp("input")
def _(g: Tensor, weight: Tensor) -> Tensor:
    return g * (1 - weight)


@lerp.vjp("end")
def _(g: Tensor, weight: Tensor) -> Tensor:
    return g * weight


@lerp.vjp("weight")
def _(g: Tensor, input: Tensor, end: Tensor) -> Tensor:
    return g * (end - input)


@lerp.example
def _(make: Any) -> Any:
    return make(2, 3), make(3), make(2, 1)


@primitive("addcmul", broadcasts=True)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value * tensor1 * tensor2.

    d/dinput = g,  d/dtensor1 = g * value * tensor2,  d/dtensor2 = g * value * tensor1
    """
    return torch.addcmul(input, tensor1, tensor2, value=value)


@addcmul.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@addcmul.vjp("tensor1")
def _(g: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return g * (tensor2 if value == 1 else tensor2 * value)


@addcmul.vjp("tensor2")
def _(g: Tensor, tensor1: Tensor, value: float) -> Tensor:
    return g * (tensor1 if value == 1 else tensor1 * value)


@addcmul.example
def _(make: Any) -> Any:
    return make(2, 3), make(3), make(2, 1), 0.5


@primitive("addcdiv", broadcasts=True)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value * tensor1 / tensor2.

    d/dinput = g,  d/dtensor1 = g * value / tensor2,  d/dtensor2 = -g * value * tensor1 / tensor2^2
    """
    return torch.addcdiv(input, tensor1, tensor2, value=value)


@addcdiv.vjp("input")
def _(g: Tensor) -> Tensor:
    return g


@addcdiv.vjp("tensor1")
def _(g: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return g * (value / tensor2)


@addcdiv.vjp("tensor2")
def _(g: Tensor, tensor1: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return -g * (value * tensor1 / (tensor2 * tensor2))


@addcdiv.example
def _(make: Any) -> Any:
    return make(2, 3), make(3), make(2, 1, low=0.5, high=2.0), 0.5


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
