"""Activation functions with kinks, element by element; their slopes at the kinks are PyTorch's.

All that change in place if asked to name the option `inplace`; the engine does what it says.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.fastpath import unary
from cartograd.engine.primitive import composite, primitive
from cartograd.engine.transparent import lifted

aten = torch.ops.aten
_nn: Any = torch._C._nn
_threshold_backward = aten.threshold_backward.default._op  # the call below the overload's own: 0.3 us less
_hardtanh_backward = aten.hardtanh_backward.default
_leaky_relu_backward = aten.leaky_relu_backward.default
_prelu_backward = aten._prelu_kernel_backward.default
_softshrink_backward = aten.softshrink_backward.default
_hardshrink_backward = aten.hardshrink_backward.default
_hardsigmoid_backward = aten.hardsigmoid_backward.default
_hardswish_backward = aten.hardswish_backward.default


@primitive("relu")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0).   d/dinput = g where out > 0, else 0"""
    return torch.relu(input)


@relu.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return _threshold_backward(g, out, 0)


@relu.example
def _(make: Any) -> Any:
    return (torch.cat([make(3, low=-1.0, high=-0.1), make(3, low=0.1)]),)


fast_relu = composite(torch.relu, torch.Tensor.relu)(unary(relu))


@composite(F.relu)
def functional_relu(input: Any, inplace: bool = False) -> Any:
    """torch.nn.ReLU always names `inplace`; mostly as False"""
    return relu(input, True) if inplace else fast_relu(input)


@primitive("hardtanh")
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input, brought between min_val and max_val.   d/dinput = g inside, 0 outside and on the bounds"""
    return F.hardtanh(input, min_val, max_val)


@hardtanh.vjp("input")
def _(g: Tensor, input: Tensor, min_val: float, max_val: float) -> Tensor:
    return _hardtanh_backward(g, input, min_val, max_val)


@hardtanh.example
def _(make: Any) -> Any:
    return torch.tensor([-0.8, 0.1, 0.9, -0.2, 0.6], dtype=torch.float64), -0.5, 0.7


@composite("relu6")
def relu6(input: Any, inplace: bool = False) -> Any:
    """input, brought between 0 and 6"""
    return hardtanh(input, 0.0, 6.0, inplace)


@primitive("threshold")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above the threshold, else value.   d/dinput = g above, 0 elsewhere"""
    return torch.threshold(input, threshold, value)


@threshold.vjp("input")
def _(g: Tensor, input: Tensor, threshold: float) -> Tensor:
    return _threshold_backward(g, input, threshold)


@threshold.example
def _(make: Any) -> Any:
    return torch.tensor([-0.8, 0.1, 0.9, -0.2, 0.6], dtype=torch.float64), 0.3, -2.0


@primitive("leaky_relu")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, else negative_slope * input.   d/dinput = g, times negative_slope where input <= 0"""
    return F.leaky_relu(input, negative_slope)


@leaky_relu.vjp("input")
def _(g: Tensor, input: Tensor, negative_slope: float) -> Tensor:
    return _leaky_relu_backward(g, input, negative_slope, False)


@leaky_relu.example
def _(make: Any) -> Any:
    return torch.cat([make(3, low=-1.0, high=-0.1), make(3, low=0.1)]), 0.2


@primitive(F.rrelu, torch.rrelu, extra="constant")
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Any:
    """input where it is positive, else slope * input.   d/dinput = g, times the same slope where input <= 0

    The slope is drawn evenly between lower and upper for each element in training, and halfway between them else.
    """
    noise = torch.empty_like(input)
    return _nn.rrelu_with_noise(input, noise, lower, upper, training), noise


@rrelu.vjp("input")
def _(g: Tensor, input: Tensor, lower: float, upper: float, training: bool, extra: Tensor) -> Tensor:
    if training:
        return g * extra
    return _leaky_relu_backward(g, input, (lower + upper) / 2, False)


@rrelu.example
def _(make: Any) -> Any:
    return torch.cat([make(3, low=-1.0, high=-0.1), make(3, low=0.1)]), 0.1, 0.3


@primitive(broadcasts=True)
def prelu_kernel(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, else weight * input.

    d/dinput = g, times weight where input <= 0;  d/dweight = g * input where input <= 0, else 0
    """
    return torch._prelu_kernel(input, weight.expand_as(input))


