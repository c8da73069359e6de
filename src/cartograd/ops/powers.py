"""Powers and roots, element by element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.fastpath import binary, unary
from cartograd.engine.primitive import composite, primitive
from cartograd.ops.elementwise import is_number, no_gradient, operand


@primitive("reciprocal")
def reciprocal(input: Tensor) -> Tensor:
    """1 / input.   d/dinput = -g * out^2"""
    return torch.reciprocal(input)


@reciprocal.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return -g * (out * out)


@reciprocal.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("square")
def square(input: Tensor) -> Tensor:
    """input^2.   d/dinput = 2 * g * input"""
    return torch.square(input)


@square.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * (2 * input)


@square.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("sqrt")
def sqrt(input: Tensor) -> Tensor:
    """The square root of input.   d/dinput = g / (2 * out)"""
    return torch.sqrt(input)


@sqrt.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return g / (2 * out)


@sqrt.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("rsqrt")
def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(input).   d/dinput = -g / 2 * out^3"""
    return torch.rsqrt(input)


@rsqrt.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return -0.5 * g * torch.pow(out, 3)


@rsqrt.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("pow", broadcasts=True)
def pow(input: Tensor, exponent: Tensor) -> Tensor:
    """input^exponent; either may be a number.

    d/dinput = g * exponent * input^(exponent - 1), and 0 where exponent is 0;
    d/dexponent = g * out * log(input), and 0 where input is 0 and exponent is not negative.
    """
    return torch.pow(input, exponent)


@pow.vjp("input")
def _(g: Tensor, input: Tensor, exponent: Any) -> Tensor:
    if is_number(exponent):
        return no_gradient(g) if exponent == 0 else g * (exponent * torch.pow(input, exponent - 1))
    # Where 0 * input^-1 would be 0 * inf the exponent stays 0. Elsewhere the product is 0 by itself, and its own
    # derivative by the exponent, 1 / input, is kept.
    singular = (exponent == 0) & ~(torch.abs(input) >= torch.finfo(input.dtype).tiny)
    return g * (exponent * torch.pow(input, torch.where(singular, 0, exponent - 1)))


@pow.vjp("exponent")
def _(g: Tensor, input: Any, exponent: Tensor, out: Tensor) -> Tensor:
    base = operand(input, out).to(out.dtype)
    # log(1) for log(0): out is finite there, so the product is 0, and so are its own derivatives.
    return g * (out * torch.log(torch.where((base == 0) & (exponent >= 0), 1, base)))


@pow.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.5, high=2.0), make(3)


@pow.example
def _(make: Any) -> Any:
    return make(2, 3), 3


@pow.example
def _(make: Any) -> Any:
    return 1.7, make(2, 3)


fast_pow = composite("__pow__")(binary(pow, torch.pow))


@composite("__rpow__")
def reflected_pow(input: Any, other: Any) -> Any:
    """other ** input"""
    return pow(other, input)


for one in (reciprocal, square, sqrt, rsqrt):
    composite(*one.torch_functions)(unary(one))
