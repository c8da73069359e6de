r"""The terms of CO-SNE, in the Poincare ball (Guo et al., 2022), with their gradients.

.. math:: D_{ij} = \operatorname{arccosh}\Bigl(1 + \frac{2 |z_i - z_j|^2}{(1 - |z_i|^2)(1 - |z_j|^2)}\Bigr)^2
    = 4 \operatorname{arsinh}(\sqrt{u_{ij}})^2, \qquad u_{ij} = \frac{|z_i - z_j|^2}{(1 - |z_i|^2)(1 - |z_j|^2)}

The second form keeps all digits where points are near each other. Its derivative by u,
:math:`4 \operatorname{arsinh}(\sqrt u) / \sqrt{u (1 + u)}`, is 4 where they meet; and

.. math:: \frac{\partial u_{ij}}{\partial z_i} = \frac{2}{1 - |z_i|^2} \Bigl(\frac{z_i - z_j}{1 - |z_j|^2} +
    u_{ij} z_i\Bigr).

Output affinities are :math:`Q_{ij} = \gamma / (D_{ij} + \gamma^2)`. All is meant for float64: near the rim a float32
has few digits of :math:`1 - |z|^2`.
"""

from __future__ import annotations

import torch

from cartograd.embedding.forces.edges import Block, EdgeBlocks
from cartograd.embedding.forces.exact import scaled
from cartograd.embedding.forces.tiles import Pairs, Tile, planes
from cartograd.kernels import gpu


def room(Z: torch.Tensor) -> torch.Tensor:
    r""":math:`1 - |z|^2` of each row, (n,)."""
    return 1 - Z.square().sum(1)


def hyperbolic(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """D and its derivative by u, for u >= 0 of any shape."""
    ends = torch.finfo(u.dtype)
    u = u.clamp(ends.tiny, ends.max)  # for the ratios below
    root, more = u.sqrt(), (1 + u).sqrt_()
    half = torch.log1p(root + u / (1 + more))  # arsinh(root), four times as fast
    return half.square().mul_(4), half.mul_(4).div_(root.mul_(more))


def _by_kernel(Z: torch.Tensor, points: torch.Tensor) -> bool:
    """Whether the sums of all pairs are computed by the kernel for the GPU: in the plane, in float64."""
    return Z.shape[1] == 2 and Z.dtype == points.dtype == torch.float64 and Z.is_cuda and gpu.served(Z)


def repulsion_sums(Z: torch.Tensor, points: torch.Tensor, own: bool, gamma: float) -> tuple[torch.Tensor, torch.Tensor]:
    r""":math:`\sum_j Q_{ij}`, (m,), and :math:`-\frac12` of its gradient by z_i, (m, c).

    Parameters
    ----------
    Z, points : torch.Tensor
        (m, c) and (n, c), within the unit ball.
    own : bool
        Whether both are the same rows; pairs of a row with itself are then left out.
    gamma : float
        The width of the Cauchy distribution.
    """
    if _by_kernel(Z, points):
        found: tuple[torch.Tensor, torch.Tensor] = gpu.load("poincare").repulsion_sums(Z, points, own, gamma)
        return found
    a = room(Z)
    b = 1 - planes(points).square().sum(0)
    sums, pulls = Z.new_empty(len(Z)), torch.empty_like(Z)

    def piece(tile: Tile) -> None:
        here = a[tile.rows, None]
        u = tile.squared.div_(here).div_(b)
        D, slope = hyperbolic(u)
        Q = tile.blank(gamma / D.add_(gamma**2), 0)
        strength = Q.square() * slope / gamma
        bent = (tile.blank(u, 0) * strength).sum(1, keepdim=True)
        sums[tile.rows] = Q.sum(1)
        pulls[tile.rows] = (tile.pulls(strength / b) + bent * Z[tile.rows]) / here

    Pairs(Z, points, own, buffers=4).each(piece)
    return sums, pulls


def cosne_repulsion(Z: torch.Tensor, gamma: float) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The gradient of :math:`\log \sum_{i \ne j} Q_{ij}`, and that sum.

    Parameters
    ----------
    Z : torch.Tensor
        (n, c), within the unit ball.
    gamma : float
        The width of the Cauchy distribution.

    Returns
    -------
    gradient : torch.Tensor
        (n, c).
    total : torch.Tensor
        The sum over all pairs, a float64 scalar.
    """
    sums, pulls = repulsion_sums(Z, Z, True, gamma)
    total = sums.to(torch.float64).sum()
    return scaled(pulls, -4.0, total), total


def cosne_repulsion_at(queries: torch.Tensor, points: torch.Tensor, gamma: float) -> tuple[torch.Tensor, torch.Tensor]:
    r"""For each query the gradient of :math:`\log \sum_j Q_{ij}`, (m, c), and that sum, (m,); the points stay.

    Parameters
    ----------
    queries, points : torch.Tensor
        (m, c) and (n, c), within the unit ball.
    gamma : float
        The width of the Cauchy distribution.
    """
    sums, pulls = repulsion_sums(queries, points, False, gamma)
    return scaled(pulls, -2.0, sums), sums


def cosne_attraction(
    Z: torch.Tensor, edges: EdgeBlocks, gamma: float, points: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The gradient of :math:`-\sum P_{ij} \log Q_{ij}`, and its value.

    Parameters
    ----------
    Z : torch.Tensor
        (n, c), within the unit ball.
    edges : EdgeBlocks
        P: symmetric, or edges that lead to other points.
    gamma : float
        The width of the Cauchy distribution.
    points : torch.Tensor, default=None
        (l, c) where the edges lead; None for Z itself.

    Returns
    -------
    gradient : torch.Tensor
        (n, c).
    loss : torch.Tensor
        A float64 scalar.
    """
    own, a = Z.T.contiguous(), room(Z)
    others, b = (own, a) if points is None else (points.T.contiguous(), room(points))
    factor = 4 if points is None else 2  # both ends of an edge, and the 2 of the derivative of u

    def piece(block: Block) -> torch.Tensor:
        here, there = block.pair(a, b)
        apart, squared = block.apart(own, others)
        u = squared / (here * there)
        D, slope = hyperbolic(u)
        strength = block.weights * slope / (D + gamma**2)
        pulls = torch.stack([(part * (strength / there)).sum(1) for part in apart], 1)
        bent = (strength * u).sum(1, keepdim=True) * Z[block.rows]
        loss = (block.weights * torch.log(D / gamma + gamma)).sum(1, keepdim=True)
        return torch.cat([(pulls + bent) * (factor / here), loss], 1)

    result = edges.each(piece, Z.shape[1] + 1, Z)
    return result[:, :-1], result[:, -1].to(torch.float64).sum()


def cosne_height(Z: torch.Tensor, squared_norms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The gradient of :math:`\frac{1}{n} \sum_i (|x_i|^2 - D(z_i, 0))^2`, and its value.

    A row far from the middle of the data shall be far from the middle of the ball; :math:`D(z, 0) = 4
    \operatorname{arsinh}(\sqrt{t / (1 - t)})^2` with :math:`t = |z|^2`.

    Parameters
    ----------
    Z : torch.Tensor
        (n, c), within the unit ball.
    squared_norms : torch.Tensor
        (n,), of the input rows.

    Returns
    -------
    gradient : torch.Tensor
        (n, c).
    loss : torch.Tensor
        A float64 scalar.
    """
    free = room(Z)
    D, slope = hyperbolic(Z.square().sum(1) / free)
    error = D - squared_norms
    gradient = (4.0 / len(Z)) * (error * slope / free.square())[:, None] * Z
    return gradient, error.to(torch.float64).square().mean()
