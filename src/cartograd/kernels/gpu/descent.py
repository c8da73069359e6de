r"""One step of t-SNE's descent in the plane: both forces put together, gains, velocity and move, in one pass.

.. math:: g = \lambda A + \frac{f}{\text{total}} R

with the attraction A, the repulsion R and the sum over all pairs; gains and velocity are those of
`cartograd.embedding.gains.DescentWithGains`, the twin.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

ROWS = 256


class Gains(NamedTuple):
    """The constants of the gains: what is added, what is multiplied with, the least, and the longest move."""

    rise: float
    fall: float
    least: float
    longest: float


class State(NamedTuple):
    """What the descent carries from step to step.

    Parameters
    ----------
    velocity, gains : torch.Tensor
        (n, 2) float32 each.
    rates : torch.Tensor
        (steps,) float32, learning rates.
    number : torch.Tensor
        (1,) int64, which of them is the next step's.
    """

    velocity: torch.Tensor
    gains: torch.Tensor
    rates: torch.Tensor
    number: torch.Tensor


def descend(
    Z: torch.Tensor, attraction: torch.Tensor, repulsion: torch.Tensor, total: torch.Tensor, pull: float, push: float,
    momentum: float, state: State, constants: Gains,
) -> None:  # fmt: skip
    """Move Z (n, 2) float32 by one step, in place.

    Parameters
    ----------
    Z, attraction : torch.Tensor
        (n, 2) float32.
    repulsion : torch.Tensor
        (n, 2) of any strides and precision.
    total : torch.Tensor
        A float64 scalar.
    pull, push, momentum : float
        Lambda, f, and the momentum.
    state : State
        Is changed.
    constants : Gains
        Of the gains.
    """
    _descend[(triton.cdiv(len(Z), ROWS),)](
        Z, attraction, repulsion, total, *state, len(Z), repulsion.stride(0), repulsion.stride(1), pull, push, momentum,
        *constants, ROWS=ROWS, num_warps=4,
    )  # fmt: skip
    state.number.add_(1)


@triton.jit
def _sign(value):
    return (value > 0).to(tl.int32) - (value < 0).to(tl.int32)


@triton.jit
def _turned(g, velocity, gains, at, here, rate, momentum, rise, fall, least):
    """The velocity of one coordinate; its gain is written."""
    v = tl.load(velocity + at, mask=here, other=0.0)
    a = tl.load(gains + at, mask=here, other=0.0)
    a = tl.where(_sign(v) != _sign(g), a + rise, a * fall + least)
    tl.store(gains + at, a, mask=here)
    return momentum * v - rate * a * g


@triton.jit
def _descend(
    places, attraction, repulsion, total, velocity, gains, rates, number, n, across, down, pull, push, momentum,
    rise, fall, least, longest, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < n
    rate = tl.load(rates + tl.load(number))
    share = (push / tl.load(total)).to(tl.float32)
    x, y = 2 * row, 2 * row + 1
    far_x = tl.load(repulsion + row * across, mask=here, other=0.0).to(tl.float32)
    far_y = tl.load(repulsion + row * across + down, mask=here, other=0.0).to(tl.float32)
    gx = pull * tl.load(attraction + x, mask=here, other=0.0) + share * far_x
    gy = pull * tl.load(attraction + y, mask=here, other=0.0) + share * far_y
    vx = _turned(gx, velocity, gains, x, here, rate, momentum, rise, fall, least)
    vy = _turned(gy, velocity, gains, y, here, rate, momentum, rise, fall, least)
    cut = longest / tl.maximum(tl.sqrt(vx * vx + vy * vy), longest)
    tl.store(velocity + x, vx * cut, mask=here)
    tl.store(velocity + y, vy * cut, mask=here)
    tl.store(places + x, tl.load(places + x, mask=here, other=0.0) + vx * cut, mask=here)
    tl.store(places + y, tl.load(places + y, mask=here, other=0.0) + vy * cut, mask=here)
