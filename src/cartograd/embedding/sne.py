"""SNE: Gaussian neighbourhoods in the data and in the map."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.embedding.entropic_input import EntropicInput
from cartograd.embedding.estimator import estimator
from cartograd.embedding.forces.edges import EdgeBlocks, sne_attraction, sne_attraction_loss
from cartograd.embedding.forces.exact import sne_repulsion
from cartograd.embedding.pairs import off_diagonal_distances
from cartograd.embedding.sharing import largest_over_all

STABLE = 0.35


@estimator
class SNE(EntropicInput):
    r"""Stochastic neighbour embedding (Hinton and Roweis, 2002).

    .. math:: \min_Z \; \lambda \sum_{ij} P_{ij} s_{ij} + \frac{\rho}{n} \sum_i \log \sum_{j \ne i} e^{-s_{ij}}, \qquad
        s_{ij} = |z_i - z_j|^2

    P is the symmetric entropic affinity. The repulsion is exact, over all pairs in tiles: time O(n^2), memory O(n).

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours each row is effectively similar to.
    sparsity : bool, default=True
        Whether only the three times `perplexity` nearest rows are looked at; otherwise all.
    max_iter_affinity : int, default=100
        Has no effect: the bandwidths are found to full precision.
    lr, max_iter, early_exaggeration_coeff, early_exaggeration_iter, repulsion_strength, metric, precomputed_knn
        See `NeighborEmbedding`.
    optimizer, optimizer_kwargs, scheduler, scheduler_kwargs, init, init_scaling, check_interval, callbacks
        See `AffinityMatcher`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> SNE(perplexity=5, max_iter=20).fit_transform(X).shape
    (40, 2)
    """

    perplexity: float = 30.0
    _: KW_ONLY
    sparsity: bool | None = True
    max_iter_affinity: int = 100
    affinity_in: Any = field(default=None, init=False)

    def _rate_of_phase(self, optimizer: type[torch.optim.Optimizer], exaggeration: float) -> float:
        """The usual rate, or the largest at which the quadratic attraction does not swing up.

        Its second derivative is at most 8 times the largest row sum of P; with momentum m a rate below
        2 (1 + m) / 8 of its inverse is stable.
        """
        rate = super()._rate_of_phase(optimizer, exaggeration)
        if self._learning_rate() != "auto" or not issubclass(optimizer, torch.optim.SGD):
            return rate
        return min(rate, STABLE / (exaggeration * largest_over_all(self, float(self.affinity_in_.row_sums().max()))))

    def _owns_rows(self) -> bool:
        return self._has_closed_form()

    def _compute_attractive_loss(self) -> Any:
        P, Z = self.affinity_in_, self.embedding_
        return (P.weights * ((Z[P.rows()] - Z[P.indices]) ** 2).sum(1)).sum()

    def _compute_repulsive_loss(self) -> Any:
        return torch.logsumexp(-off_diagonal_distances(self.embedding_), 1).sum() / len(self.embedding_)

    def _compute_attractive_gradients(self) -> torch.Tensor:
        return sne_attraction(self._layout, self._edges())

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        gradient, self._repulsion_loss = sne_repulsion(self._layout, self._part())
        return gradient

    def _edges(self) -> EdgeBlocks:
        if self.n_iter_ == 0 or not hasattr(self, "_blocks"):
            self._blocks = EdgeBlocks.of(self.affinity_in_)
        return self._blocks

    def _loss_now(self) -> float:
        if not self._has_closed_form():
            return super()._loss_now()
        attraction = float(sne_attraction_loss(self._layout, self._edges()))
        return attraction + self.repulsion_strength * float(self._repulsion_loss)

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_blocks", "_repulsion_loss")

    def _pull(self, s: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(s)

    def _push(self, s: torch.Tensor) -> torch.Tensor:
        return torch.softmax(-s, 1)
