"""`NegativeSamplingNeighborEmbedding`: repulsion from a few points drawn anew at every step."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from cartograd.embedding.estimator import estimator
from cartograd.embedding.neighbor import NeighborEmbedding
from cartograd.embedding.sampling import Complement
from cartograd.neighbors import Graph


@estimator
class NegativeSamplingNeighborEmbedding(NeighborEmbedding):
    r"""A neighbour embedding whose repulsion is estimated from negatives, points drawn uniformly at every step.

    The draws of a step are in ``self.neg_indices_``, (n, n_negatives); they depend on the seed, the step and the row
    alone.

    Parameters
    ----------
    n_negatives : int, default=5
        Points drawn for each row at each step.
    discard_NNs : bool, default=False
        Whether neighbours in the graph are never drawn; the row itself never is.
    early_exaggeration_coeff : float, default=1.0
        See `NeighborEmbedding`, and there for all other parameters.
    """

    n_negatives: int | None = field(default=5, kw_only=True)
    discard_NNs: bool = field(default=False, kw_only=True)
    early_exaggeration_coeff: float | None = field(default=1.0, kw_only=True)

    def _before_step(self, step: int) -> None:
        if step == 0:
            self._complement = self._allowed()
        super()._before_step(step)
        self._step = step
        self._draw(step)

    def _allowed(self) -> Complement:
        """The points that each row may be pushed away from."""
        n, device = len(self._layout), self._layout.device
        if self.discard_NNs and isinstance(self.affinity_in_, Graph):
            allowed = Complement.of_neighbours(self.affinity_in_)
            allowed.check(1, "n_negatives")
            return allowed
        return Complement.of_self(n, device)

    def _draw(self, step: int) -> None:
        """Draw the negatives of a step."""
        own = self._own_rows()
        self.neg_indices_ = self._complement.draw_all(int(self.n_negatives or 0), self._seed, step, own.start, own.stop)

    def _sampled_pairs(self) -> int:
        return int(self.n_negatives or 0)

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_complement", "_step", "neg_indices_")

    def _sampled(self, Z: Any) -> Any:
        """Squared distances of own points to their negatives, (m, n_negatives), of a tensor of either kind."""
        return ((Z[self._own_rows()][:, None, :] - Z[self.neg_indices_]) ** 2).sum(2)
