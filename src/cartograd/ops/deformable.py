"""Deformable convolution: each tap of the kernel reads the picture at a learned distance from its place.

Dai et al. 2017 (without `mask`) and Zhu et al. 2019 (with it), with torchvision's meaning and shapes.

The picture is laid out as rows of channels, so a corner of the bilinear sample of every tap of every output is one
`index_select`; the columns that result are multiplied by the weights. A last row of zeros stands for all that is
outside. The backward pass makes the columns again rather than keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import primitive
from cartograd.errors import OptionError

COLUMN_ELEMENTS = 1 << 24
"""As many elements of columns are made at a time, or those of one picture if they are more."""


@dataclass(frozen=True)
class Geometry:
    """The sizes and options of one call."""

    channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    offset_groups: int

    @property
    def taps(self) -> int:
        """Elements of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the result."""
        down, across = (
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, pad, dilation, kernel, stride in zip(
                (self.height, self.width), self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        )
        return down, across

    def chunks(self, batch: int) -> Iterator[slice]:
        """Parts of the batch whose columns fit in `COLUMN_ELEMENTS`."""
        each = max(1, self.out[0] * self.out[1] * self.taps * self.channels)
        step = max(1, COLUMN_ELEMENTS // each)
        return (slice(start, start + step) for start in range(0, batch, step))


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _geometry(input: Any, offset: Any, weight: Any, stride: Any, padding: Any, dilation: Any, mask: Any) -> Geometry:
    """Read the sizes of a call, and refuse those that do not fit each other."""
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        raise OptionError(
            "deform_conv2d takes input (N, C, H, W), offset (N, 2 * G * KH * KW, OH, OW) and weight (O, C / groups, "
            f"KH, KW); got {tuple(input.shape)}, {tuple(offset.shape)} and {tuple(weight.shape)}"
        )
    batch, channels, height, width = input.shape
    kernel = (weight.shape[2], weight.shape[3])
    groups = channels // max(1, weight.shape[1])
    offset_groups = offset.shape[1] // (2 * kernel[0] * kernel[1])
    made = Geometry(
        channels, height, width, kernel, _pair(stride), _pair(padding), _pair(dilation), groups, offset_groups
    )
    if groups * weight.shape[1] != channels or weight.shape[0] % max(1, groups):
        raise OptionError(
            f"deform_conv2d: a weight of shape {tuple(weight.shape)} does not divide {channels} channels into groups"
        )
    if offset_groups == 0 or channels % offset_groups:
        raise OptionError(
            f"deform_conv2d: an offset of {offset.shape[1]} channels is not 2 * {made.taps} for each of a number of "
            f"groups that divides the {channels} channels of the input"
        )
    wanted = (batch, offset_groups * made.taps, *made.out)
    _require_shape("offset", offset, (batch, 2 * wanted[1], *made.out))
    if mask is not None:
        _require_shape("mask", mask, wanted)
    return made


def _require_shape(name: str, value: Any, wanted: tuple[int, ...]) -> None:
    if tuple(value.shape) != wanted:
        raise OptionError(f"deform_conv2d: {name} must have shape {wanted}, got {tuple(value.shape)}")


def _rows(input: Any, geometry: Geometry) -> Any:
    """(N, C, H, W) as (N * G * H * W + 1, C / G): a row for each place of each offset group, and one of zeros."""
    each = geometry.channels // geometry.offset_groups
    rows = input.reshape(-1, each, geometry.height * geometry.width).transpose(1, 2).reshape(-1, each)
    return F.pad(rows, (0, 0, 0, 1))


def _places(offset: Any, geometry: Geometry) -> tuple[Any, Any]:
    """The coordinates (y, x) that are read, each (N, OH, OW, KH * KW, G)."""
    if offset.element_size() < 4:
        offset = offset.to(torch.float32)  # 16 bits do not tell the pixels of a large picture apart
    down, across = geometry.out
    split = offset.reshape(-1, geometry.offset_groups, geometry.taps, 2, down, across).permute(3, 0, 4, 5, 2, 1)
    starts = [
        torch.arange(count, device=offset.device) * stride - pad
        for count, stride, pad in zip((down, across), geometry.stride, geometry.padding, strict=True)
    ]
    steps = [
        torch.arange(count, device=offset.device) * dilation
        for count, dilation in zip(geometry.kernel, geometry.dilation, strict=True)
    ]
    y = starts[0].view(-1, 1, 1, 1) + steps[0].repeat_interleave(geometry.kernel[1]).view(-1, 1)
    x = starts[1].view(-1, 1, 1) + steps[1].repeat(geometry.kernel[0]).view(-1, 1)
    return split[0] + y, split[1] + x


def _corners(y: Any, x: Any, geometry: Geometry) -> Iterator[tuple[Any, Any, Any, Any]]:
    """For each of the four corners: which rows to read, the weight, and its derivatives by y and by x."""
    height, width, groups = geometry.height, geometry.width, geometry.offset_groups
    top, left = y.detach().floor(), x.detach().floor()
    low_y, low_x = y - top, x - left
    plane = torch.arange(y.shape[0] * groups, device=y.device).view(-1, 1, 1, 1, groups)
    for down in (0, 1):
        share_y, slope_y = (low_y, 1) if down else (1 - low_y, -1)
        for across in (0, 1):
            share_x, slope_x = (low_x, 1) if across else (1 - low_x, -1)
            row, column = top + down, left + across
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            # Only numbers inside are turned into integers: those far outside, and NaN, would not fit.
            place = torch.where(inside, row, 0).long() * width + torch.where(inside, column, 0).long()
            index = torch.where(inside, plane * (height * width) + place, y.shape[0] * groups * height * width)
            yield index.reshape(-1), share_y * share_x, slope_y * share_x, share_y * slope_x


def _by_groups(columns: Any, geometry: Geometry) -> Any:
    """Columns (N, OH, OW, taps, G, C / G) as the left factors (groups, N * OH * OW, taps * C / groups)."""
    split = columns.reshape(-1, geometry.taps, geometry.groups, geometry.channels // geometry.groups)
    return split.permute(2, 0, 1, 3).reshape(geometry.groups, split.shape[0], -1)


def _matrices(weight: Any, groups: int) -> Any:
    """(O, C / groups, KH, KW) as the right factors (groups, taps * C / groups, O / groups)."""
    split = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return split.permute(0, 3, 2, 1).reshape(groups, -1, split.shape[1])


def _convolve(input: Any, offset: Any, weight: Any, mask: Any, geometry: Geometry) -> Any:
    """The result without the bias, by functions that are differentiable themselves."""
    rows = _rows(input, geometry)
    y, x = _places(offset, geometry)
    columns: Any = 0
    for index, share, _, _ in _corners(y, x, geometry):
        share = share if mask is None else share * _like_places(mask, geometry)
        columns = columns + rows.index_select(0, index).reshape(*y.shape, -1) * share.unsqueeze(-1).to(rows.dtype)
    out = torch.bmm(_by_groups(columns, geometry), _matrices(weight, geometry.groups))
    return out.permute(1, 0, 2).reshape(input.shape[0], *geometry.out, -1).permute(0, 3, 1, 2)


def _like_places(mask: Any, geometry: Geometry) -> Any:
    return mask.reshape(-1, geometry.offset_groups, geometry.taps, *geometry.out).permute(0, 3, 4, 2, 1)


@primitive()
def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """out[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] * mask[n, k, p] * input[n, c, p + k + offset[n, k, p]]

    Sampled bilinearly, with zeros outside. `offset` is (N, 2 * G * KH * KW, OH, OW) with (dy, dx) for each tap, `mask`
    (N, G * KH * KW, OH, OW), and each of the G offset groups serves C / G channels. The gradients, with `v_k` for the
    sample of tap k and `e` for the gradient of the columns, e[n, c, k, p] = sum over o of weight[o, c, k] * g[n, o, p]:
    d/dweight = sum of g * mask * v,  d/dmask = sum over c of e * v,  d/doffset = sum over c of e * mask * v',
    d/dinput: e * mask, spread over the four corners by their shares,  d/dbias = sum of g.
    """
    geometry = _geometry(input, offset, weight, stride, padding, dilation, mask)
    out = torch.cat(
        [
            _convolve(input[part], offset[part], weight, None if mask is None else mask[part], geometry)
            for part in geometry.chunks(max(1, input.shape[0]))
        ]
    )
    return out if bias is None else out + bias.view(-1, 1, 1)


@deform_conv2d.vjp("input", "offset", "weight", "bias", "mask")
def _(
    g: Tensor,
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    mask: Tensor | None,
    need: tuple[bool, ...],
) -> Any:
    geometry = _geometry(input, offset, weight, stride, padding, dilation, mask)
    by_bias = g.sum((0, 2, 3)) if need[3] else None
    wanted = (need[0], need[1], need[2], need[4])
    parts = [
        _chunk_gradients(
            g[part], input[part], offset[part], weight, None if mask is None else mask[part], geometry, wanted
        )
        for part in geometry.chunks(max(1, input.shape[0]))
    ]
    by_input, by_offset, by_weight, by_mask = zip(*parts, strict=True)
    return (
        torch.cat(by_input) if need[0] else None,
        torch.cat(by_offset) if need[1] else None,
        sum(by_weight[1:], by_weight[0]) if need[2] else None,
        by_bias,
        torch.cat(by_mask) if need[4] else None,
    )


def _chunk_gradients(
    g: Tensor, input: Tensor, offset: Tensor, weight: Tensor, mask: Any, geometry: Geometry, need: tuple[bool, ...]
) -> tuple[Any, Any, Any, Any]:
    """The gradients by input, offset, weight and mask of some pictures; `None` for what is not needed."""
    rows = _rows(input, geometry)
    y, x = _places(offset, geometry)
    out = g.permute(0, 2, 3, 1).reshape(-1, geometry.groups, weight.shape[0] // geometry.groups).transpose(0, 1)
    errors = _of_columns(out, weight, geometry).view(*y.shape, -1)
    scale = None if mask is None else _like_places(mask, geometry)
    scaled = errors if scale is None else errors * scale.unsqueeze(-1)
    by_rows = torch.zeros_like(rows) if need[0] else None
    columns = torch.zeros_like(errors) if need[2] else None
    by_y, by_x, by_scale = torch.zeros_like(y), torch.zeros_like(x), torch.zeros_like(y)
    for index, share, slope_y, slope_x in _corners(y, x, geometry):
        weighing = share.unsqueeze(-1).to(rows.dtype)
        if by_rows is not None:
            by_rows.index_add_(0, index, (scaled * weighing).reshape(-1, rows.shape[1]))
        if not any(need[1:]):
            continue
        read = rows.index_select(0, index).view_as(errors)
        if columns is not None:
            columns.addcmul_(read, weighing)
        if need[1] or need[3]:
            met = torch.linalg.vecdot(errors, read).to(y.dtype)
            by_scale.addcmul_(met, share)
            by_y.addcmul_(met, slope_y)
            by_x.addcmul_(met, slope_x)
    return (
        None if by_rows is None else _picture(by_rows, geometry),
        _by_offset(by_y, by_x, scale).to(offset.dtype).reshape(offset.shape) if need[1] else None,
        None if columns is None else _by_weight(columns, scale, out, geometry, weight),
        by_scale.permute(0, 4, 3, 1, 2).to(mask.dtype).reshape(mask.shape) if need[3] else None,
    )


def _of_columns(out: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of the columns, (N * OH * OW, taps * C)."""
    each = torch.bmm(out, _matrices(weight, geometry.groups).transpose(1, 2))
    return each.view(geometry.groups, -1, geometry.taps, weight.shape[1]).permute(1, 2, 0, 3).reshape(each.shape[1], -1)


