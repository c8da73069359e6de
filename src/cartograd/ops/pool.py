"""Averages over windows, of fixed and of adaptive size, and power means. Maxima are in `maxpool`."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import composite, primitive
from cartograd.ops.layout import blank

_aten = torch.ops.aten
_avg_pool2d_backward = _aten.avg_pool2d_backward.default
_avg_pool3d_backward = _aten.avg_pool3d_backward.default
_adaptive_avg_pool2d_backward = _aten._adaptive_avg_pool2d_backward.default
_adaptive_avg_pool3d_backward = _aten._adaptive_avg_pool3d_backward.default


def given(stride: Any) -> Any:
    """The stride as kernels take it: nothing means the size of the window."""
    return () if stride is None else stride


def as_row(before: int, value: Any) -> list[int]:
    """An option of the one axis that there is, as that of a picture of one row."""
    value = given(value)
    return [before, value] if isinstance(value, int) else [before, *value] if value else []


@primitive("avg_pool1d", extra="constant")
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """out[i] = mean of input over window i.   d/dinput[j] = sum over the windows of j of g[i] / size"""
    return torch.avg_pool1d(input, kernel_size, given(stride), padding, ceil_mode, count_include_pad), input.shape


@avg_pool1d.vjp("input")
def _(
    g: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, extra: Any
) -> Tensor:
    g, row = g.unsqueeze(-2), (*extra[:-1], 1, extra[-1])
    size, step, margin = as_row(1, kernel_size), as_row(1, stride), as_row(0, padding)
    return _avg_pool2d_backward(g, blank(row, g), size, step, margin, ceil_mode, count_include_pad, None).squeeze(-2)


@avg_pool1d.example
def _(make: Any) -> Any:
    return make(1, 2, 6), 3, 2, 1, True, False


@primitive("avg_pool2d", extra="constant")
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """As `avg_pool1d`, over two axes; the sum is divided by `divisor_override` where it is given."""
    kernel = torch._C._nn.avg_pool2d
    stride = given(stride)
    return kernel(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), input.shape


@avg_pool2d.vjp("input")
def _(
    g: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    extra: Any,
) -> Tensor:
    options = (given(stride), padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool2d_backward(g, blank(extra, g), kernel_size, *options)


@avg_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (2, 3), (2, 1), 1, False, False


@avg_pool2d.example
def _(make: Any) -> Any:
    return make(1, 4, 4), 2, None, 0, True, True, 3


@primitive("avg_pool3d", extra="constant")
def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """As `avg_pool2d`, over three axes."""
    kernel = torch._C._nn.avg_pool3d
    stride = given(stride)
    return kernel(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), input.shape


@avg_pool3d.vjp("input")
def _(
    g: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    extra: Any,
) -> Tensor:
    options = (given(stride), padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool3d_backward(g, blank(extra, g), kernel_size, *options)


@avg_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), 2, (2, 1, 2), 0


@primitive("adaptive_avg_pool1d", extra="constant")
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Any:
    """out[i] = mean of input[floor(i * n / m) : ceil((i + 1) * n / m)], n inputs to m outputs; windows may overlap.

    d/dinput[j] = sum over the windows of j of g[i] / their size
    """
    return torch.adaptive_avg_pool1d(input, output_size), input.shape


@adaptive_avg_pool1d.vjp("input")
def _(g: Tensor, extra: Any) -> Tensor:
    g = g.unsqueeze(-2)
    return _adaptive_avg_pool2d_backward(g, blank((*extra[:-1], 1, extra[-1]), g)).squeeze(-2)


@adaptive_avg_pool1d.example
def _(make: Any) -> Any:
    return make(2, 5), 3


@primitive("adaptive_avg_pool2d", extra="constant")
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Any:
    """As `adaptive_avg_pool1d`, over two axes; `None` as a size leaves the axis as it is."""
    return F.adaptive_avg_pool2d(input, output_size), input.shape


@adaptive_avg_pool2d.vjp("input")
def _(g: Tensor, extra: Any) -> Tensor:
    return _adaptive_avg_pool2d_backward(g, blank(extra, g))


@adaptive_avg_pool2d.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (3, None)


@primitive("adaptive_avg_pool3d", extra="constant")
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Any:
    """As `adaptive_avg_pool2d`, over three axes."""
    return F.adaptive_avg_pool3d(input, output_size), input.shape


@adaptive_avg_pool3d.vjp("input")
def _(g: Tensor, extra: Any) -> Tensor:
    return _adaptive_avg_pool3d_backward(g, blank(extra, g))


@adaptive_avg_pool3d.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3, 4), (1, 2, 3)


def _power_mean(input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool, dims: int) -> Any:
    """(sum over the window of input ^ p) ^ (1 / p); the maximum of |input| for p = inf, the minimum for -inf."""
    if math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)
        largest = getattr(F, f"max_pool{dims}d")(sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        return sign * largest
    average = getattr(F, f"avg_pool{dims}d")(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    sizes = [kernel_size] * dims if isinstance(kernel_size, int) else list(kernel_size)
    # torch's own form, so that the derivative at 0 is torch's as well
    return (average.sign() * average.abs().relu()).mul(math.prod(sizes)).pow(1.0 / norm_type)


@composite("lp_pool1d")
def lp_pool1d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """The p-norm of each window, p = `norm_type`, with the sign inside."""
    return _power_mean(input, norm_type, kernel_size, stride, ceil_mode, 1)


@composite("lp_pool2d")
def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """As `lp_pool1d`, over two axes."""
    return _power_mean(input, norm_type, kernel_size, stride, ceil_mode, 2)


@composite("lp_pool3d")
def lp_pool3d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """As `lp_pool1d`, over three axes."""
    return _power_mean(input, norm_type, kernel_size, stride, ceil_mode, 3)
