"""Special functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import composite, primitive

SQRT_PI = math.sqrt(math.pi)


@primitive("erf")
def erf(input: Tensor) -> Tensor:
    """The error function.   d/dinput = g * 2 / sqrt(pi) * e^(-input^2)"""
    return torch.erf(input)


@erf.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return (2 / SQRT_PI) * torch.exp(-input * input) * g


@erf.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("erfc")
def erfc(input: Tensor) -> Tensor:
    """1 - erf(input).   d/dinput = -g * 2 / sqrt(pi) * e^(-input^2)"""
    return torch.erfc(input)


@erfc.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return (-2 / SQRT_PI) * torch.exp(-input * input) * g


@erfc.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("erfinv")
def erfinv(input: Tensor) -> Tensor:
    """The inverse of erf.   d/dinput = g * sqrt(pi) / 2 * e^(out^2)"""
    return torch.erfinv(input)


@erfinv.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return (SQRT_PI / 2) * torch.exp(out * out) * g


@erfinv.example
def _(make: Any) -> Any:
    return (make(2, 3, low=-0.8, high=0.8),)


@primitive("lgamma", "gammaln")
def lgamma(input: Tensor) -> Tensor:
    """log |Gamma(input)|.   d/dinput = g * digamma(input)"""
    return torch.lgamma(input)


@lgamma.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.digamma(input)


@lgamma.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive("digamma", "psi")
def digamma(input: Tensor) -> Tensor:
    """The derivative of lgamma.   d/dinput = g * polygamma(1, input)"""
    return torch.digamma(input)


@digamma.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.polygamma(1, input)


@digamma.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.5, high=2.0),)


@primitive(torch.polygamma, torch.special.polygamma)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma.   d/dinput = g * (the n+1-th derivative of digamma)"""
    return torch.polygamma(n, input)


@polygamma.vjp("input")
def _(g: Tensor, n: int, input: Tensor) -> Tensor:
    return g * torch.polygamma(n + 1, input)


@polygamma.example
def _(make: Any) -> Any:
    return 1, make(2, 3, low=0.5, high=2.0)


@composite(torch.Tensor.polygamma)
def polygamma_method(input: Any, n: int) -> Any:
    """The method has its arguments the other way round."""
    return polygamma(n, input)


@primitive("sinc")
def sinc(input: Tensor) -> Tensor:
    """sin(pi * input) / (pi * input), and 1 at 0.

    d/dinput = -g * pi * j(pi * input),  with the spherical Bessel function j(z) = sin(z) / z^2 - cos(z) / z
    """
    return torch.sinc(input)


@sinc.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    z = math.pi * input
    near = torch.abs(z) < 0.3
    # j's two terms cancel near 0, where six terms of its series are exact to rounding.
    far_z, near_z = z.masked_fill(near, 1.0), z.masked_fill(~near, 0.0)
    s = near_z * near_z
    series = near_z / 3 * (1 - s / 10 * (1 - s / 28 * (1 - s / 54 * (1 - s / 88 * (1 - s / 130)))))
    return -math.pi * g * torch.where(near, series, (torch.sin(far_z) / far_z - torch.cos(far_z)) / far_z)


@sinc.example
def _(make: Any) -> Any:
    return (torch.cat([make(4), torch.tensor([0.0, 0.02], dtype=torch.float64)]),)


@primitive("xlogy", broadcasts=True)
def xlogy(input: Tensor, other: Tensor) -> Tensor:
    """input * log(other), and 0 where input is 0; either may be a number.

    d/dinput = g * log(other), and 0 where input is 0 and other is not positive;  d/dother = g * input / other
    """
    return torch.xlogy(input, other)


@xlogy.vjp("input")
def _(g: Tensor, input: Tensor, other: Any) -> Tensor:
    return torch.xlogy(g, other).masked_fill((input == 0) & (other <= 0), 0)


@xlogy.vjp("other")
def _(g: Tensor, input: Any, other: Tensor) -> Tensor:
    return g * input / other


@xlogy.example
def _(make: Any) -> Any:
    return make(2, 3), make(3, low=0.5, high=2.0)


@primitive("logaddexp", broadcasts=True)
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(e^input + e^other).   d/dinput = g * sigmoid(input - other),  d/dother = g * sigmoid(other - input)"""
    return torch.logaddexp(input, other)


@logaddexp.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return g * torch.sigmoid(input - other)


@logaddexp.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return g * torch.sigmoid(other - input)


@logaddexp.example
def _(make: Any) -> Any:
    return make(2, 3), make(3)


@primitive("hypot", broadcasts=True)
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """sqrt(input^2 + other^2).   d/dinput = g * input / out,  d/dother = g * other / out"""
    return torch.hypot(input, other)


@hypot.vjp("input")
def _(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    return g * (input / out)


@hypot.vjp("other")
def _(g: Tensor, other: Tensor, out: Tensor) -> Tensor:
    return g * (other / out)


@hypot.example
def _(make: Any) -> Any:
    return make(2, 3), make(3, low=0.5)


@primitive("logit")
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(z / (1 - z)) with z = input, brought between eps and 1 - eps if eps is given.

    d/dinput = g / (input * (1 - input)), and 0 where input was brought in
    """
    return torch.logit(input, eps)


@logit.vjp("input")
def _(g: Tensor, input: Tensor, eps: float | None) -> Tensor:
    low, high, outside = (0.0, 1.0, torch.nan) if eps is None else (eps, 1 - eps, 0.0)
    return (g / (input * (1 - input))).masked_fill((input < low) | (input > high), outside)


@logit.example
def _(make: Any) -> Any:
    return (make(2, 3, low=0.2, high=0.8),)


@logit.example
def _(make: Any) -> Any:
    return make(2, 3, low=0.05, high=0.95), 0.3