def _by_offset(by_y: Tensor, by_x: Tensor, scale: Tensor | None) -> Tensor:
    both = torch.stack((by_y, by_x))
    both = both if scale is None else both * scale
    return both.permute(1, 5, 4, 0, 2, 3)


def _by_weight(columns: Tensor, scale: Tensor | None, out: Tensor, geometry: Geometry, weight: Tensor) -> Tensor:
    columns = columns if scale is None else columns * scale.unsqueeze(-1)
    products = torch.bmm(_by_groups(columns, geometry).transpose(1, 2), out)
    split = products.view(geometry.groups, geometry.taps, weight.shape[1], -1)
    return split.permute(0, 3, 2, 1).reshape(weight.shape)


def _picture(rows: Tensor, geometry: Geometry) -> Tensor:
    """The inverse of `_rows`."""
    places = rows[:-1].view(-1, geometry.height * geometry.width, rows.shape[1])
    return places.transpose(1, 2).reshape(-1, geometry.channels, geometry.height, geometry.width)


@deform_conv2d.restate
def _(input: Any, offset: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, mask: Any) -> Any:
    geometry = _geometry(input, offset, weight, stride, padding, dilation, mask)
    out = _convolve(input, offset, weight, mask, geometry)
    return out if bias is None else out + bias.view(-1, 1, 1)


@deform_conv2d.example
def _(make: Any) -> Any:
    offset = torch.tensor([0.3, -0.6, 1.4, 0.2, -0.4, 0.7, 0.6, -1.3], dtype=torch.float64).view(1, 8, 1, 1)
    return make(1, 2, 2, 2), offset, make(1, 2, 2, 2), make(1), 1, 0, 1, make(1, 4, 1, 1)


@deform_conv2d.example
def _(make: Any) -> Any:
    return make(1, 2, 2, 3), make(1, 4, 2, 2, low=0.1, high=0.9), make(2, 1, 1, 1), None, (1, 2), (0, 0), 1
