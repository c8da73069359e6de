r"""The gradient of CO-SNE's loss for few points, from one matrix of all pairs.

The same as the sum of the terms in `forces.poincare`, in a third of the operations: for a few dozen points it is their
number that takes the time. The middle of the ball is one more point, to which every other has its height.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.embedding.forces.poincare import hyperbolic

MOST_ROWS = 256


@dataclass(frozen=True)
class DenseForces:
    r"""The loss :math:`\lambda A + \rho R + \eta H` of a few points, whose parts are those of `COSNE`.

    Parameters
    ----------
    P : torch.Tensor
        (n, n + 1), symmetric, the last column zero.
    heights : torch.Tensor
        (n,).
    gamma : float
        The width of the Cauchy distribution.
    """

    P: torch.Tensor
    heights: torch.Tensor
    gamma: float

    @classmethod
    def of(cls, P: torch.Tensor, heights: torch.Tensor, gamma: float) -> DenseForces:
        """The forces of an affinity (n, n)."""
        return cls(torch.nn.functional.pad(P, (0, 1)), heights, gamma)

    def gradient(self, Z: torch.Tensor, attraction: float, repulsion: float, height: float) -> torch.Tensor:
        r"""The gradient at Z (n, c) with the weights :math:`\lambda, \rho, \eta` of the parts, (n, c).

        With k the derivative of the loss by D of each pair and :math:`e_{ij} = k_{ij} \, \partial D / \partial u_{ij}`,

        .. math:: \nabla z_i = \frac{4}{1 - |z_i|^2} \Bigl(\sum_j e_{ij} \frac{z_i - z_j}{1 - |z_j|^2} +
            z_i \sum_j e_{ij} u_{ij}\Bigr)
        """
        own, n = Z.T, len(Z)
        points = torch.nn.functional.pad(own, (0, 1))
        room = torch.rsub(torch.linalg.vecdot(points, points, dim=0), 1).reciprocal_()
        apart = own[:, :, None] - points[:, None, :]
        u = torch.linalg.vecdot(apart, apart, dim=0).mul_(room).mul_(room[:n, None])
        D, slope = hyperbolic(u)
        near = (D + self.gamma**2).reciprocal_()
        total = near[:, :n].sum() - n / self.gamma**2  # no point is paired with itself
        change = (near * (-repulsion / total)).add_(self.P, alpha=attraction).mul_(near)
        change[:, n] = (D[:, n] - self.heights).mul_(height / n)
        change.mul_(slope)
        pulls = apart.mul_(change * room).sum(2).addcmul_(own, change.mul_(u).sum(1))
        return pulls.mul_(4 * room[:n]).T
