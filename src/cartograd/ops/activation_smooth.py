"""Smooth activation functions, element by element."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.fastpath import unary
from cartograd.engine.primitive import composite, primitive

aten = torch.ops.aten
_nn: Any = torch._C._nn
_sigmoid_backward = aten.sigmoid_backward.default
_tanh_backward = aten.tanh_backward.default
_silu_backward = aten.silu_backward.default
_mish_backward = aten.mish_backward.default
_gelu_backward = aten.gelu_backward.default
_elu_backward = aten.elu_backward.default
_softplus_backward = aten.softplus_backward.default
_glu_backward = aten.glu_backward.default

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


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
    """torch.nn.SiLU always names `inplace`; mostly as False"""
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
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
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


fast_gelu = unary(gelu)


@composite("gelu")
def functional_gelu(input: Any, *, approximate: str = "none") -> Any:
    """torch.nn.GELU always names `approximate`; mostly as "none", the default"""
    return fast_gelu(input) if approximate == "none" else gelu(input, approximate=approximate)


@primitive(_nn.elu)
def elu(
    input: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0, inplace: bool = False
) -> Tensor:
    """scale * input where it is positive, else scale * alpha * (e^(input_scale * input) - 1).

    d/dinput = g * scale, and g * scale * alpha * input_scale * e^(input_scale * input) where input <= 0
    """
    return _nn.elu(input, alpha, scale, input_scale)


@elu.vjp("input")
def _(g: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    return _elu_backward(g, alpha, scale, input_scale, False, input)


@elu.example
def _(make: Any) -> Any:
    return torch.cat([make(3, low=-1.0, high=-0.1), make(3, low=0.1)]), 0.7, 1.2, 0.9


@composite(F.elu)
def functional_elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """input where it is positive, else alpha * (e^input - 1)"""
    return elu(input, alpha, inplace=inplace)


@composite("selu")
def selu(input: Any, inplace: bool = False) -> Any:
    """`elu` with the two constants that keep mean 0 and variance 1 from layer to layer"""
    return elu(input, SELU_ALPHA, SELU_SCALE, inplace=inplace)


@composite("celu")
def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """`elu` with a slope that is continuous at 0: input where it is positive, else alpha * (e^(input / alpha) - 1)"""
    return elu(input, alpha, 1.0, 1.0 / alpha, inplace)


@primitive("softplus")
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + e^(beta * input)) / beta, and input where beta * input is above the threshold.

    d/dinput = g * sigmoid(beta * input), and g above the threshold
    """
    return _nn.softplus(input, beta, threshold)


@softplus.vjp("input")
def _(g: Tensor, input: Tensor, beta: float, threshold: float) -> Tensor:
    return _softplus_backward(g, input, beta, threshold)


@softplus.example
def _(make: Any) -> Any:
    return make(2, 3), 1.5


@primitive("logsigmoid")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)).   d/dinput = g * sigmoid(-input)"""
    return F.logsigmoid(input)


@logsigmoid.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.sigmoid(-input)


@logsigmoid.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("softsign")
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|).   d/dinput = g / (1 + |input|)^2"""
    return F.softsign(input)


@softsign.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g / torch.square(torch.abs(input) + 1)


@softsign.example
def _(make: Any) -> Any:
    return (torch.cat([make(3, low=-1.0, high=-0.1), make(3, low=0.1)]),)


@primitive("tanhshrink")
def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input).   d/dinput = g * tanh(input)^2"""
    return F.tanhshrink(input)


@tanhshrink.vjp("input")
def _(g: Tensor, input: Tensor) -> Tensor:
    return g * torch.square(torch.tanh(input))


@tanhshrink.example
def _(make: Any) -> Any:
    return (make(2, 3),)


@primitive("glu")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b) for the two halves a and b of input along dim.

    d/da = g * sigmoid(b),  d/db = g * a * sigmoid(b) * (1 - sigmoid(b))
    """
    return F.glu(input, dim)


@glu.vjp("input")
def _(g: Tensor, input: Tensor, dim: int) -> Tensor:
    return _glu_backward(g, input, dim)


@glu.example
def _(make: Any) -> Any:
    return make(2, 4, 2), 1


for function, op in {_nn.elu_: functional_elu, torch.selu_: selu, torch.celu_: celu}.items():
    composite(function)(partial(op, inplace=True))
