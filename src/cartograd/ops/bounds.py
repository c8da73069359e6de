"""Bounds, the larger and the smaller of two, and rounding, element by element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import composite, primitive
from cartograd.ops.elementwise import no_gradient


@primitive("clamp", "clip", broadcasts=True)
def clamp(input: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """input, brought between min and max, each a tensor, a number or nothing; max holds where min is above it.

    d/dinput = g where min <= input <= max;  d/dmin = g where input < min < max;
    d/dmax = g where input > max or max < min;  0 elsewhere
    """
    return torch.clamp(input, min, max)


@clamp.vjp("input")
def _(g: Tensor, input: Tensor, min: Any, max: Any) -> Tensor:
    if min is None or max is None:
        return torch.where(input >= min if max is None else input <= max, g, 0)
    return torch.where((input >= min) & (input <= max), g, 0)


@clamp.vjp("min")
def _(g: Tensor, input: Tensor, min: Tensor, max: Any) -> Tensor:
    below = input < min
    return torch.where(below if max is None else below & (min < max), g, 0)


@clamp.vjp("max")
def _(g: Tensor, input: Tensor, min: Any, max: Tensor) -> Tensor:
    above = input > max
    return torch.where(above if min is None else above | (max < min), g, 0)


@clamp.example
def _(make: Any) -> Any:
    return torch.tensor([[-0.8, 0.1, 0.9], [0.2, -0.7, 0.8]], dtype=torch.float64), -0.5, 0.5


@clamp.example
def _(make: Any) -> Any:
    return torch.tensor([-0.8, 0.1, 0.9], dtype=torch.float64), make(2, 1, high=-0.9) + 0.4, make(3, low=0.9) - 0.4


@composite("clamp_min")
def clamp_min(input: Any, min: Any) -> Any:
    """input, brought to min or above"""
    return clamp(input, min)


@composite("clamp_max")
def clamp_max(input: Any, max: Any) -> Any:
    """input, brought to max or below"""
    return clamp(input, None, max)


@primitive("maximum", broadcasts=True)
def maximum(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two.   g goes to the larger, half to each where they are equal, to both where one is NaN"""
    return torch.maximum(input, other)


@maximum.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where(input == other, g / 2, g).masked_fill(input < other, 0)


@maximum.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where(input == other, g / 2, g).masked_fill(input > other, 0)


@maximum.example
def _(make: Any) -> Any:
    return torch.tensor([[-0.8, 0.1, 0.9], [0.2, -0.7, 0.8]], dtype=torch.float64), make(3, low=-0.6, high=0.0)


@primitive("minimum", broadcasts=True)
def minimum(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two.   g goes to the smaller, half to each where they are equal, to both where one is NaN"""
    return torch.minimum(input, other)


@minimum.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where(input == other, g / 2, g).masked_fill(input > other, 0)


@minimum.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where(input == other, g / 2, g).masked_fill(input < other, 0)


@minimum.example
def _(make: Any) -> Any:
    return torch.tensor([[-0.8, 0.1, 0.9], [0.2, -0.7, 0.8]], dtype=torch.float64), make(3, low=-0.6, high=0.0)


@primitive("fmax", broadcasts=True)
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two, or the one that is no NaN.   g goes to that one, to input where they are equal or both NaN"""
    return torch.fmax(input, other)


@fmax.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where((input >= other) | torch.isnan(other), g, 0)


@fmax.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where((input >= other) | torch.isnan(other), 0, g)


@fmax.example
def _(make: Any) -> Any:
    return torch.tensor([[-0.8, 0.1, 0.9], [0.2, -0.7, 0.8]], dtype=torch.float64), make(3, low=-0.6, high=0.0)


@primitive("fmin", broadcasts=True)
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two, or the one that is no NaN.   g goes to that one, to input where they are equal or both NaN"""
    return torch.fmin(input, other)


@fmin.vjp("input")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where((input <= other) | torch.isnan(other), g, 0)


@fmin.vjp("other")
def _(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where((input <= other) | torch.isnan(other), 0, g)


@fmin.example
def _(make: Any) -> Any:
    return torch.tensor([[-0.8, 0.1, 0.9], [0.2, -0.7, 0.8]], dtype=torch.float64), make(3, low=-0.6, high=0.0)


@primitive("sgn")
def sgn(input: Tensor) -> Tensor:
    """-1, 0 or 1, as `sign`; of a complex number, that number divided by its absolute value.   d/dinput = 0"""
    return torch.sgn(input)


@sgn.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@sgn.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.1, high=1.9),)


@primitive("sign")
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1.   d/dinput = 0"""
    return torch.sign(input)


@sign.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@sign.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.1, high=1.9),)


@primitive("floor")
def floor(input: Tensor) -> Tensor:
    """The whole number at or below input.   d/dinput = 0"""
    return torch.floor(input)


@floor.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@floor.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.1, high=1.9),)


@primitive("ceil")
def ceil(input: Tensor) -> Tensor:
    """The whole number at or above input.   d/dinput = 0"""
    return torch.ceil(input)


@ceil.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@ceil.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.1, high=1.9),)


@primitive("trunc", "fix")
def trunc(input: Tensor) -> Tensor:
    """The whole number from input towards 0.   d/dinput = 0"""
    return torch.trunc(input)


@trunc.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@trunc.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.1, high=1.9),)


@primitive("round")
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest number with so many decimals, the even one of two.   d/dinput = 0"""
    return torch.round(input, decimals=decimals)


@round.vjp("input")
def _(g: Tensor) -> Tensor:
    return no_gradient(g)


@round.example
def _(make: Any) -> Any:
    return (make(2, 3, low=1.1, high=1.4),)


@primitive("nan_to_num")
def nan_to_num(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """input, with numbers for NaN and the infinities.   d/dinput = g where input is finite, else 0"""
    return torch.nan_to_num(input, nan, posinf, neginf)


@nan_to_num.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.isfinite(input)


@nan_to_num.example
def _(make: Any) -> Any:
    return (make(2, 3),)
