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


def apart_in(planes: torch.Tensor, own: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Differences (c, *m) of places `own` (c, a) and points `others` (*m), m ending in a.

    Points are named by their number; their coordinates are `planes` (c, n): long rows are faster than short ones.
    """
    found = torch.stack([plane.index_select(0, others.reshape(-1)) for plane in planes]).view(
        len(planes), *others.shape
    )
    return torch.sub(own[:, None, :] if others.dim() == 2 else own, found, out=found)


def _squares(apart: torch.Tensor) -> torch.Tensor:
    """The squared lengths of differences (c, m), (m,)."""
    total = apart[0].square()
    for plane in apart[1:]:
        total = torch.addcmul(total, plane, plane)
    return total


def attraction(apart: torch.Tensor, a: float, b: float, clip: float = CLIP) -> torch.Tensor:
    """Gradients of the attraction of pairs with these differences (c, m)."""
    s = _squares(apart)
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
    s = _squares(apart)
    slope = -2 * b * strength / ((softening + s) * (1 + a * _power(s, b)))
    if softening == 0:  # otherwise the difference, which is 0, makes it 0
        slope = torch.where(s > 0, slope, 0.0)
    return (slope * apart).clamp_(-clip, clip)
