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
    return z * torch.linalg.vector_norm(z, dim=0).reciprocal_().mul_(most).clamp_(max=1.0)


def moved(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    r"""The exponential map: where the geodesic from z with velocity v is after a unit of time.

    .. math:: \exp_z(v) = z \oplus \tanh\Bigl(\frac{\lambda_z |v|}{2}\Bigr) \frac{v}{|v|}, \qquad
        x \oplus y = \frac{(1 + 2 xy + y^2) x + (1 - x^2) y}{1 + 2 xy + x^2 y^2}
    """
    return flowed(z, v)[0]


def flowed(z: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Where the geodesic is after a unit of time, and its velocity there: v, transported in parallel.

    With :math:`t = \tanh(\lambda_z |v| / 2)` and u = v / |v| the geodesic is :math:`z \oplus t u`, its derivative by t

    .. math:: d = \frac{2 (zu + t) z + (1 - z^2) u - 2 (zu + t z^2) (z \oplus t u)}{1 + 2 t \, zu + t^2 z^2}

    and as parallel transport keeps lengths in the ball, the velocity is :math:`|v| \frac{1 - t^2}{1 - z^2} d`.
    """
    zz, length = dot(z, z, dim=0), torch.linalg.vector_norm(v, dim=0)
    room, u = torch.rsub(zz, 1), v / length.clamp(min=torch.finfo(v.dtype).tiny)
    t, zu = torch.tanh(length / room), dot(z, u, dim=0)
    tt, both = t * t, (t * zu).mul_(2).add_(1)
    below = torch.addcmul(both, zz, tt)
    there = ((both + tt) * z).addcmul_(room * t, u).div_(below)
    turn = ((zu + t) * z).addcmul_(torch.addcmul(zu, t, zz), there, value=-1).mul_(2).addcmul_(room, u)
    return there, turn.mul_(length.mul_(torch.rsub(tt, 1)).div_(room).div_(below))