@prelu_kernel.vjp("input", "weight")
def _(g: Tensor, input: Tensor, weight: Tensor, need: tuple[bool, ...]) -> Any:
    return _prelu_backward(g, input, weight.expand_as(input))


@prelu_kernel.example
def _(make: Any) -> Any:
    return torch.tensor([[-0.8, 0.1, 0.9], [0.4, -0.2, 0.6]], dtype=torch.float64), make(1, 3)


@composite("prelu")
def prelu(input: Any, weight: Any) -> Any:
    """`prelu_kernel` with one weight, or one for each channel (axis 1)"""
    channels = input.shape[1] if input.dim() > 1 else 1
    if weight.dim() > 1 or weight.numel() not in (1, channels) or (input.dim() == 0 and weight.numel() != 1):
        raise RuntimeError(
            f"prelu needs a weight of one element or one for each of the {channels} channels (axis 1) of its input, "
            f"got shape {tuple(weight.shape)} for an input of shape {tuple(input.shape)}"
        )
    if input.dtype != weight.dtype:
        raise RuntimeError(f"prelu needs input and weight of one dtype, got {input.dtype} and {weight.dtype}")
    shape = [1] * input.dim()
    if input.dim() > 1:
        shape[1] = weight.numel()
    return prelu_kernel(input, lifted(weight).reshape(shape))


@primitive("softshrink")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input, brought nearer to 0 by lambd, or to 0.   d/dinput = g where |input| > lambd, else 0"""
    return _nn.softshrink(input, lambd)


@softshrink.vjp("input")
def _(g: Tensor, input: Tensor, lambd: float) -> Tensor:
    return _softshrink_backward(g, input, lambd)


@softshrink.example
def _(make: Any) -> Any:
    return torch.tensor([-0.8, 0.1, 0.9, -0.2, 0.6], dtype=torch.float64), 0.4


@primitive("hardshrink")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input where |input| > lambd, else 0.   d/dinput = g where |input| > lambd, else 0"""
    return torch.hardshrink(input, lambd)


@hardshrink.vjp("input")
def _(g: Tensor, input: Tensor, lambd: float) -> Tensor:
    return _hardshrink_backward(g, input, lambd)


@hardshrink.example
def _(make: Any) -> Any:
    return torch.tensor([-0.8, 0.1, 0.9, -0.2, 0.6], dtype=torch.float64), 0.4


@primitive("hardsigmoid")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """input / 6 + 1/2, brought between 0 and 1.   d/dinput = g / 6 where -3 < input < 3, else 0"""
    return _nn.hardsigmoid(input)


@hardsigmoid.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return _hardsigmoid_backward(g, input)
    return torch.where((input > -3) & (input < 3), g / 6, 0)  # the kernel cannot be differentiated again


@hardsigmoid.example
def _(make: Any) -> Any:
    return (make(6, low=-5.0, high=5.0),)


@primitive("hardswish")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input).   d/dinput = 0 below -3, g * (input / 3 + 1/2) up to 3, g above"""
    return _nn.hardswish(input)


@hardswish.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return _hardswish_backward(g, input)


@hardswish.example
def _(make: Any) -> Any:
    return (make(6, low=-5.0, high=5.0),)


IN_PLACE: dict[Any, Any] = {
    _nn.hardtanh_: hardtanh,
    _nn.relu6_: relu6,
    torch.threshold_: threshold,
    _nn.leaky_relu_: leaky_relu,
    torch.rrelu_: rrelu,
}
for function, op in IN_PLACE.items():
    composite(function)(partial(op, inplace=True))
