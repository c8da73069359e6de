"""Changing the resolution or the arrangement of pictures: interpolation, affine grids, shuffles, patches.

All of these are linear in their input, so each gradient is the transposed map. Sampling at arbitrary places is in
`gridsample`, padding in `padding`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.ops.layout import blank

_affine_grid_backward = torch.ops.aten.affine_grid_generator_backward.default
_NEAREST = ("nearest", "nearest-exact")


@functools.cache
def _interpolation_kernel(mode: str, dims: int, antialias: bool) -> Any:
    """The transposed map of an interpolation, as torch has it."""
    if mode == "area":
        name = f"_adaptive_avg_pool{max(dims, 2)}d_backward"
    elif antialias:
        name = f"_upsample_{mode}{dims}d_aa_backward"
    else:
        name = (
            f"_upsample_nearest_exact{dims}d_backward"
            if mode == "nearest-exact"
            else f"upsample_{mode}{dims}d_backward"
        )
    return getattr(torch.ops.aten, name).default


@primitive(F.interpolate, extra="constant")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """out = W input, with fixed weights W for each axis.   d/dinput = W^T g"""
    out = F.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    return out, input.shape


@interpolate.vjp("input")
def _(
    g: Tensor,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
    extra: Any,
) -> Tensor:
    dims = len(extra) - 2
    kernel = _interpolation_kernel(mode, dims, antialias)
    if mode == "area":
        return _area_rule(kernel, g, extra)
    scales = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * dims
    # With recompute_scale_factor torch works from the two sizes alone.
    scales = (None,) * dims if recompute_scale_factor else scales
    options = () if mode in _NEAREST else (bool(align_corners),)
    return kernel(g, g.shape[2:], extra, *options, *scales)


def _area_rule(kernel: Any, g: Tensor, shape: Any) -> Tensor:
    """Area is adaptive average pooling, and that of one axis is that of a picture of one row."""
    if len(shape) > 3:
        return kernel(g, blank(shape, g))
    g = g.unsqueeze(-2)
    return kernel(g, blank((*shape[:-1], 1, shape[-1]), g)).squeeze(-2)


@interpolate.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 3), None, (1.7, 2.0), "bilinear"


@interpolate.example
def _(make: Any) -> Any:
    return make(1, 1, 3, 4), (4, 3), None, "bicubic", True


@interpolate.example
def _(make: Any) -> Any:
    return make(1, 1, 5), 3, None, "area"


@primitive(F.affine_grid)
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """out[n, p] = theta[n] (x_p, y_p, 1) for each place p of a picture.   d/dtheta[n] = sum g[n, p] (x_p, y_p, 1)^T"""
    return F.affine_grid(theta, size, align_corners)


@affine_grid.vjp("theta")
def _(g: Tensor, size: Any, align_corners: bool | None) -> Tensor:
    return _affine_grid_backward(g, size, bool(align_corners))


@affine_grid.example
def _(make: Any) -> Any:
    return make(1, 2, 3), (1, 1, 2, 3), False


@affine_grid.example
def _(make: Any) -> Any:
    return make(1, 3, 4), (1, 1, 2, 1, 2), False


@primitive("pixel_shuffle")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channel (c, i, j) at (y, x) goes to channel c at (y * r + i, x * r + j).   d/dinput is the way back"""
    return torch.pixel_shuffle(input, upscale_factor)


@pixel_shuffle.vjp("input")
def _(g: Tensor, upscale_factor: int) -> Tensor:
    return _unshuffled(g, upscale_factor)


@pixel_shuffle.example
def _(make: Any) -> Any:
    return make(1, 4, 1, 2), 2


@primitive("pixel_unshuffle")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of `pixel_shuffle`, which is also its gradient."""
    return _unshuffled(input, downscale_factor)


def _unshuffled(input: Tensor, factor: int) -> Tensor:
    if input.numel():
        return torch.pixel_unshuffle(input, factor)
    *batch, channels, height, width = input.shape  # torch leaves the shape of an empty tensor as it is
    return input.reshape(*batch, channels * factor * factor, height // factor, width // factor)


@pixel_unshuffle.vjp("input")
def _(g: Tensor, downscale_factor: int) -> Tensor:
    return torch.pixel_shuffle(g, downscale_factor)


@pixel_unshuffle.example
def _(make: Any) -> Any:
    return make(1, 2, 4), 2


@primitive("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels (groups, n) become (n, groups).   d/dinput turns them back: a shuffle in n groups"""
    return torch.channel_shuffle(input, groups)


@channel_shuffle.vjp("input")
def _(g: Tensor, groups: int) -> Tensor:
    return torch.channel_shuffle(g, max(1, g.shape[1] // groups))


@channel_shuffle.example
def _(make: Any) -> Any:
    return make(1, 6, 2), 2


@primitive(F.unfold, extra="constant")
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Patches as columns: (N, C, H, W) to (N, C * KH * KW, number of patches).   d/dinput = fold(g)"""
    return F.unfold(input, kernel_size, dilation, padding, stride), input.shape[-2:]


@unfold.vjp("input")
def _(g: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any, extra: Any) -> Tensor:
    return F.fold(g, extra, kernel_size, dilation, padding, stride)


@unfold.example
def _(make: Any) -> Any:
    return make(1, 1, 4, 5), (2, 3), 1, 1, 2


@primitive(F.fold)
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns back to a picture, summed where patches overlap.   d/dinput = unfold(g)"""
    return F.fold(input, output_size, kernel_size, dilation, padding, stride)


@fold.vjp("input")
def _(g: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return F.unfold(g, kernel_size, dilation, padding, stride)


@fold.example
def _(make: Any) -> Any:
    return make(1, 4, 4), (3, 3), 2
