"""`LogGraph`: the logarithms of a graph's weights, which a `Graph` (weights not negative) cannot hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.neighbors import Graph


@dataclass(frozen=True)
class LogGraph:
    """What a sparse affinity gives with ``log=True``.

    Parameters
    ----------
    graph : Graph
        The affinity itself.
    weights : torch.Tensor
        (e,), the logarithms of ``graph.weights``, right even where those are too small for their type.
    """

    graph: Graph
    weights: torch.Tensor

    @property
    def indptr(self) -> torch.Tensor:
        """(n + 1,) int64, where each row begins."""
        return self.graph.indptr

    @property
    def indices(self) -> torch.Tensor:
        """(e,) int64, the columns."""
        return self.graph.indices

    def exp(self) -> Graph:
        """The affinity itself."""
        return self.graph

    def to_dense(self) -> torch.Tensor:
        """The (n, n) matrix of logarithms, minus infinity where there is no edge."""
        n = self.graph.n
        dense = torch.full((n, n), -torch.inf, dtype=self.weights.dtype, device=self.weights.device)
        dense[self.graph.rows(), self.indices] = self.weights
        return dense


def from_neighbours(indices: torch.Tensor, log_weights: torch.Tensor, log: bool) -> Graph | LogGraph:
    """The graph of each row's k neighbours (n, k) with the logarithms of their weights (n, k)."""
    columns, order = torch.sort(indices, dim=1)
    log_weights = log_weights.gather(1, order).reshape(-1)
    n, k = indices.shape
    indptr = torch.arange(n + 1, device=indices.device) * k
    graph = Graph(indptr, columns.reshape(-1), log_weights.exp())
    return LogGraph(graph, log_weights) if log else graph
