"""Deformable convolution: each tap of the kernel reads the picture at a learned distance from its place.

Dai et al. 2017 (without `mask`) and Zhu et al. 2019 (with it), with torchvision's meaning and shapes.

The picture is laid out as rows of channels, so every tap of every output is a weighted sum of four rows, its corners:
torch's embedding bags, which do that in one pass. The columns that result are multiplied by the weights. A last row of
zeros stands for all that is outside. The backward pass makes the columns again rather than keep them.
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

_bag_products = torch.ops.aten._embedding_bag_per_sample_weights_backward.default
_SUM = 0  # the number of that mode of embedding bags

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


def _corners(y: Any, x: Any, geometry: Geometry) -> tuple[Any, Any, Any, Any]:
    """The rows of the four corners, their weights, and the derivatives of these by y and by x, all (..., 4)."""
    height, width, groups = geometry.height, geometry.width, geometry.offset_groups
    top, left = y.detach().floor(), x.detach().floor()
    share_y = torch.stack((1 - (y - top), y - top), -1).unsqueeze(-1)
    share_x = torch.stack((1 - (x - left), x - left), -1).unsqueeze(-2)
    step = torch.tensor([0, 1], device=y.device)
    row, column = (top.unsqueeze(-1) + step).unsqueeze(-1), (left.unsqueeze(-1) + step).unsqueeze(-2)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    # Only numbers inside are turned into integers: those far outside, and NaN, would not fit.
    place = torch.where(inside, row, 0).long() * width + torch.where(inside, column, 0).long()
    plane = torch.arange(y.shape[0] * groups, device=y.device).view(-1, 1, 1, 1, groups, 1, 1)
    index = torch.where(inside, plane * (height * width) + place, y.shape[0] * groups * height * width)
    slope = 2 * step - 1
    by_y, by_x = slope.unsqueeze(-1) * share_x, share_y * slope
    return index.flatten(-2), (share_y * share_x).flatten(-2), by_y.flatten(-2), by_x.flatten(-2)


def _columns(rows: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """The weighted sum of the corners: (N, OH, OW, taps, G, C / G)."""
    weights = share.to(rows.dtype).reshape(-1, 4)
    bags = F.embedding_bag(index.reshape(-1, 4), rows, per_sample_weights=weights, mode="sum")
    return bags.view(*index.shape[:-1], rows.shape[1])


def _by_groups(columns: Any, geometry: Geometry) -> Any:
    """Columns (N, OH, OW, taps, G, C / G) as the left factors (groups, N * OH * OW, taps * C / groups)."""
    split = columns.reshape(-1, geometry.taps, geometry.groups, geometry.channels // geometry.groups)
    return split.permute(2, 0, 1, 3).reshape(geometry.groups, split.shape[0], split.shape[1] * split.shape[3])


def _matrices(weight: Any, groups: int) -> Any:
    """(O, C / groups, KH, KW) as the right factors (groups, taps * C / groups, O / groups)."""
    split = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return split.permute(0, 3, 2, 1).reshape(groups, -1, split.shape[1])


def _product(columns: Any, weight: Any, geometry: Geometry) -> Any:
    """The columns times the weights, as a picture."""
    out = torch.bmm(_by_groups(columns, geometry), _matrices(weight, geometry.groups))
    return out.permute(1, 0, 2).reshape(columns.shape[0], *geometry.out, weight.shape[0]).permute(0, 3, 1, 2)


def _convolve(input: Tensor, offset: Tensor, weight: Tensor, mask: Tensor | None, geometry: Geometry) -> Tensor:
    """The result for some pictures, without the bias."""
    index, share, _, _ = _corners(*_places(offset, geometry), geometry)
    share = share if mask is None else share * _like_places(mask, geometry).unsqueeze(-1)
    return _product(_columns(_rows(input, geometry), index, share), weight, geometry)


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
    if bias is not None:
        _require_shape("bias", bias, (weight.shape[0],))
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
    index, share, slope_y, slope_x = _corners(*_places(offset, geometry), geometry)
    scale = None if mask is None else _like_places(mask, geometry).unsqueeze(-1)
    scaled = share if scale is None else share * scale
    out = g.permute(0, 2, 3, 1).reshape(-1, geometry.groups, weight.shape[0] // geometry.groups).transpose(0, 1)
    by_offset = by_mask = None
    errors = _of_columns(out, weight, geometry).reshape(-1, rows.shape[1]) if need[0] or need[1] or need[3] else None
    if errors is not None and (need[1] or need[3]):
        met = _met(errors, rows, index).to(share.dtype)
        by_mask = (met * share).sum(-1).permute(0, 4, 3, 1, 2) if need[3] else None
        met = met if scale is None else met * scale
        by_offset = torch.stack(((met * slope_y).sum(-1), (met * slope_x).sum(-1))).permute(1, 5, 4, 0, 2, 3)
    return (
        _spread(errors, index, scaled, rows, geometry) if errors is not None and need[0] else None,
        by_offset.to(offset.dtype).reshape(offset.shape) if by_offset is not None and need[1] else None,
        _by_weight(_columns(rows, index, scaled), out, geometry, weight) if need[2] else None,
        by_mask.to(mask.dtype).reshape(mask.shape) if by_mask is not None else None,
    )


def _met(errors: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """The inner product of the gradient of each column with each of its four corners."""
    bags = torch.arange(errors.shape[0], device=errors.device)
    flat = index.reshape(-1)
    return _bag_products(errors, rows, flat, bags * 4, bags.repeat_interleave(4), _SUM).view(index.shape)


def _spread(errors: Tensor, index: Tensor, scaled: Tensor, rows: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of the picture: that of each column, added to its corners by their weights."""
    total = torch.zeros_like(rows)
    corners, weights = index.reshape(-1, 4), scaled.to(rows.dtype).reshape(-1, 4, 1)
    for corner in range(4):
        total.index_add_(0, corners[:, corner], errors * weights[:, corner])
    places = total[:-1].view(-1, geometry.height * geometry.width, rows.shape[1])
    return places.transpose(1, 2).reshape(-1, geometry.channels, geometry.height, geometry.width)


