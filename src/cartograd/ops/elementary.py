"""Exponentials, logarithms, trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fastpath import unary
from cartograd.engine.primitive import composite, primitive

LN2, LN10 = math.log(2), math.log(10)


@primitive("exp")
def exp(input: Tensor) -> Tensor:
    """e^input.   d/dinput = g * out"""
    return torch.exp(input)


@exp.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return g * out


@exp.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("exp2")
def exp2(input: Tensor) -> Tensor:
    """2^input.   d/dinput = g * out * log(2)"""
    return torch.exp2(input)


@exp2.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return g * out * LN2


@exp2.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("expm1")
def expm1(input: Tensor) -> Tensor:
    """e^input - 1, exact near 0.   d/dinput = g * (out + 1)"""
    return torch.expm1(input)


@expm1.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return g * (out + 1)


@expm1.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("log")
def log(input: Tensor) -> Tensor:
    """The natural logarithm.   d/dinput = g / input"""
    return torch.log(input)


@log.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / input


@log.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("log2")
def log2(input: Tensor) -> Tensor:
    """The logarithm to base 2.   d/dinput = g / (input * log(2))"""
    return torch.log2(input)


@log2.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / (input * LN2)


@log2.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("log10")
def log10(input: Tensor) -> Tensor:
    """The logarithm to base 10.   d/dinput = g / (input * log(10))"""
    return torch.log10(input)


@log10.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / (input * LN10)


@log10.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("log1p")
def log1p(input: Tensor) -> Tensor:
    """log(1 + input), exact near 0.   d/dinput = g / (1 + input)"""
    return torch.log1p(input)


@log1p.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / (input + 1)


@log1p.example
def _(make: Any) -> Any:
    return (make(2, 3, low=-0.8, high=0.8),)


@primitive("sin")
def sin(input: Tensor) -> Tensor:
    """The sine.   d/dinput = g * cos(input)"""
    return torch.sin(input)


@sin.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.cos(input)


@sin.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("cos")
def cos(input: Tensor) -> Tensor:
    """The cosine.   d/dinput = -g * sin(input)"""
    return torch.cos(input)


@cos.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * -torch.sin(input)


@cos.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("tan")
def tan(input: Tensor) -> Tensor:
    """The tangent.   d/dinput = g * (1 + out^2)"""
    return torch.tan(input)


@tan.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return g * (1 + out * out)


@tan.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("asin", "arcsin")
def asin(input: Tensor) -> Tensor:
    """The angle whose sine is input.   d/dinput = g / sqrt(1 - input^2)"""
    return torch.asin(input)


@asin.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.rsqrt(1 - input * input)


@asin.example
def _(make: Any) -> Any:
    return (make(2, 3, low=-0.8, high=0.8),)


@primitive("acos", "arccos")
def acos(input: Tensor) -> Tensor:
    """The angle whose cosine is input.   d/dinput = -g / sqrt(1 - input^2)"""
    return torch.acos(input)


@acos.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * -torch.rsqrt(1 - input * input)


@acos.example
def _(make: Any) -> Any:
    return (make(2, 3, low=-0.8, high=0.8),)


@primitive("atan", "arctan")
def atan(input: Tensor) -> Tensor:
    """The angle whose tangent is input.   d/dinput = g / (1 + input^2)"""
    return torch.atan(input)


@atan.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / (input * input + 1)


@atan.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("atan2", "arctan2", broadcasts=True)
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input).

    d/dinput = g * other / r^2,  d/dother = -g * input / r^2,  with r^2 = input^2 + other^2;  both are 0 at the origin
    """
    return torch.atan2(input, other)


@atan2.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return g * (other * _inverse_square_radius(input, other))


@atan2.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return g * (-input * _inverse_square_radius(input, other))


def _inverse_square_radius(input: Tensor, other: Tensor) -> Tensor:
    square = input * input + other * other
    return torch.reciprocal(square.masked_fill(square == 0, torch.inf))


@atan2.example
def _(make: Any) -> Any:
    return make(2, 3), make(3, low=0.5)


@primitive("sinh")
def sinh(input: Tensor) -> Tensor:
    """The hyperbolic sine.   d/dinput = g * cosh(input)"""
    return torch.sinh(input)


@sinh.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.cosh(input)


@sinh.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("cosh")
def cosh(input: Tensor) -> Tensor:
    """The hyperbolic cosine.   d/dinput = g * sinh(input)"""
    return torch.cosh(input)


@cosh.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.sinh(input)


@cosh.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("asinh", "arcsinh")
def asinh(input: Tensor) -> Tensor:
    """The inverse of sinh.   d/dinput = g / sqrt(input^2 + 1)"""
    return torch.asinh(input)


@asinh.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.rsqrt(input * input + 1)


@asinh.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("acosh", "arccosh")
def acosh(input: Tensor) -> Tensor:
    """The inverse of cosh.   d/dinput = g / sqrt(input^2 - 1)"""
    return torch.acosh(input)


@acosh.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.rsqrt(input * input - 1)


@acosh.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.5, high=3.0),)


@primitive("atanh", "arctanh")
def atanh(input: Tensor) -> Tensor:
    """The inverse of tanh.   d/dinput = g / (1 - input^2)"""
    return torch.atanh(input)


@atanh.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / (1 - input * input)


@atanh.example
def _(make: Any) -> Any:
    return (make(2, 3, low=-0.8, high=0.8),)


for one in (
    exp,
    exp2,
    expm1,
    log,
    log2,
    log10,
    log1p,
    sin,
    cos,
    tan,
    asin,
    acos,
    atan,
    sinh,
    cosh,
    asinh,
    acosh,
    atanh,
):
    composite(*one.torch_functions)(unary(one))
