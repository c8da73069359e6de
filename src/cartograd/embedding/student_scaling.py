r"""Student's kernel of a map, scaled to be doubly stochastic: the output affinity of TSNEkhorn.

.. math:: Q_{ij} = \frac{1}{n} u_i w_{ij} u_j, \qquad w_{ij} = \frac{1}{1 + |z_i - z_j|^2}, \qquad w_{ii} = 0

with :math:`u = e^f` such that the rows of n Q sum to one. All of w is held, in tiles of rows: the input affinity has as
many numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from cartograd.neighbors import Graph
from cartograd.neighbors.workers import spread

TILE, GPU_TILE = 1 << 18, 1 << 26
CLOSE = 1e-5
"""Where all row sums are this near to one, nothing is scaled."""


class StudentKernel:
    """w of the points of a map.

    Parameters
    ----------
    Z : torch.Tensor
        (n, c).
    """

    def __init__(self, Z: torch.Tensor) -> None:
        self.Z, self.n, self.version = Z, len(Z), Z._version
        step = max(1, (TILE if Z.device.type == "cpu" else GPU_TILE) // max(self.n, 1))
        self.tiles = [slice(start, min(start + step, self.n)) for start in range(0, self.n, step)]
        planes = Z.T.contiguous()

        def kernel(rows: slice) -> torch.Tensor:
            apart = planes[0, rows, None] - planes[0]
            squared = apart.square_()
            for plane in planes[1:]:
                apart = plane[rows, None] - plane
                squared.addcmul_(apart, apart)
            squared.add_(1).reciprocal_().diagonal(rows.start).zero_()
            return squared

        self.w = list(spread(kernel, self.tiles))

    def _over_tiles(self, function: Callable[[slice, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        if len(self.tiles) == 1:
            return function(self.tiles[0], self.w[0])
        return torch.cat(list(spread(lambda i: function(self.tiles[i], self.w[i]), range(len(self.tiles)))))

    def scaled(self, u: torch.Tensor, updates: int) -> torch.Tensor:
        r"""u after at most so many updates :math:`u_i \leftarrow \sqrt{u_i / \sum_j w_{ij} u_j}`, (n,).

        That is :math:`f \leftarrow (f - \log \sum_j w_{ij} e^{f_j}) / 2`.
        """
        sums = self.row_sums(u)
        if u.device.type == "cpu" and float((u * sums - 1).abs().max()) < CLOSE:  # a GPU would have to wait for it
            return u
        for update in range(updates):
            u = (u / (self.row_sums(u) if update else sums)).sqrt_()
        return u

    def row_sums(self, u: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum_j w_{ij} u_j`, (n,)."""
        return self._over_tiles(lambda rows, w: torch.mv(w, u))

    def attraction(self, P: torch.Tensor) -> torch.Tensor:
        r"""The gradient of :math:`-\sum_{ij} P_{ij} \log Q_{ij}` for a symmetric P (n, n) and fixed u.

        .. math:: \nabla z_i = 4 \sum_j P_{ij} w_{ij} (z_i - z_j)
        """
        ones = torch.ones(self.n, 1, dtype=self.Z.dtype, device=self.Z.device)
        return self._pulls(lambda rows, w: (P[rows] * w) @ torch.cat([ones, self.Z], 1)).mul_(4)

    def repulsion(self, u: torch.Tensor) -> torch.Tensor:
        r"""The gradient of :math:`\sum_{ij} Q_{ij}` for fixed u.

        .. math:: \nabla z_i = -\frac{4}{n} u_i \sum_j w_{ij}^2 u_j (z_i - z_j)
        """
        right = torch.cat([u[:, None], u[:, None] * self.Z], 1)
        return self._pulls(lambda rows, w: w.square() @ right).mul_((-4 / self.n) * u[:, None])

    def cross_entropy(self, P: torch.Tensor | Graph, u: torch.Tensor) -> float:
        r""":math:`-\sum_{ij} P_{ij} \log Q_{ij}`."""
        f = torch.log(u)
        if isinstance(P, Graph):
            rows, columns = P.rows(), P.indices
            squared = (self.Z[rows] - self.Z[columns]).square().sum(1)
            terms = P.weights * (torch.log1p(squared) - f[rows] - f[columns] + math.log(self.n))
            return float(terms.sum(dtype=torch.float64))

        def of_tile(rows: slice, w: torch.Tensor) -> torch.Tensor:
            log_w = torch.log(torch.where(w > 0, w, 1.0))
            return (P[rows] * (math.log(self.n) - f[rows, None] - f - log_w)).sum(1, dtype=torch.float64)

        return float(self._over_tiles(of_tile).sum())

    def mass(self, u: torch.Tensor) -> float:
        r""":math:`\sum_{ij} Q_{ij}`."""
        return float((u * self.row_sums(u)).sum(dtype=torch.float64)) / self.n

    def _pulls(self, product: Callable[[slice, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Sums a_i (column 0) and b_i of a_ij z_j (the others) as a_i z_i - b_i, (n, c)."""
        sums = self._over_tiles(product)
        return sums[:, :1] * self.Z - sums[:, 1:]
