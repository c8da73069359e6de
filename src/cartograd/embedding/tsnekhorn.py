"""TSNEkhorn: doubly stochastic affinities in the data and in the map."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.affinity import SymmetricEntropicAffinity
from cartograd.affinity.data import plain
from cartograd.affinity.recorded import squared_distances
from cartograd.embedding.entropic_input import EntropicInput
from cartograd.embedding.estimator import estimator
from cartograd.embedding.forces.edges import EdgeBlocks, tsne_attraction
from cartograd.embedding.neighbourhood import fitting_perplexity, neighbours_for
from cartograd.embedding.placement import ordered_sum
from cartograd.embedding.source import Source
from cartograd.embedding.student_scaling import StudentKernel
from cartograd.neighbors import Graph

UPDATES = 5
"""Sinkhorn updates at a step, at most; they go on from where those of the step before ended."""


@estimator
class TSNEkhorn(EntropicInput):
    r"""t-SNE with doubly stochastic affinities (Van Assel, Vayer, Flamary and Courty, 2023).

    .. math:: \min_Z \; -\lambda \sum_{ij} P_{ij} \log Q_{ij} + \rho \sum_{ij} Q_{ij}, \qquad
        \log Q_{ij} = f_i + f_j - \log(1 + |z_i - z_j|^2) - \log n

    P is the symmetric entropic affinity (`SymmetricEntropicAffinity`): every row has the same perplexity and the same
    sum. f makes the rows of Q sum to 1/n too: at most 5 updates :math:`f_i \leftarrow (f_i - \log \sum_j e^{f_j} /
    (1 + |z_i - z_j|^2)) / 2` a step, from the f of the step before. A row is not paired with itself. The gradient is
    that of fixed f, which lacks nothing: with its second term the loss is the gap of inverse optimal transport, and
    that is stationary in f. All pairs are held: memory O(n^2), and the affinity takes time O(n^3), some ten Cholesky
    factors of matrices (2n, 2n).

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours each row is effectively similar to.
    symmetric_affinity : bool, default=True
        Whether P is the symmetric entropic affinity; otherwise it is that of t-SNE, of the nearest rows, which is
        found in no time. With `precomputed_knn` it is always the latter: the former needs all distances.
    unrolling : bool, default=False
        Whether f leads back to Z as well, through its updates: the engine differentiates them, and the second term of
        the loss is left out.
    tol_affinity_in : float, default=1e-3
        How far row sums and entropies of P may be off.
    max_iter_affinity_in : int, default=100
        Newton steps of P at most.
    lr_affinity_in : float, default=0.1
        Has no effect: P is found by Newton's method, which has no learning rate.
    eps_square_affinity_in : bool, default=True
        Has no effect, for the same reason.
    min_grad_norm : float, default=1e-4
        The fit ends where the gradient's norm is below this.
    distributed : bool or "auto", default=False
        See `NeighborEmbedding`.
    lr, max_iter, early_exaggeration_coeff, early_exaggeration_iter, repulsion_strength, metric, precomputed_knn
        See `NeighborEmbedding`.
    optimizer, optimizer_kwargs, scheduler, scheduler_kwargs, init, init_scaling, check_interval, callbacks
        See `AffinityMatcher`.
    n_components, device, verbose, random_state
        See `Estimator`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> TSNEkhorn(perplexity=5, max_iter=20).fit_transform(X).shape
    (40, 2)
    """

    perplexity: float = 30.0
    _: KW_ONLY
    symmetric_affinity: bool = True
    unrolling: bool = False
    tol_affinity_in: float = 1e-3
    max_iter_affinity_in: int = 100
    lr_affinity_in: float = 0.1
    eps_square_affinity_in: bool = True
    min_grad_norm: float = 1e-4
    distributed: Any = False
    affinity_in: Any = field(default=None, init=False)

    def _rate_of_phase(self, optimizer: type[torch.optim.Optimizer], exaggeration: float) -> float:
        """The usual rate without its floor: of few rows each has a large share of P, and would swing."""
        rate = super()._rate_of_phase(optimizer, exaggeration)
        if self._learning_rate() != "auto" or not issubclass(optimizer, torch.optim.SGD):
            return rate
        return min(rate, len(self._layout) / 4.0 / exaggeration)

    def _is_dense(self) -> bool:
        return self.symmetric_affinity and self.precomputed_knn is None

    def _memory(self, n: int, d: int, size: int) -> tuple[float, str]:
        if self._is_dense():
            # the second derivatives (2n, 2n) and their factor, and what they are made of
            return 8.0 * n * n * 17, "use symmetric_affinity=False, TSNE or fewer rows"
        return super()._memory(n, d, size)[0] + 3.0 * n * n * size, "use TSNE or fewer rows"

    # affinities

    def _affinity(self, source: Source, y: Any) -> Any:
        if not self._is_dense():
            return super()._affinity(source, y)
        self.perplexity_ = fitting_perplexity(self.perplexity, source.n)
        near = self._neighbourhood(source, source.n - 1)
        C = torch.zeros(source.n, source.n, dtype=torch.float64, device=near.indices.device)
        C.scatter_(1, near.indices, near.distances.to(torch.float64).square())
        with self.report_.phase("affinities"):
            affinity = SymmetricEntropicAffinity(
                self.perplexity_,
                tol=self.tol_affinity_in,
                max_iter=self.max_iter_affinity_in,
                metric="precomputed",
                verbose=self.verbose,
            )
            return affinity(C).to(self._precision())

    def _before_step(self, step: int) -> None:
        """Bring the scaling up to date with the layout."""
        super()._before_step(step)
        if step == 0:
            self._kernel: StudentKernel | None = None
            self._scaling = torch.ones(len(self._layout), dtype=self._layout.dtype, device=self._layout.device)
            self._blocks = EdgeBlocks.of(self.affinity_in_) if isinstance(self.affinity_in_, Graph) else None
        elif self.unrolling:
            self._scaling = self._unrolled
        if not self.unrolling:
            self._scaling = self._kernel_now().scaled(self._scaling, UPDATES)

    def _kernel_now(self) -> StudentKernel:
        """The kernel of the layout as it is, computed once for each."""
        if self._kernel is None or self._kernel.version != self._layout._version:
            self._kernel = StudentKernel(self._layout)
        return self._kernel

    def _carried(self) -> dict[str, torch.Tensor]:
        return {"scaling": self._unrolled if self.unrolling else self._scaling}

    def _carry_on(self, kept: dict[str, torch.Tensor]) -> None:
        self._scaling = self._unrolled = kept["scaling"].to(self._layout)

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_scaling", "_unrolled", "_kernel", "_blocks")

    # the loss, and its gradients

    def _log_Q(self) -> Any:
        """The logarithms of Q (those of the diagonal mean nothing), a Tensor."""
        log_w: Any = -torch.log1p(squared_distances(self.embedding_))
        f: Any = torch.log(self._scaling)
        if self.unrolling:
            others = log_w.masked_fill(torch.eye(len(f), dtype=torch.bool, device=f.device), -torch.inf)
            for _ in range(UPDATES):
                f = (f - torch.logsumexp(others + f, 1)) / 2
            self._unrolled = torch.exp(plain(f))
        return f[:, None] + f[None, :] + log_w - math.log(len(self._layout))

    def _compute_loss(self) -> Any:
        """The loss; the repulsion is in f where that is unrolled."""
        return (
            self.early_exaggeration_coeff_ * self._compute_attractive_loss()
            if self.unrolling
            else super()._compute_loss()
        )

    def _compute_attractive_loss(self) -> Any:
        P, log_Q = self.affinity_in_, self._log_Q()
        return -(P.weights * log_Q[P.rows(), P.indices]).sum() if isinstance(P, Graph) else -(P * log_Q).sum()

    def _compute_repulsive_loss(self) -> Any:
        Q = torch.exp(self._log_Q())
        return Q.sum() - torch.diagonal(Q).sum()

    def _compute_attractive_gradients(self) -> torch.Tensor:
        if self._blocks is not None:
            return tsne_attraction(self._layout, self._blocks)
        return self._kernel_now().attraction(self.affinity_in_)

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        return self._kernel_now().repulsion(self._scaling)

    def _has_closed_form(self) -> bool:
        return not self.unrolling and super()._has_closed_form()

    def _loss_now(self) -> float:
        if self.unrolling:
            return float(self._last_loss) / self.early_exaggeration_coeff_
        if not self._has_closed_form():
            return super()._loss_now()
        kernel = self._kernel_now()
        attraction = kernel.cross_entropy(self.affinity_in_, self._scaling)
        return attraction + self.repulsion_strength * kernel.mass(self._scaling)

    # new rows

    def _kept(self) -> tuple[Any, ...]:
        return (neighbours_for(self.perplexity_, self._source.n, True), *super()._kept()[1:])

    def _pull(self, s: torch.Tensor) -> torch.Tensor:
        return 1 / (1 + s)

    def _push(self, s: torch.Tensor) -> torch.Tensor:
        """That of Q scaled to sum to one over the row, as P does."""
        w = 1 / (1 + s)
        return w * w / ordered_sum(w)[:, None]
