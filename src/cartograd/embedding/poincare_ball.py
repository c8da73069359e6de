r"""The geometry of the Poincare ball: points of length below 1, of curvature -1.

Distances at z are stretched by :math:`\lambda_z = 2 / (1 - |z|^2)`. All functions take points and tangent vectors with
their coordinates first, (c, ...): operations then run along many points at a time, not along a few coordinates.
"""

from __future__ import annotations

import torch

RIM = {torch.float32: 1 - 4e-3, torch.float64: 1 - 1e-5}
"""The greatest length of a point: beyond it the digits of 1 - |z|^2 are used up."""

dot = torch.linalg.vecdot


def inside(z: torch.Tensor) -> torch.Tensor:
    """The points, those too near to the rim (or beyond) drawn back along their radius."""
    most = RIM.get(z.dtype, RIM[torch.float32])
    return z * (most / dot(z, z, dim=0).sqrt_()).clamp_(max=1.0)


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    r"""Möbius addition, :math:`x \oplus y = \frac{(1 + 2 xy + y^2) x + (1 - x^2) y}{1 + 2 xy + x^2 y^2}`."""
    xx, yy, both = dot(x, x, dim=0), dot(y, y, dim=0), dot(x, y, dim=0).mul_(2).add_(1)
    return torch.addcmul((both + yy) * x, 1 - xx, y).div_(both.addcmul_(xx, yy))


def moved(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    r"""The exponential map: where the geodesic from z with velocity v is after a unit of time.

    .. math:: \exp_z(v) = z \oplus \tanh\Bigl(\frac{\lambda_z |v|}{2}\Bigr) \frac{v}{|v|}
    """
    length = torch.linalg.vector_norm(v, dim=0).clamp_(min=torch.finfo(v.dtype).tiny)
    return added(z, v * torch.tanh(length / (1 - dot(z, z, dim=0))).div_(length))


def transported(v: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    r"""Parallel transport of tangent vectors v from x to y along the geodesic.

    .. math:: \frac{\lambda_x}{\lambda_y} \operatorname{gyr}[y, -x] v, \qquad \operatorname{gyr}[y, -x] v = v + 2
        \frac{(2 (xy)(xv) - (yv) x^2 - xv) \, y + (yv - (xv) y^2) \, x}{1 - 2 xy + x^2 y^2}
    """
    xx, yy, xy = dot(x, x, dim=0), dot(y, y, dim=0), dot(x, y, dim=0).mul_(2)
    xv, yv = dot(x, v, dim=0), dot(y, v, dim=0)
    across = torch.addcmul((xy - 1) * xv, yv, xx, value=-1) * y
    across.addcmul_(torch.addcmul(yv, xv, yy, value=-1), x)
    turned = torch.addcdiv(v, across, torch.addcmul(1 - xy, xx, yy), value=2)
    return turned.mul_((1 - yy).div_(1 - xx))
