"""LargeVis: a likelihood of edges, against sampled pairs that are none."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.embedding.entropic_sampled import EntropicSampled
from cartograd.embedding.estimator import estimator
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.embedding.parametric import Parametric
from cartograd.embedding.sampled_forces import push_both_ends
from cartograd.embedding.sampled_rows import Kind


@estimator
class LargeVis(EntropicSampled, Parametric):
    r"""LargeVis (Tang, Liu, Zhang and Mei, 2016).

    .. math:: \min_Z \; -\lambda \sum_{ij} P_{ij} \log p_{ij}
        - \frac{\rho}{n} \sum_i \sum_{j \in \mathrm{Neg}(i)} \log(1 - p_{ij}), \qquad p_{ij} = \frac{1}{2 + s_{ij}}

    with :math:`s_{ij} = |z_i - z_j|^2`, so p is q / (1 + q) of a Student kernel q. P is the symmetric entropic
    affinity; the negatives are drawn anew at every step.

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours each row is effectively similar to.
    sparsity : bool, default=True
        Whether only the three times `perplexity` nearest rows are looked at; otherwise all.
    n_negatives : int, default=5
        Points drawn for each row at each step.
    max_iter : int, default=1000
        Steps.
    max_iter_affinity : int, default=100
        Has no effect: the bandwidths are found to full precision.
    scheduler : str or class, default="LinearLR"
        How the learning rate falls: to 0 over the steps.
    lr, discard_NNs, early_exaggeration_coeff, early_exaggeration_iter, repulsion_strength, metric, precomputed_knn
        See `NegativeSamplingNeighborEmbedding`.
    optimizer, optimizer_kwargs, scheduler_kwargs, init, init_scaling, check_interval, backend, callbacks, n_components
        See `AffinityMatcher`.
    encoder, decoder, hidden_sizes, batch_size, n_epochs, patience, min_desired_loss, timeout, training
        See `Parametric`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> LargeVis(perplexity=5, max_iter=20, n_negatives=5).fit_transform(X).shape
    (40, 2)
    """

    perplexity: float = 30.0
    _: KW_ONLY
    sparsity: bool | None = True
    n_negatives: int | None = 5
    max_iter: int = 1000
    max_iter_affinity: int = 100
    scheduler: Any = "LinearLR"
    affinity_in: Any = field(default=None, init=False)

    def _kind(self) -> Kind:
        return Kind(c=2.0, contrast=False, count=int(self.n_negatives or 0))

    def _usual(self) -> type:
        return LargeVis

    def _compute_attractive_loss(self) -> Any:
        P, Z = self.affinity_in_, self.embedding_
        s = ((Z[P.rows()] - Z[P.indices]) ** 2).sum(1)
        return (P.weights * torch.log(2 + s)).sum()

    def _compute_repulsive_loss(self) -> Any:
        s = self._sampled(self.embedding_)
        return (torch.log(2 + s) - torch.log1p(s)).sum() / len(self._layout)

    def _compute_attractive_gradients(self) -> torch.Tensor:
        if "_blocks" not in vars(self):
            self._blocks = EdgeBlocks.of(self.affinity_in_)
        return self._blocks.pull(self._layout, self._pull)

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        n = len(self._layout)
        return push_both_ends(self._layout, self.neg_indices_, lambda s: -self._push(s) / n, self._part())

    def _batch_attraction(self, s: Any) -> Any:
        return torch.log(2 + s).mean()

    def _batch_repulsion(self, s: Any) -> Any:
        return (torch.log(2 + s) - torch.log1p(s)).sum(1).mean()

    def _pull(self, s: torch.Tensor) -> torch.Tensor:
        return 1 / (2 + s)

    def _push(self, s: torch.Tensor) -> torch.Tensor:
        return 1 / ((1 + s) * (2 + s))

    def _push_on_new(self, s: torch.Tensor) -> torch.Tensor:
        return self._push(s) * (int(self.n_negatives or 0) / s.shape[1])
