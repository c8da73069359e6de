r"""Forces along pairs that stay the same for a whole fit, from both ends of each.

The losses of PaCMAP are sums over pairs of functions of :math:`s = |z_i - z_j|^2` whose derivative is
:math:`a / (b + s)^2`; what they add to the gradient is

.. math:: \nabla z_i = 2 a \sum_j W_{ij} \frac{z_i - z_j}{(b + s_{ij})^2}

with :math:`W_{ij} = W_{ji}` how often i and j are a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.distributed import Part
from cartograd.distributed.edges import both_ends
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.neighbors import Graph

DENSE_ROWS = 100
"""Up to this many rows a matrix of all pairs is quicker than lists of them."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows.

    Parameters
    ----------
    edges : EdgeBlocks or None
        Half of W, every pair from both its ends: each row gathers its own, so nothing is written twice.
    matrix : torch.Tensor or None
        W itself, (n, n), where that is small.
    """

    edges: EdgeBlocks | None
    matrix: torch.Tensor | None

    @classmethod
    def of(cls, others: torch.Tensor, dtype: torch.dtype, part: Part | None = None) -> Pairs:
        """The pairs of each row i with row i of `others`, (n, m) int64; those are of one process's `part` if given."""
        if part is not None:
            graph = both_ends(part.ranks, part.bounds, others, dtype)
            return cls(None, 2 * graph.to_dense()) if graph.n <= DENSE_ROWS else cls(EdgeBlocks.of(graph), None)
        n, m = others.shape
        rows = torch.arange(n, device=others.device)[:, None].expand(n, m).reshape(-1)
        columns = others.reshape(-1)
        halves = torch.full((2 * n * m,), 0.5, dtype=dtype, device=others.device)
        graph = Graph.from_edges(torch.cat([rows, columns]), torch.cat([columns, rows]), halves, n)
        return cls(None, 2 * graph.to_dense()) if n <= DENSE_ROWS else cls(EdgeBlocks.of(graph), None)

    def gradient(self, Z: torch.Tensor, a: float, b: float) -> torch.Tensor:
        """The gradient of the pairs' loss whose derivative is a / (b + s)^2, (n, c), at the points Z (n, c)."""
        if self.edges is not None:
            return self.edges.pull(Z, lambda s: a / s.add_(b).square_())
        assert self.matrix is not None
        apart = Z.T[:, :, None] - Z.T[:, None, :]
        strength = self.matrix / apart.square().sum(0).add_(b).square_()
        return apart.mul_(strength).sum(2).T.mul(2 * a)
