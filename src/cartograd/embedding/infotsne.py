"""InfoTSNE: t-SNE's attraction with a contrastive estimate of its repulsion."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.embedding.entropic_sampled import EntropicSampled
from cartograd.embedding.estimator import estimator
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.embedding.parametric import Parametric
from cartograd.embedding.placement import ordered_sum
from cartograd.embedding.sampled_forces import push_both_ends
from cartograd.embedding.sampled_rows import Kind


@estimator
class InfoTSNE(EntropicSampled, Parametric):
    r"""t-SNE with the InfoNCE loss (Damrich, Böhm, Hamprecht and Kobak, 2023).

    .. math:: \min_Z \; \lambda \sum_{ij} P_{ij} \log(1 + s_{ij})
        + \frac{1}{n} \sum_i \log \sum_{j \in \mathrm{Neg}(i)} \frac{1}{1 + s_{ij}}, \qquad s_{ij} = |z_i - z_j|^2

    P is the symmetric entropic affinity; the negatives are drawn anew at every step.

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours each row is effectively similar to.
    sparsity : bool, default=True
        Whether only the three times `perplexity` nearest rows are looked at; otherwise all.
    n_negatives : int, default=300
        Points drawn for each row at each step.
    max_iter : int, default=1000
        Steps.
    max_iter_affinity : int, default=100
        Has no effect: the bandwidths are found to full precision.
    early_exaggeration_coeff : float, default=12.0
        :math:`\lambda` of the first steps.
    early_exaggeration_iter : int, default=250
        The number of those steps.
    scheduler : str or class, default="LinearLR"
        How the learning rate falls: to 0 over each phase.
    lr, discard_NNs, repulsion_strength, metric, precomputed_knn, learning_rate, early_exaggeration
        See `NegativeSamplingNeighborEmbedding`.
    optimizer, optimizer_kwargs, scheduler_kwargs, init, init_scaling, check_interval, backend, callbacks, n_components
        See `AffinityMatcher`.
    encoder, decoder, hidden_sizes, batch_size, n_epochs, patience, min_desired_loss, timeout, training
        See `Parametric`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> InfoTSNE(perplexity=5, max_iter=20, n_negatives=10).fit_transform(X).shape
    (40, 2)
    """

    perplexity: float = 30.0
    _: KW_ONLY
    sparsity: bool | None = True
    n_negatives: int | None = 300
    max_iter: int = 1000
    max_iter_affinity: int = 100
    early_exaggeration_coeff: float | None = 12.0
    early_exaggeration_iter: int | None = 250
    scheduler: Any = "LinearLR"
    affinity_in: Any = field(default=None, init=False)

    def _kind(self) -> Kind:
        return Kind(c=1.0, contrast=True, count=int(self.n_negatives or 0))

    def _usual(self) -> type:
        return InfoTSNE

    def _compute_attractive_loss(self) -> Any:
        P, Z = self.affinity_in_, self.embedding_
        s = ((Z[P.rows()] - Z[P.indices]) ** 2).sum(1)
        return (P.weights * torch.log1p(s)).sum()

    def _compute_repulsive_loss(self) -> Any:
        w = 1 / (1 + self._sampled(self.embedding_))
        return torch.log(w.sum(1)).sum() / len(self._layout)

    def _compute_attractive_gradients(self) -> torch.Tensor:
        if "_blocks" not in vars(self):
            self._blocks = EdgeBlocks.of(self.affinity_in_)
        return self._blocks.pull(self._layout, self._pull)

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        n = len(self._layout)

        def slope(s: torch.Tensor) -> torch.Tensor:
            w = s.add_(1).reciprocal_()
            return w.square() * (-1 / (n * w.sum(1, keepdim=True)))

        return push_both_ends(self._layout, self.neg_indices_, slope, self._part())

    def _batch_attraction(self, s: Any) -> Any:
        return torch.log1p(s).mean()

    def _batch_repulsion(self, s: Any) -> Any:
        return torch.log((1 / (1 + s)).sum(1)).mean()

    def _pull(self, s: torch.Tensor) -> torch.Tensor:
        return 1 / (1 + s)

    def _push(self, s: torch.Tensor) -> torch.Tensor:
        w = 1 / (1 + s)
        return w * w / ordered_sum(w)[:, None]
