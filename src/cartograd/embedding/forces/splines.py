r"""B-splines on a regular grid: the weights of the nodes around a point, their slopes, and the symbol.

A spline of order p (degree p - 1) spreads a point over p nodes. Its weights are positive and add up to 1, and sums
:math:`\sum_k c_k B(x - k)` reproduce all polynomials of degree p - 1. The order is odd, so that the nodes lie evenly
around the one nearest to the point: 5, or 7 where the weights of a point and dimension are one vector of a CPU.
"""

from __future__ import annotations

import functools

import torch

ORDER = 5
"""Nodes for each point and dimension, where nothing else is said."""


@functools.cache
def polynomials(device: torch.device, order: int) -> torch.Tensor:
    r"""For each node the coefficients of its weight in the powers of t, and of its slope, (2 order, order) float64.

    With :math:`u = t + k - 1 - j` for the j-th node, Cox and de Boor's recursion is :math:`M_k(u) = \frac{u}{k - 1}
    M_{k-1}(u) + \frac{k - u}{k - 1} M_{k-1}(u - 1)`, and :math:`M_k'(u) = M_{k-1}(u) - M_{k-1}(u - 1)`.
    """
    values = torch.zeros(order + 1, order, dtype=torch.float64)  # row 0 is for the node before the first
    values[1, 0] = 1
    slopes = values[1:]
    for k in range(2, order + 1):
        offset = torch.arange(k - 1, -1, -1, dtype=torch.float64)[:, None]
        before, here = values[:k], values[1 : k + 1]
        slopes = before - here
        raised = torch.cat([torch.zeros(k, 1, dtype=torch.float64), slopes[:, :-1]], 1)  # times t
        values[1 : k + 1] = (raised + offset * slopes + k * here) / (k - 1)
    return torch.cat([values[1:], slopes]).to(device)


def weights(places: torch.Tensor, order: int = ORDER) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of the nodes, and their derivatives by the place.

    Parameters
    ----------
    places : torch.Tensor
        (m,) float64 t, at least 0 and below 1: where in its cell a point is.
    order : int, default=5
        The number of nodes.

    Returns
    -------
    weights, slopes : torch.Tensor
        (order, m) each, for the nodes from the first to the last.
    """
    powers = torch.ones(order, len(places), dtype=places.dtype, device=places.device)
    for k in range(1, order):
        torch.mul(powers[k - 1], places, out=powers[k])
    both = polynomials(places.device, order) @ powers
    return both[:order], both[order:]


def symbol(angles: torch.Tensor, order: int = ORDER) -> torch.Tensor:
    r""":math:`\sum_k B(k) \cos(k \theta)`: what spreading and gathering at the nodes does to a wave of this angle."""
    at_nodes = weights(torch.full((1,), 0.5, dtype=torch.float64, device=angles.device), order)[0][:, 0]
    terms = [weight * torch.cos((j - order // 2) * angles) for j, weight in enumerate(at_nodes)]
    return torch.stack(terms).sum(0)
