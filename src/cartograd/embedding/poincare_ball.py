r"""The geometry of the Poincare ball: points of length below 1, of curvature -1.

Distances at z are stretched by :math:`\lambda_z = 2 / (1 - |z|^2)`. All functions take rows of points or tangent vectors,
(..., c).
"""

from __future__ import annotations

import torch

RIM = {torch.float32: 1 - 4e-3, torch.float64: 1 - 1e-5}
"""The greatest length of a point: beyond it the digits of 1 - |z|^2 are used up."""


def dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Inner products of rows, (..., 1)."""
    return (x * y).sum(-1, keepdim=True)


def inside(z: torch.Tensor) -> torch.Tensor:
    """The points, those too near to the rim (or beyond) drawn back along their radius."""
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    most = RIM.get(z.dtype, RIM[torch.float32])
    return torch.where(length > most, z * (most / length), z)


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    r"""Möbius addition, :math:`x \oplus y = \frac{(1 + 2 xy + y^2) x + (1 - x^2) y}{1 + 2 xy + x^2 y^2}`."""
    xx, yy, xy = dot(x, x), dot(y, y), 2 * dot(x, y) + 1
    return ((xy + yy) * x + (1 - xx) * y) / (xy + xx * yy).clamp(min=torch.finfo(x.dtype).tiny)


def moved(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    r"""The exponential map: where the geodesic from z with velocity v is after a unit of time.

    .. math:: \exp_z(v) = z \oplus \tanh\Bigl(\frac{\lambda_z |v|}{2}\Bigr) \frac{v}{|v|}
    """
    length = torch.linalg.vector_norm(v, dim=-1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)
    return added(z, torch.tanh(length / (1 - dot(z, z))) / length * v)


def transported(v: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    r"""Parallel transport of tangent vectors v from x to y along the geodesic.

    .. math:: \frac{\lambda_x}{\lambda_y} \operatorname{gyr}[y, -x] v, \qquad \operatorname{gyr}[y, -x] v = v + 2
        \frac{(2 (xy)(xv) - (yv) x^2 - xv) \, y + (yv - (xv) y^2) \, x}{1 - 2 xy + x^2 y^2}
    """
    xx, yy, xy, xv, yv = dot(x, x), dot(y, y), dot(x, y), dot(x, v), dot(y, v)
    towards = (2 * xy * xv - yv * xx - xv) * y + (yv - xv * yy) * x
    turned = v + 2 * towards / (1 - 2 * xy + xx * yy).clamp(min=torch.finfo(v.dtype).tiny)
    return (1 - yy) / (1 - xx) * turned
