"""t-SNE: Gaussian neighbourhoods in the data, Student's distribution in the map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.embedding.entropic_input import EntropicInput
from cartograd.embedding.estimator import estimator
from cartograd.embedding.forces import compiled, compiled_edges, compiled_pairs
from cartograd.embedding.forces import gpu as on_gpu
from cartograd.embedding.forces.choice import choose
from cartograd.embedding.forces.compiled_edges import CompiledEdges
from cartograd.embedding.forces.edges import EdgeBlocks, tsne_attraction, tsne_attraction_loss
from cartograd.embedding.forces.exact import tsne_repulsion
from cartograd.embedding.forces.fft import FFTRepulsion, by_kernels
from cartograd.embedding.gains import DescentWithGains
from cartograd.embedding.kernel_rows import HOOKS, inherited, served
from cartograd.embedding.optimisers import make_optimiser, make_scheduler
from cartograd.embedding.pairs import off_diagonal_distances
from cartograd.embedding.parametric import Parametric
from cartograd.embedding.placement import mean_of_neighbours, refine
from cartograd.embedding.source import Source
from cartograd.embedding.tsne_device import TsneOnDevice
from cartograd.errors import OptionError
from cartograd.kernels import cpu
from cartograd.neighbors import Graph

FORCES = (*HOOKS, *(
    "_gradient _compute_loss _compute_attractive_loss _compute_repulsive_loss _compute_attractive_gradients "
    "_compute_repulsive_gradients"
).split())  # fmt: skip
"""Methods that make up the layout: a subclass that writes one anew takes every step by itself."""
SETTLED, SETTLED_STEPS = 3e-4, 100
"""The map has settled where so many steps lower its loss by less than this share."""


@estimator
class TSNE(EntropicInput, Parametric):
    r"""t-distributed stochastic neighbour embedding (van der Maaten and Hinton, 2008).

    .. math:: \min_Z \; \lambda \sum_{ij} P_{ij} \log(1 + s_{ij}) + \rho \log \sum_{i \ne j} \frac{1}{1 + s_{ij}},
        \qquad s_{ij} = |z_i - z_j|^2

    which is the Kullback-Leibler divergence of P and Student's Q, up to a constant. P is the symmetric entropic
    affinity. When early exaggeration is over the learning rate and the momentum change with it. Where `lr` and
    `optimizer_kwargs` are "auto", each coordinate has a gain besides, which rises as long as it goes on downhill.

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours each row is effectively similar to.
    method : str, default="auto"
        How the repulsion is computed: "exact" over all pairs in tiles, time O(n^2), memory O(n); "fft" by
        interpolation on a grid, time O(n), for 1 to 3 dimensions; "auto" for the faster of both.
    sparsity : bool, default=True
        Whether only the three times `perplexity` nearest rows are looked at; otherwise all.
    max_iter_affinity : int, default=100
        Has no effect: the bandwidths are found to full precision.
    early_exaggeration_coeff : float, default=12.0
        :math:`\lambda` of the first steps.
    early_exaggeration_iter : int, default=250
        The number of those steps.
    max_iter : int or "auto", default="auto"
        Steps; "auto" for 750 as in openTSNE, fewer where 100 of them lower the divergence by less than 3 in 10,000.
    lr, repulsion_strength, metric, precomputed_knn, learning_rate, early_exaggeration
        See `NeighborEmbedding`.
    optimizer, optimizer_kwargs, scheduler, scheduler_kwargs, init, init_scaling, check_interval, callbacks
        See `AffinityMatcher`.
    encoder, decoder, hidden_sizes, batch_size, n_epochs, patience, min_desired_loss, timeout, training
        See `Parametric`.

    Attributes
    ----------
    kl_divergence_ : float
        The divergence of the finished map; of one with an encoder, which samples pairs, there is none.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> TSNE(perplexity=5, max_iter=20).fit_transform(X).shape
    (40, 2)
    """

    perplexity: float = 30.0
    _: KW_ONLY
    method: str = "auto"
    sparsity: bool | None = True
    max_iter_affinity: int = 100
    early_exaggeration_coeff: float | None = 12.0
    early_exaggeration_iter: int | None = 250
    max_iter: int | str = "auto"
    affinity_in: Any = field(default=None, init=False)

    def _check_affinities(self) -> None:
        super()._check_affinities()
        if self.method == "fft" and self.n_components > 3:
            raise OptionError(
                f"method='fft' draws maps of 1 to 3 dimensions, got n_components={self.n_components}; use 'exact'"
            )

    def _affinity(self, source: Source, y: Any) -> Graph:
        if self.encoder is None and served(source.n, self.n_components, self._precision(), source.rows.device):
            cpu.prepare(compiled_edges.MODULE, compiled.MODULE, compiled_pairs.MODULE)  # while the search is at work
        return super()._affinity(source, y)

    def _optimise(self) -> None:
        if self.encoder is not None:
            self.__dict__.pop("kl_divergence_", None)  # of an earlier fit
            super()._optimise()
            return
        n, c = self._layout.shape
        chosen = choose(n, c) if self.method == "auto" else self.method
        self.report_["repulsion"] = chosen
        part = self._part()
        self._repulsion: Any = FFTRepulsion(part) if chosen == "fft" else lambda Z: tsne_repulsion(Z, part)
        edges: Any = CompiledEdges if by_kernels(self._layout) else EdgeBlocks.of
        if on_gpu.served(self._layout) and part is None:
            self._repulsion, edges = on_gpu.repulsion(n, self.method), on_gpu.DeviceEdges
        self._blocks = edges(self.affinity_in_)
        P = self.affinity_in_.weights.to(torch.float64)
        self._entropy = float(torch.xlogy(P, P).sum())
        super()._optimise()
        self.kl_divergence_ = self.loss_[-1] if self.loss_ else float("nan")

    def _before_step(self, step: int) -> None:
        super()._before_step(step)
        optimiser = vars(self)["optimizer_"]
        if type(optimiser) is torch.optim.SGD and not optimiser.state and self._has_gains():  # a phase begins
            momentum = {"momentum": optimiser.param_groups[0]["momentum"]}
            self.optimizer_ = make_optimiser(DescentWithGains, [self._moved], self.lr_, momentum)
            steps = self._phase_length(step)
            self.scheduler_ = make_scheduler(self.scheduler, self.optimizer_, self.scheduler_kwargs, steps)

    def _usual_steps(self, n: int) -> int:
        return 750

    def _has_settled(self) -> bool:
        """Return whether `max_iter` is "auto" and 100 steps lower the divergence by less than 3 in 10,000."""
        apart = -(-SETTLED_STEPS // self.check_interval)
        first = len(self.loss_) - apart - 1
        if self.max_iter != "auto" or (first + 1) * self.check_interval <= (self.early_exaggeration_iter or 0):
            return False
        return self.loss_[first] - self.loss_[-1] < SETTLED * abs(self.loss_[-1])

    def _owns_rows(self) -> bool:
        return self.encoder is None and self._has_closed_form()

    def _many_steps(self, first: int) -> Callable[[int, Sequence[float]], None] | None:
        """Steps in which nobody looks in, on a GPU."""
        if not (isinstance(vars(self).get("_blocks"), on_gpu.DeviceEdges) and inherited(type(self), TSNE, FORCES)):
            return None
        self._before_step(first)
        return self._take if type(self.optimizer_) is DescentWithGains else None

    def _take(self, first: int, rates: Sequence[float]) -> None:
        if "_stepper" not in vars(self):
            self._stepper = TsneOnDevice(self._blocks, self._repulsion)
        kept, Z = self.optimizer_.state[self._layout], self._layout
        if not kept:
            kept["velocity"], kept["gains"] = torch.zeros_like(Z), torch.ones_like(Z)
        momentum = self.optimizer_.param_groups[0]["momentum"]
        factors = self.early_exaggeration_coeff_, float(self.repulsion_strength)
        self._stepper.advance(Z, kept, rates, momentum, *factors)
        self.n_iter_ = first + len(rates)

    def _has_gains(self) -> bool:
        """Whether all about the descent is left to this class."""
        given = (self._learning_rate(), self.optimizer_kwargs)
        return all(isinstance(one, str) and one == "auto" for one in given)

    def _compute_attractive_loss(self) -> Any:
        P, Z = self.affinity_in_, self.embedding_
        return (P.weights * torch.log1p(((Z[P.rows()] - Z[P.indices]) ** 2).sum(1))).sum()

    def _compute_repulsive_loss(self) -> Any:
        return torch.log((1 / (1 + off_diagonal_distances(self.embedding_))).sum())

    def _compute_attractive_gradients(self) -> torch.Tensor:
        edges = self._blocks
        return (
            edges.attraction(self._layout)
            if not isinstance(edges, EdgeBlocks)
            else tsne_attraction(self._layout, edges)
        )

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        gradient, self._pairs_sum = self._repulsion(self._layout)
        return gradient

    def _loss_now(self) -> float:
        """The divergence, exaggeration left out."""
        if not self._has_closed_form():
            return self._entropy + super()._loss_now()
        edges, Z = self._blocks, self._layout
        attraction = float(edges.loss(Z) if not isinstance(edges, EdgeBlocks) else tsne_attraction_loss(Z, edges))
        return (
            self._entropy + attraction + self.repulsion_strength * float(torch.log(self._pairs_sum)) / self._sharers()
        )

    def _batch_attraction(self, s: Any) -> Any:
        return torch.log1p(s).mean()

    def _batch_repulsion(self, s: Any) -> Any:
        """The logarithm of the sum over all pairs, estimated from those of the batch."""
        return torch.log((1 / (1 + s)).mean())

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_blocks", "_repulsion", "_stepper", "_pairs_sum", "_entropy")

    def _settle(self, indices: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Descend the divergence of each new row alone, among all fitted points."""
        fitted = self._placement
        Z = mean_of_neighbours(fitted.places, indices, weights)
        repulsion = self._field(fitted.places)

        def forces(rows: slice) -> Callable[[torch.Tensor, int], torch.Tensor]:
            edges = EdgeBlocks.of_lists(indices[rows], weights[rows])
            strength = self.repulsion_strength
            return lambda z, step: tsne_attraction(z, edges, fitted.places) + strength * repulsion(z)

        return refine(Z, forces, indices.shape[1] * Z.shape[1])

    def _field(self, places: torch.Tensor) -> Any:
        """The repulsion that all fitted points exert on a new one."""
        if self.n_components > 3:
            from cartograd.embedding.forces.exact import tsne_repulsion_at

            return lambda z: tsne_repulsion_at(z, places)[0]
        field_of = FFTRepulsion().field(places)
        return lambda z: field_of.repulsion_at(z)[0]
