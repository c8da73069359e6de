"""RiemannianAdam: Adam for points of the Poincare ball."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from cartograd.affinity import checks
from cartograd.embedding.poincare_ball import dot, flowed, inside
from cartograd.errors import OptionError, UnsupportedError


class RiemannianAdam(torch.optim.Optimizer):
    r"""Adam on the Poincare ball (Bécigneul and Ganea, 2019).

    With :math:`\lambda = 2 / (1 - |z|^2)`, g the gradient by z and t the number of the step, for every point

    .. math:: r = \frac{g}{\lambda^2}, \qquad m \leftarrow \beta_1 m + (1 - \beta_1) r, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) \lambda^2 |r|^2

    .. math:: z' = \exp_z\Bigl(-\eta \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}\Bigr)

    and m is carried along from z to z' in parallel. v is one number for each point, so a step is about :math:`\eta`
    long in the distance of the ball, wherever the point is. Points stay within a length of 1 - 1e-5 (1 - 4e-3 in
    float32).

    Parameters
    ----------
    params : iterable of torch.Tensor or of dict
        Points (..., c), of length below 1; or groups of them with options of their own, as in ``torch.optim``.
    lr : float, default=1e-3
        :math:`\eta`.
    betas : tuple of float, default=(0.9, 0.999)
        How long the means reach back.
    eps : float, default=1e-8
        Keeps the ratio finite.

    Examples
    --------
    >>> import torch
    >>> z = torch.tensor([[0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    >>> optimizer = RiemannianAdam([z], lr=0.1)
    >>> z.square().sum().backward()
    >>> optimizer.step()
    >>> round(float(2 * torch.atanh(torch.tensor(0.5)) - 2 * torch.atanh(z.detach()[0, 0])), 6)
    0.1
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        checks.number(lr, "lr", 0.0, strict=True)
        checks.number(eps, "eps", 0.0, strict=True)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise OptionError(f"betas must be two numbers of at least 0 and below 1, got {betas!r}")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all points that have a gradient once.

        Parameters
        ----------
        closure : callable, default=None
            Computes the loss anew, which is then returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for points in group["params"]:
                if points.grad is not None:
                    self._move(points, points.grad, group)
        return loss

    def _move(self, points: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        if gradient.is_sparse:
            raise UnsupportedError("RiemannianAdam takes dense gradients; call .to_dense() on this one")
        state = self.state[points]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(points)
            state["exp_avg_sq"] = torch.zeros_like(points[..., 0])
        state["step"] += 1
        (beta1, beta2), square = group["betas"], state["exp_avg_sq"]
        z, g, mean = (part.movedim(-1, 0).contiguous() for part in (points, gradient, state["exp_avg"]))
        shrink = torch.rsub(dot(z, z, dim=0), 1).div_(2).square_()  # 1 / lambda^2
        mean = (mean * beta1).addcmul_(g, shrink, value=1 - beta1)
        square.mul_(beta2).addcmul_(dot(g, g, dim=0), shrink, value=1 - beta2)
        size = (square / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        factor = size.reciprocal_().mul_(-group["lr"] / (1 - beta1 ** state["step"]))
        there, velocity = flowed(z, mean * factor)  # a step is along m, so m stays along the geodesic
        state["exp_avg"] = velocity.div_(factor).movedim(0, -1)
        points.copy_(inside(there).movedim(0, -1))
