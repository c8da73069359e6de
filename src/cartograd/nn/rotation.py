"""Rotations of pairs of channels by angles that add up along a sequence: Mamba-3's complex transition."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from cartograd.engine.accumulate import raw
from cartograd.engine.tensor import Tensor as Recorded
from cartograd.ops.rotary import turned_keys

_torch_turned = turned_keys.as_torch()


class Turn(NamedTuple):
    """What heads do to the keys and queries of their group; the parameters are those of `turned`."""

    b_bias: Any
    c_bias: Any
    theta: Any
    pairing: str


def running_angles(increments: Any, start: Any) -> Any:
    """theta_t = start + sum over s <= t of increments_s, less whole turns, which are constants to the gradient.

    Summed in float64: angles far down a sequence are as exact as those at its beginning.

    Parameters
    ----------
    increments : Tensor, (b, t, h, a)
        The angle of each step.
    start : Tensor, (b, h, a)
        The angle before the first step.
    """
    wide = torch.float32 if increments.device.type == "mps" else torch.float64
    total = increments.to(wide).cumsum(1) + start.to(wide).unsqueeze(1)
    return without_turns(total).to(increments.dtype)


def without_turns(angle: Any) -> Any:
    """The same angle between -pi and pi."""
    turns = torch.round(raw(angle).detach() / (2 * math.pi))
    return angle - 2 * math.pi * turns


def turned(rows: Any, bias: Any, theta: Any, pairing: str) -> Any:
    """Keys or queries of every head, (b, t, m, h, r): a group's rows, biased and turned; see `ops.rotary`.

    Parameters
    ----------
    rows : Tensor, (b, t, m, g, r)
        Of every group.
    bias : Tensor, (h, m, r)
        Of every head.
    theta : Tensor, (b, t, h, a)
        The angle of each of the first a pairs of channels.
    pairing : str
        "adjacent" pairs channels 2j and 2j + 1, "halves" pairs j and j + r // 2.
    """
    return (turned_keys if type(rows) is Recorded else _torch_turned)(rows, bias, theta, pairing)
