"""Rotations of pairs of channels by angles that add up along a sequence: Mamba-3's complex transition."""

from __future__ import annotations

import math
from typing import Any

import torch

from cartograd.engine.accumulate import raw

PAIRINGS = ("adjacent", "halves")


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


def rotate(rows: Any, cos: Any, sin: Any, pairing: str = "adjacent") -> Any:
    """Turn pairs (u, w) of channels: (cos u - sin w, sin u + cos w). Channels without an angle stay.

    Parameters
    ----------
    rows : Tensor, (b, t, m, h, r)
        What is turned, every rank m alike.
    cos, sin : Tensor, (b, t, h, a)
        Of one angle for each of the first a pairs.
    pairing : str, default="adjacent"
        "adjacent" pairs channels 2j and 2j + 1, "halves" pairs j and j + r // 2.
    """
    count = cos.shape[-1]
    if count == 0:
        return rows
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    if pairing == "halves":
        half = rows.shape[-1] // 2
        u, w = rows[..., :count], rows[..., half : half + count]
        turned = [cos * u - sin * w, rows[..., count:half], sin * u + cos * w, rows[..., half + count :]]
    else:
        pairs = rows[..., : 2 * count].unflatten(-1, (count, 2))
        u, w = pairs[..., 0], pairs[..., 1]
        turned = [torch.stack([cos * u - sin * w, sin * u + cos * w], -1).flatten(-2), rows[..., 2 * count :]]
    return torch.cat(turned, -1)
