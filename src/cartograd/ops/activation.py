"""Activation functions, element by element. Those with kinks have there the slopes that PyTorch gives them.

All that change in place if asked to name the option `inplace`; the engine does what it says.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.fastpath import unary
from cartograd.engine.primitive import composite, primitive

aten = torch.ops.aten
_nn: Any = torch._C._nn
_threshold_backward = aten.threshold_backward.default
_hardtanh_backward = aten.hardtanh_backward.default
_leaky_relu_backward = aten.leaky_relu_backward.default
_sigmoid_backward = aten.sigmoid_backward.default
_tanh_backward = aten.tanh_backward.default
_silu_backward = aten.silu_backward.default
_mish_backward = aten.mish_backward.default
_gelu_backward = aten.gelu_backward.default


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
    """torch.nn.ReLU always names `inplace`; mostly it is not"""
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


@primitive(F.rrelu, torch.rrelu, extra=True)
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
    return aten._prelu_kernel_backward.default(g, input, weight.expand_as(input))


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
    return prelu_kernel(input, weight.reshape(shape))


@primitive("sigmoid", "expit")
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + e^-input).   d/dinput = g * out * (1 - out)"""
    return torch.sigmoid(input)


@sigmoid.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return _sigmoid_backward(g, out)


@sigmoid.example
def _(make: Any) -> Any:
    return (make(2, 3),)


fast_sigmoid = composite("sigmoid", "expit")(unary(sigmoid))


@primitive("tanh")
def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent.   d/dinput = g * (1 - out^2)"""
    return torch.tanh(input)


@tanh.vjp("input")
def _(g: Tensor, out: Tensor) -> Tensor:
    return _tanh_backward(g, out)


@tanh.example
def _(make: Any) -> Any:
    return (make(2, 3),)


fast_tanh = composite("tanh")(unary(tanh))


@primitive("silu")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * s, with s = sigmoid(input).   d/dinput = g * s * (1 + input * (1 - s))"""
    return _nn.silu(input)


@silu.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return _silu_backward(g, input)
    s = torch.sigmoid(input)  # the kernel cannot be differentiated again
    return g * (s * (1 + input * (1 - s)))


@silu.example
def _(make: Any) -> Any:
    return (make(2, 3),)


fast_silu = composite(_nn.silu)(unary(silu))


@composite(F.silu)
def functional_silu(input: Any, inplace: bool = False) -> Any:
    """torch.nn.SiLU always names `inplace`; mostly it is not"""
    return silu(input, True) if inplace else fast_silu(input)


@primitive("mish")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * t, with t = tanh(softplus(input)).   d/dinput = g * (t + input * sigmoid(input) * (1 - t^2))"""
    return _nn.mish(input)


@mish.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return _mish_backward(g, input)
    t = torch.tanh(F.softplus(input))  # the kernel cannot be differentiated again
    return g * (t + input * torch.sigmoid(input) * (1 - t * t))


@mish.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("gelu")
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """input * Phi(input), Phi the normal distribution's, or with approximate="tanh" a formula near it.

    d/dinput = g * (Phi(input) + input * phi(input)), or that formula's derivative
    """
    return _nn.gelu(input, approximate=approximate)


@gelu.vjp("input")
def _(g: Tensor, input: Tensor, approximate: str) -> Tensor:
    return _gelu_backward(g, input, approximate=approximate)


@gelu.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@gelu.example
def _(make: Any) -> Any:
    return make(2, 3), "tanh"
