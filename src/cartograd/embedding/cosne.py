"""CO-SNE: t-SNE in the Poincare ball."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch

from cartograd.affinity import checks
from cartograd.embedding.entropic_input import EntropicInput
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.embedding.forces.poincare import cosne_attraction, cosne_height, cosne_repulsion
from cartograd.embedding.heights import Heights
from cartograd.embedding.pairs import off_diagonal_distances
from cartograd.embedding.source import Source


@dataclass(eq=False, repr=False)
class COSNE(EntropicInput):
    perplexity: float = 30.0
    _: KW_ONLY
    gamma: float = 2.0
    learning_rate_for_h_loss: float = 1.0
    sparsity: bool | None = True
    max_iter_affinity: int = 100
    optimizer: Any = "RiemannianAdam"
    optimizer_kwargs: Any = None
    init: Any = "hyperbolic"
    init_scaling: float | None = 0.5
    affinity_in: Any = field(default=None, init=False)

    def _precision(self, source: Source) -> torch.dtype:
        return torch.float64

    def _affinity(self, source, y):
        P = super()._affinity(source, y)
        self._scale_of_heights, self._heights = Heights.of(source)
        self._blocks = EdgeBlocks.of(P)
        return P

    def _gradient(self):
        g = super()._gradient()
        if self._has_closed_form():
            height, self._height_loss = cosne_height(self._layout, self._heights)
            g = g.add_(height, alpha=self.learning_rate_for_h_loss)
        return g
    def _compute_attractive_gradients(self):
        g, self._att = cosne_attraction(self._layout, self._blocks, self.gamma)
        return g
    def _compute_repulsive_gradients(self):
        g, self._rep = cosne_repulsion(self._layout, self.gamma)
        return g
    def _loss_now(self):
        return float(self._att+self.repulsion_strength*self._rep.log()+self.learning_rate_for_h_loss*self._height_loss)
    def _compute_attractive_loss(self): pass
    def _compute_repulsive_loss(self): pass
