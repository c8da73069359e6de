"""What SNE and its kin share: an input affinity of given perplexity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cartograd.affinity import checks
from cartograd.affinity.entropic_rows import solve_rows
from cartograd.core.checks import number
from cartograd.embedding.neighbor import NeighborEmbedding, default_of
from cartograd.embedding.neighbourhood import entropic_graph, fitting_perplexity, neighbours_for
from cartograd.embedding.sharing import own_joint
from cartograd.embedding.source import Source
from cartograd.neighbors import Graph
from cartograd.neighbors.intake import Given


class EntropicInput(NeighborEmbedding):
    r"""A neighbour embedding of the joint probabilities :math:`P = (P_{\cdot|\cdot} + P_{\cdot|\cdot}^T) / 2n`.

    Subclasses have the parameters `perplexity` and `sparsity`.
    """

    if TYPE_CHECKING:
        perplexity: float
        sparsity: bool | None

    def _check_affinities(self) -> None:
        """There is none but those of `perplexity` and `sparsity`."""

    def _check_data(self, given: Given, y: Any) -> None:
        super()._check_data(given, y)
        number(self.perplexity, "perplexity", 1.0)  # of one row, its number is what is wrong first
        if self.perplexity != default_of(type(self), "perplexity"):
            checks.perplexity_fits(self.perplexity, given.rows.count)

    def _searched(self, n: int) -> int:
        return neighbours_for(min(self.perplexity, max(n - 1, 1)), n, getattr(self, "sparsity", True))

    def _affinity(self, source: Source, y: Any) -> Graph:
        self.perplexity_ = fitting_perplexity(self.perplexity, source.n)
        k = neighbours_for(self.perplexity_, source.n, getattr(self, "sparsity", True))
        near = self._neighbourhood(source, k)
        with self.report_.phase("affinities"):
            if self._bounds is not None:
                return own_joint(self, near, self.perplexity_).to(dtype=self._precision())
            return entropic_graph(near, self.perplexity_).to(dtype=self._precision())

    def _kept_besides(self) -> dict[str, Any]:
        return {"perplexity": self.perplexity_}

    def _weights_of_new(self, distances: torch.Tensor) -> torch.Tensor:
        perplexity = min(self._placement.more["perplexity"], distances.shape[1])
        return torch.exp(solve_rows(distances.square(), perplexity))
