"""Attraction along the edges of a symmetric graph: every row gathers its own, so nothing is written twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.neighbors import Graph
from cartograd.neighbors.workers import spread

PIECE_EDGES = 1 << 16


@dataclass(frozen=True)
class RowPieces:
    """A graph cut into pieces of consecutive rows with about `PIECE_EDGES` edges each.

    Parameters
    ----------
    graph : Graph
        Symmetric weights.
    bounds : list of int
        The first row of each piece, and n.
    """

    graph: Graph
    bounds: list[int]

    @classmethod
    def of(cls, graph: Graph) -> RowPieces:
        """The pieces of a graph; they depend on it alone."""
        total = graph.n_edges
        marks = torch.arange(0, total, PIECE_EDGES, device=graph.device)
        rows = torch.searchsorted(graph.indptr, marks, right=True) - 1
        return cls(graph, sorted({0, *rows.tolist(), graph.n}))

    def pull(self, Z: torch.Tensor, slope: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        r"""The gradient of :math:`\sum_{ij} P_{ij} f(s_{ij})`, :math:`4 \sum_j P_{ij} f'(s_{ij}) (z_i - z_j)`, (n, c).

        Parameters
        ----------
        Z : torch.Tensor
            (n, c) points.
        slope : callable
            f', of squared distances (e,).
        """
        indptr, indices, weights = self.graph.indptr, self.graph.indices, self.graph.weights

        def piece(place: int) -> torch.Tensor:
            start, stop = self.bounds[place], self.bounds[place + 1]
            offsets = indptr[start : stop + 1]
            edges = slice(int(offsets[0]), int(offsets[-1]))
            own = torch.repeat_interleave(Z[start:stop], offsets.diff(), dim=0)
            apart = own - Z.index_select(0, indices[edges])
            strength = 4 * weights[edges] * slope(apart.square().sum(1))
            force = strength[:, None] * apart
            return torch.segment_reduce(force, "sum", offsets=offsets - offsets[0], axis=0, initial=0.0)

        return torch.cat(list(spread(piece, range(len(self.bounds) - 1))))
