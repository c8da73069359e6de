"""Gradient descent with a gain for each coordinate, as t-SNE is descended since its first implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RISE, FALL, LEAST = 0.2, 0.8, 0.01
"""What is added to a gain, what it is multiplied with, and what it never falls below."""

LONGEST = 5.0
"""No point moves farther than this in a step: one that shoots off would blow up the grid of the repulsion."""


class DescentWithGains(torch.optim.SGD):
    r"""Momentum and delta-bar-delta (Jacobs, 1988), with the constants of van der Maaten's t-SNE.

    .. math:: a \leftarrow \begin{cases} a + 0.2 & \text{where } \operatorname{sign} v \ne \operatorname{sign} g \\
        0.8 a + 0.01 & \text{elsewhere,} \end{cases} \qquad v \leftarrow m v - \eta\, a\, g, \qquad z \leftarrow z + v

    for each coordinate on its own; v is the velocity, at first 0, and a the gain, at first 1. A coordinate that goes
    on downhill is made faster, one that swings slower. The velocity of a point, a row of z, is cut to length 5. After
    as many steps the divergence of t-SNE is far lower than with momentum alone.

    Parameters
    ----------
    params : iterable of torch.Tensor
        What is moved, (n, c) each.
    lr : float
        :math:`\eta`.
    momentum : float, default=0.0
        m.
    """

    def __init__(self, params: Any, lr: float, momentum: float = 0.0) -> None:
        super().__init__(params, lr=lr, momentum=momentum)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step down."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for place in group["params"]:
                if place.grad is not None:
                    self._move(place, place.grad, group["lr"], group["momentum"])
        return loss

    def _move(self, place: torch.Tensor, gradient: torch.Tensor, rate: float, momentum: float) -> None:
        state = self.state[place]
        if not state:
            state["velocity"], state["gains"] = torch.zeros_like(place), torch.ones_like(place)
        velocity, gains = state["velocity"], state["gains"]
        onward = torch.sign(velocity) != torch.sign(gradient)
        gains.copy_(torch.where(onward, gains + RISE, gains * FALL + LEAST))
        velocity.mul_(momentum).addcmul_(gains, gradient, value=-rate)
        length = torch.linalg.vector_norm(velocity, dim=1, keepdim=True)
        velocity.mul_(LONGEST / length.clamp(min=LONGEST))
        place.add_(velocity)
