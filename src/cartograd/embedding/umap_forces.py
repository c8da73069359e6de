r"""UMAP's forces in closed form.

With :math:`q(s) = 1 / (1 + a s^b)` of the squared distance s the loss of a pair is :math:`-\log q` where an edge acts
and :math:`-\log(1 - q)` for a negative; the derivatives by :math:`z_i` are

.. math:: \frac{2 a b s^{b-1}}{1 + a s^b} (z_i - z_j), \qquad -\frac{2 b}{(\epsilon + s)(1 + a s^b)} (z_i - z_j)

the second softened by epsilon = 0.001, and each coordinate of each pair's force clipped to [-4, 4], as in umap-learn.
"""

from __future__ import annotations

import torch

CLIP = 4.0
SOFTENING = 1e-3
REGISTERS = 64
"""Numbers in a whole number of vector registers."""


def _power(s: torch.Tensor, b: float) -> torch.Tensor:
    """s^b. At an odd end of an array powers round otherwise: it is filled up, so that no pair is at one."""
    return (torch.nn.functional.pad(s, (0, -len(s) % REGISTERS)) ** b)[: len(s)]


def apart_in(planes: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Differences (c, m) of points whose coordinates are `planes` (c, n): long rows are faster than short ones."""
    return torch.stack([plane.index_select(0, rows).sub_(plane.index_select(0, columns)) for plane in planes])


def attraction(apart: torch.Tensor, a: float, b: float, clip: float = CLIP) -> torch.Tensor:
    """Gradients of the attraction of pairs with these differences (c, m)."""
    s = apart.square().sum(0)
    power = _power(s, b)
    slope = torch.where(s > 0, 2 * a * b * power / (s * (1 + a * power)), 0.0)
    return (slope * apart).clamp_(-clip, clip)


def repulsion(
    apart: torch.Tensor,
    a: float,
    b: float,
    strength: float = 1.0,
    softening: float = SOFTENING,
    clip: float = CLIP,
) -> torch.Tensor:
    """Gradients of the repulsion of pairs with these differences (c, m); nothing between points at one place.

    They are multiplied by the strength before they are clipped: a strong repulsion reaches farther, and does not burst.
    """
    s = apart.square().sum(0)
    slope = -2 * b * strength / ((softening + s) * (1 + a * _power(s, b)))
    return (torch.where(s > 0, slope, 0.0) * apart).clamp_(-clip, clip)
