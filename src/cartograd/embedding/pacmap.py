"""PaCMAP: near, mid-near and far pairs of rows, drawn once, whose weights change from phase to phase."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.affinity import PACMAPAffinity, far_pairs, mid_near_pairs
from cartograd.affinity.pacmap import EXTRA_CANDIDATES
from cartograd.affinity.pairs import drawn_mid_near, local_scales, rescaled_neighbours
from cartograd.core.lazy import lazy_attribute
from cartograd.embedding import device_descent, device_rows, pair_rows
from cartograd.embedding.device_rows import PairsOnDevice
from cartograd.embedding.estimator import estimator
from cartograd.embedding.kernel_rows import HOOKS, inherited, served
from cartograd.embedding.negative import NegativeSamplingNeighborEmbedding
from cartograd.embedding.neighbourhood import Neighbourhood, found_or_given
from cartograd.embedding.pair_forces import Pairs
from cartograd.embedding.pair_rows import PairRows
from cartograd.embedding.parametric import Parametric
from cartograd.embedding.parametric_batches import Objective, PairObjective
from cartograd.embedding.reduction import DIMENSIONS, reduced
from cartograd.embedding.sampling import Complement
from cartograd.embedding.source import TRUE_DISTANCE, Source, searchable
from cartograd.embedding.spread_source import SpreadSource, ranked_by_all
from cartograd.errors import OptionError
from cartograd.kernels import cpu
from cartograd.neighbors import Graph
from cartograd.neighbors.rows import Rows

NEAR, MID, FAR = (10.0, 11.0), (1e4, 10001.0), (1.0, 2.0)
"""a and b of the losses' derivatives a / (b + s)^2 by the squared distance s (that of far pairs is negative)."""
FIRST_MID_WEIGHT = 1000.0
PULL_ON_NEW = 6.0
"""The weights of a new row's near pairs, together: a step of size 1 then leads about to where they meet."""
KEPT_FOR_FIT = ("_pairs", "_rows", "_reciprocals", "near_indices_", "mid_near_indices_", "_searched_in", "_reduction")

FORCES = (
    "_gradient _compute_loss _compute_attractive_loss _compute_repulsive_loss _compute_attractive_gradients "
    "_compute_repulsive_gradients _loss_now"
).split()
"""Methods that make up the layout: a subclass that writes one anew is laid out by torch."""


def phase_weights(step: int, iter_per_phase: int) -> tuple[float, float, float]:
    r"""The weights of near, mid-near and far pairs at a step (from 0).

    With p steps a phase: :math:`2,\; 1000 (1 - t / p) + 3 t / p,\; 1` for t < p; 3, 3, 1 for t < 2p; then 1, 0, 1.
    """
    if step < iter_per_phase:
        done = step / iter_per_phase
        return 2.0, FIRST_MID_WEIGHT * (1 - done) + 3.0 * done, 1.0
    return (3.0, 3.0, 1.0) if step < 2 * iter_per_phase else (1.0, 0.0, 1.0)