def _of_columns(out: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of the columns, (N * OH * OW, taps * C)."""
    each = torch.bmm(out, _matrices(weight, geometry.groups).transpose(1, 2))
    split = each.reshape(geometry.groups, each.shape[1], geometry.taps, weight.shape[1])
    return split.permute(1, 2, 0, 3).reshape(each.shape[1], geometry.taps * geometry.channels)


def _by_weight(columns: Tensor, out: Tensor, geometry: Geometry, weight: Tensor) -> Tensor:
    products = torch.bmm(_by_groups(columns, geometry).transpose(1, 2), out)
    split = products.reshape(geometry.groups, geometry.taps, weight.shape[1], -1)
    return split.permute(0, 3, 2, 1).reshape(weight.shape)


@deform_conv2d.restate
def _(input: Any, offset: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, mask: Any) -> Any:
    geometry = _geometry(input, offset, weight, stride, padding, dilation, mask)
    rows = _rows(input, geometry)
    index, share, _, _ = _corners(*_places(offset, geometry), geometry)
    share = share if mask is None else share * _like_places(mask, geometry).unsqueeze(-1)
    corners = rows.index_select(0, index.reshape(-1)).reshape(*index.shape, rows.shape[1])
    out = _product((corners * share.unsqueeze(-1).to(rows.dtype)).sum(-2), weight, geometry)
    return out if bias is None else out + bias.view(-1, 1, 1)


@deform_conv2d.example
def _(make: Any) -> Any:
    offset = torch.tensor([0.3, -0.6, 1.4, 0.2, -0.4, 0.7, 0.6, -1.3], dtype=torch.float64).view(1, 8, 1, 1)
    return make(1, 2, 2, 2), offset, make(1, 2, 2, 2), make(1), 1, 0, 1, make(1, 4, 1, 1)


@deform_conv2d.example
def _(make: Any) -> Any:
    return make(1, 2, 2, 3), make(1, 4, 2, 2, low=0.1, high=0.9), make(2, 1, 1, 1), None, (1, 2), (0, 0), 1
