"""Functions of three, element by element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cartograd.engine.primitive import primitive


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