def fitting_pairs(n: int, near: int, mid: int, far: int) -> tuple[int, int, int]:
    """How many near, mid-near and far pairs each of n rows gets: as asked for, or in the same proportion fewer.

    Where they are more than the other rows, as in the PaCMAP package; with a warning where the near ones are fewer too.
    """
    total = near + mid + far
    if total < n:
        return near, mid, far
    kept = max(1, n * near // total)
    if kept < near:
        message = f"n_neighbors={near} with its mid-near and far pairs is too large for {n} different rows: {kept} used"
        warnings.warn(message, UserWarning, stacklevel=2)
    return min(near, kept), n * mid // total, max(1, n * far // total)


@estimator
class PACMAP(NegativeSamplingNeighborEmbedding, Parametric):
    r"""Pairwise controlled manifold approximation (Wang, Huang, Rudin and Shaposhnik, 2021).

    .. math:: \min_Z \; w_{NB} \sum_{near} \frac{d_{ij}}{10 + d_{ij}} + w_{MN} \sum_{mid-near} \frac{d_{ij}}{10^4 +
        d_{ij}} + \rho \, w_{FP} \sum_{far} \frac{1}{1 + d_{ij}}, \qquad d_{ij} = 1 + |z_i - z_j|^2

    Pairs are drawn once, as in the PaCMAP package. Near: the `n_neighbors` of least distance rescaled by the density
    (`PACMAPAffinity`). Mid-near: the second nearest of six rows drawn at random. Far: rows that are no near pair. The
    weights (NB, MN, FP) at step t of phases of p = `iter_per_phase` steps: 2, 1000 (1 - t / p) + 3 t / p, 1; then
    3, 3, 1; from step 2p on 1, 0, 1. Rows of more than 100 dimensions are compared in their 100 leading principal
    components where the metric is Euclidean, as in the package. Works from two rows on: where there are too few for all
    pairs, each kind has fewer.

    Parameters
    ----------
    n_neighbors : int, default=10
        Near pairs of each row.
    MN_ratio : float, default=0.5
        Mid-near pairs for each near one.
    FP_ratio : float, default=2.0
        Far pairs for each near one.
    n_negatives : int, default=None
        The number of far pairs of each row, where it is not FP_ratio times `n_neighbors`.
    discard_NNs : bool, default=True
        Whether far pairs are never near pairs.
    iter_per_phase : int, default=100
        The length of the first two phases; the third takes the rest of `max_iter`.
    max_iter : int, default=450
        Steps.
    lr : float or "auto", default=1.0
        The learning rate.
    optimizer : str or class, default="Adam"
        An optimiser of ``torch.optim``.
    optimizer_kwargs : dict, default=None
        Its keyword arguments.
    early_exaggeration_coeff, early_exaggeration_iter, repulsion_strength, metric, precomputed_knn, learning_rate
        See `NegativeSamplingNeighborEmbedding`; `precomputed_knn` had best `n_neighbors` + 50 columns, among which
        near pairs are chosen.
    scheduler, scheduler_kwargs, init, init_scaling, check_interval, backend, callbacks, n_components, random_state
        See `AffinityMatcher`.
    encoder, decoder, hidden_sizes, batch_size, n_epochs, patience, min_desired_loss, timeout, training
        See `Parametric`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(60, 5)
    >>> PACMAP(max_iter=20, iter_per_phase=5).fit_transform(X).shape
    (60, 2)
    """

    n_neighbors: int = 10
    _: KW_ONLY
    MN_ratio: float = 0.5
    FP_ratio: float = 2.0
    n_negatives: int | None = None
    discard_NNs: bool = True
    iter_per_phase: int = 100
    max_iter: int = 450
    lr: Any = 1.0
    optimizer: Any = "Adam"
    optimizer_kwargs: Any = None
    affinity_in: Any = field(default=None, init=False)

    def _check_affinities(self) -> None:
        if self.n_negatives is not None and self.FP_ratio != 2.0:
            raise OptionError("n_negatives is FP_ratio times n_neighbors: give one of them, not both")

    def _counts(self) -> tuple[int, int, int]:
        far = round(self.n_neighbors * self.FP_ratio) if self.n_negatives is None else self.n_negatives
        return self.n_neighbors, round(self.n_neighbors * self.MN_ratio), far

    def _searched(self, n: int) -> int:
        return min(n - 1, self.n_neighbors + EXTRA_CANDIDATES)

    def _memory(self, n: int, d: int, size: int) -> tuple[float, str]:
        needed, advice = super()._memory(n, d, size)
        # both ends of every pair: rows, columns and weights, and as much again while they are sorted
        pairs = 4.0 * n * sum(self._counts()) * (16 + size)
        return max(needed, pairs) + (n * DIMENSIONS * size if d > DIMENSIONS else 0.0), advice

    # pairs

    def _affinity(self, source: Source, y: Any) -> Graph:
        """The graph of near pairs; all three kinds are drawn here, once."""
        near, mid, far = fitting_pairs(source.n, *self._counts())
        self._searched_in, self._reduction = source, None
        self._by_kernel = self._served(source)
        if self._by_kernel and source.rows.device.type == "cpu":
            cpu.prepare(pair_rows.MODULE)  # while the search is at work
        if self.precomputed_knn is None:
            with self.report_.phase("reduction"):
                self._searched_in, self._reduction = reduced(source, self._seed)
        found = self._neighbourhood(self._searched_in, self._candidates(source.n, near))
        with self.report_.phase("affinities"):
            self.near_indices_ = self._near_pairs(found, near)
            self.mid_near_indices_ = self._mid_near(self._searched_in, mid)
            self.neg_indices_ = self._far(far)
            return self._graph(source.n, self._precision())

    def _near_pairs(self, found: Neighbourhood, count: int) -> torch.Tensor:
        part = self._part()
        if part is None:
            return PACMAPAffinity(count).neighbours(None, knn=(found.indices, found.distances))[0]
        scales = part.whole(local_scales(found.distances), "local scales")
        return rescaled_neighbours(found.indices, found.distances, count, scales)[0]

    def _graph(self, n: int, dtype: torch.dtype) -> Graph:
        """The near pairs as a graph; of own rows, where there are others."""
        near, part = self.near_indices_, self._part()
        first = 0 if part is None else part.own.start
        rows = torch.arange(first, first + len(near), device=near.device)[:, None].expand(near.shape).reshape(-1)
        return Graph.from_edges(rows, near.reshape(-1), torch.ones(len(rows), dtype=dtype, device=near.device), n)

    def _owns_rows(self) -> bool:
        return self.encoder is None and self._has_closed_form()

    def _served(self, source: Source) -> bool:
        """Whether the kernel for the CPU can lay out these rows: the forces are those it knows."""
        usual = self._has_closed_form() and inherited(type(self), PACMAP, FORCES)
        shape = source.n, self.n_components, self._precision(), source.rows.device
        size = served(*shape) or device_rows.served(*shape)
        alone = self._bounds is None or source.rows.device.type == "cpu"
        return size and usual and self.encoder is None and alone

    def _kinds(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.near_indices_, self.mid_near_indices_, self.neg_indices_

    @lazy_attribute
    def _rows(self) -> PairRows | PairsOnDevice | None:
        """The pairs as the kernel takes them; None where torch makes the map."""
        if self._by_kernel and self.near_indices_.is_cuda:
            return PairsOnDevice(self._kinds())
        return PairRows(self._kinds(), self._part()) if self._by_kernel and cpu.usable() else None

    @lazy_attribute
    def _pairs(self) -> list[Pairs]:
        """The pairs as torch takes them."""
        return [Pairs.of(others, self._layout.dtype, self._part()) for others in self._kinds()]

    def _candidates(self, n: int, near: int) -> int:
        """How many nearest rows are looked at: all that were given, where some were."""
        given = found_or_given(self.precomputed_knn, n, None)
        wanted = min(n - 1, near + EXTRA_CANDIDATES)
        return wanted if given is None else max(near, min(wanted, given[0].shape[1]))

    def _mid_near(self, source: Source, count: int) -> torch.Tensor:
        metric = source.metric
        true = TRUE_DISTANCE.get(metric, metric) if isinstance(metric, str) else metric
        part = self._part()
        own = None if part is None else part.own
        if isinstance(source, SpreadSource) and own is not None:
            rows = torch.arange(own.start, own.stop, device=source.rows.device)
            return drawn_mid_near(rows, source.n, count, self._seed, ranked_by_all(source))
        return mid_near_pairs(searchable(source.rows), count, self._seed, true, own).to(source.rows.device)

    def _far(self, count: int) -> torch.Tensor:
        near, part, n = self.near_indices_, self._part(), self._source.n
        if not self.discard_NNs or near.shape[1] >= n - 1:
            near = near[:, :0]  # where all others are near, near ones repel too: something has to
        return far_pairs(near, count, self._seed, 0 if part is None else part.own.start, n)

    def _allowed(self) -> Complement:
        return Complement.of_self(len(self._layout), self._layout.device)

    def _draw(self, step: int) -> None:
        """Far pairs are drawn once; what changes with the step are the weights."""
        self.weights_ = phase_weights(step, self.iter_per_phase)

    def _may_stop(self) -> bool:
        return super()._may_stop() and self.n_iter_ > 2 * self.iter_per_phase

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), *KEPT_FOR_FIT)

    # the loss, and its gradients

    def _squares(self, others: torch.Tensor) -> Any:
        Z: Any = self.embedding_
        return ((Z[self._own_rows()][:, None, :] - Z[others]) ** 2).sum(2)

    def _compute_attractive_loss(self) -> Any:
        near, mid, _ = self.weights_
        loss = near * (1 - NEAR[0] / (NEAR[1] + self._squares(self.near_indices_))).sum()
        if mid == 0 or self.mid_near_indices_.numel() == 0:
            return loss
        return loss + mid * (1 - MID[0] / (MID[1] + self._squares(self.mid_near_indices_))).sum()

    def _compute_repulsive_loss(self) -> Any:
        return self.weights_[2] * (FAR[0] / (FAR[1] + self._squares(self.neg_indices_))).sum()

    def _compute_attractive_gradients(self) -> torch.Tensor:
        near, mid, _ = self.weights_
        gradient = self._pairs[0].gradient(self._layout, near * NEAR[0], NEAR[1])
        return gradient if mid == 0 else gradient + self._pairs[1].gradient(self._layout, mid * MID[0], MID[1])

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        return self._pairs[2].gradient(self._layout, -self.weights_[2] * FAR[0], FAR[1])

    def _gradient(self) -> torch.Tensor:
        if self._rows is None:
            return super()._gradient()
        gradient, self._reciprocals = self._rows.gradient(self._layout, self._forces(self.weights_))
        return gradient

    def _forces(self, weights: tuple[float, float, float]) -> tuple[tuple[float, float], ...]:
        """a and b of the derivatives of all three kinds' losses, with these weights."""
        (near, mid, far), pull, push = weights, self.early_exaggeration_coeff_, float(self.repulsion_strength)
        return (near * NEAR[0] * pull, NEAR[1]), (mid * MID[0] * pull, MID[1]), (-far * FAR[0] * push, FAR[1])

    def _many_steps(self, first: int) -> Callable[[int, Sequence[float]], None] | None:
        """Steps in which nobody looks in, on a GPU."""
        if not isinstance(self._rows, PairsOnDevice) or not inherited(type(self), PACMAP, (*HOOKS, "_draw")):
            return None
        self._before_step(first)
        return self._take if device_descent.served(self.optimizer_) else None

    def _take(self, first: int, rates: Sequence[float]) -> None:
        assert isinstance(self._rows, PairsOnDevice)
        steps = range(first, first + len(rates))
        forces = [self._forces(phase_weights(step, self.iter_per_phase)) for step in steps]
        self._rows.advance(self.optimizer_, rates, forces)
        self.n_iter_ = first + len(rates)

    def _loss_now(self) -> float:
        if self._rows is None:
            return super()._loss_now()
        near, mid, far = self.weights_
        inverse = self._reciprocals  # of the same layout: the gradient comes first
        loss = near * (self.near_indices_.numel() - NEAR[0] * inverse[0])
        loss += mid * (self.mid_near_indices_.numel() - MID[0] * inverse[1])
        return loss + self.repulsion_strength * far * FAR[0] * inverse[2]

    # with an encoder

    def _objective(self) -> Objective:
        kinds = [self.near_indices_, self.mid_near_indices_, self.neg_indices_]
        return PairObjective(self, [kind for kind in kinds if kind.shape[1]], self._batch_rows())

    def _batch_of_pairs(self, s: list[Any], progress: float) -> Any:
        """The sums of all three kinds over the rows, divided by the number of rows; phases by the share of the time."""
        near, mid, far = phase_weights(int(progress * self._steps), self.iter_per_phase)
        loss = near * self.near_indices_.shape[1] * (1 - NEAR[0] / (NEAR[1] + s[0])).mean()
        if len(s) == 3:
            loss = loss + mid * self.mid_near_indices_.shape[1] * (1 - MID[0] / (MID[1] + s[1])).mean()
        push = self.repulsion_strength * far * self.neg_indices_.shape[1]
        return loss + push * (FAR[0] / (FAR[1] + s[-1])).mean()

    def _settled_at(self, progress: float) -> bool:
        return progress * self._steps >= 2 * self.iter_per_phase

    # new rows

    def _finish(self, source: Source, layout: torch.Tensor | None, places: torch.Tensor) -> None:
        super()._finish(self._searched_in if layout is None else source, layout, places)

    def _kept(self) -> tuple[Any, ...]:
        return (self.near_indices_.shape[1], *super()._kept()[1:])

    def _kept_besides(self) -> dict[str, Any]:
        return {"reduction": self._reduction, "far": self.neg_indices_.shape[1]}

    def _place(self, rows: Rows, keys: torch.Tensor) -> torch.Tensor:
        reduction = self._placement.more["reduction"]
        return super()._place(rows if reduction is None else reduction.of(rows), keys)

    def _weights_of_new(self, distances: torch.Tensor) -> torch.Tensor:
        return torch.full_like(distances, PULL_ON_NEW / distances.shape[1])

    def _pull(self, s: torch.Tensor) -> torch.Tensor:
        return NEAR[0] / (NEAR[1] + s).square()

    def _push_on_new(self, s: torch.Tensor) -> torch.Tensor:
        fitted = self._placement
        strength = PULL_ON_NEW / fitted.k * fitted.more["far"] / s.shape[1]
        return strength * FAR[0] / (FAR[1] + s).square()
