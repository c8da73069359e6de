"""Sampling pictures and volumes at arbitrary places."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.primitive import composite, primitive

_backward = {
    4: torch.ops.aten.grid_sampler_2d_backward.default,
    5: torch.ops.aten.grid_sampler_3d_backward.default,
}
_MODES = ["bilinear", "nearest", "bicubic"]
_PADDINGS = ["zeros", "border", "reflection"]


@primitive(F.grid_sample)
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """out[n, c, p] = sum over the elements q around grid[n, p] of w_q(grid[n, p]) * input[n, c, q]

    d/dinput[n, c, q] = sum over p of w_q * g[n, c, p]
    d/dgrid[n, p] = sum over c, q of w_q' * input[n, c, q] * g[n, c, p]
    """
    return F.grid_sample(input, grid, mode, padding_mode, align_corners)


@grid_sample.vjp("input", "grid")
def _(
    g: Tensor,
    input: Tensor,
    grid: Tensor,
    mode: str,
    padding_mode: str,
    align_corners: bool | None,
    need: tuple[bool, bool],
) -> Any:
    options = (_MODES.index(mode), _PADDINGS.index(padding_mode), bool(align_corners))
    return _backward[input.dim()](g, input, grid, *options, need)


@grid_sample.restate
def _(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool | None) -> Any:
    """The sum written out, over all combinations of the elements to use along each axis."""
    batch, channels, *sizes = input.shape
    axes = [
        _taps(grid[..., -1 - axis].flatten(1), size, mode, padding_mode, bool(align_corners))
        for axis, size in enumerate(sizes)
    ]
    flat, total = input.flatten(2), 0
    for taps in itertools.product(*axes):
        index, weight = 0, 1
        for size, (place, share) in zip(sizes, taps, strict=True):
            index, weight = index * size + place, weight * share
        index = index.unsqueeze(1).expand(batch, channels, index.shape[-1])  # type: ignore[attr-defined]
        total = total + flat.gather(2, index) * weight.unsqueeze(1)  # type: ignore[attr-defined]
    return total.reshape(batch, channels, *grid.shape[1:-1])  # type: ignore[attr-defined]


def _taps(coordinate: Any, size: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Any, Any]]:
    """(index along one axis, weight) of each element that a sample along it is made of."""
    span = (size - 1 if align_corners else size) / 2
    place = (coordinate + 1) * span - (0.0 if align_corners else 0.5)
    if mode != "bicubic":
        place = _brought_inside(place, size, padding_mode, align_corners)
    if mode == "nearest":
        one = place.sign() * 0 + 1  # of derivative 0, yet connected to the grid
        return [_tap(place.detach().round(), one, size, padding_mode, align_corners)]
    first = place.detach().floor()
    t = place - first
    weights = {0: 1 - t, 1: t}
    if mode == "bicubic":
        weights = {-1: _far(1 + t), 0: _near(t), 1: _near(1 - t), 2: _far(2 - t)}
    return [_tap(first + step, weight, size, padding_mode, align_corners) for step, weight in weights.items()]


def _tap(index: Any, weight: Any, size: int, padding_mode: str, align_corners: bool) -> tuple[Any, Any]:
    """An index brought inside, and its weight, 0 if it stands for a padding of zeros."""
    inside = ((index >= 0) & (index < size)).to(weight.dtype)
    index = _brought_inside(index, size, padding_mode, align_corners).clamp(0, size - 1).long()
    return index, weight * inside if padding_mode == "zeros" else weight


def _brought_inside(place: Any, size: int, padding_mode: str, align_corners: bool) -> Any:
    """The coordinate after the padding: as it is, held at the border, or reflected and then held there."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        place = _reflected(place, *((0.0, size - 1.0) if align_corners else (-0.5, float(size))))
    return place.clamp(0, size - 1)


def _reflected(place: Any, low: float, span: float) -> Any:
    if span == 0:
        return place * 0
    distance = (place - low).abs()
    turns = (distance.detach() / span).floor()
    rest = distance - turns * span
    return low + torch.where(turns % 2 == 0, rest, span - rest)


def _near(x: Any, a: float = -0.75) -> Any:
    """The cubic convolution kernel for distances below 1 (Keys 1981, with torch's a)."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x: Any, a: float = -0.75) -> Any:
    """The same for distances between 1 and 2."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


@grid_sample.example
def _(make: Any) -> Any:
    return make(1, 2, 2, 3), make(1, 2, 1, 2, low=-1.3, high=1.3), "bilinear", "zeros", False


@grid_sample.example
def _(make: Any) -> Any:
    return make(1, 1, 3, 3), make(1, 2, 2, 2, low=-1.6, high=1.6), "bicubic", "reflection", True


@grid_sample.example
def _(make: Any) -> Any:
    return make(1, 1, 2, 2, 2), make(1, 2, 1, 1, 3, low=-1.2, high=1.2), "bilinear", "border", False


@composite(torch.grid_sampler, torch.grid_sampler_2d, torch.grid_sampler_3d)
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """`grid_sample` with its options by number."""
    return F.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)
