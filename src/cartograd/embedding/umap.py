"""UMAP: a fuzzy graph of neighbours, laid out by sampled attraction and repulsion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.utils.validation import check_is_fitted

from cartograd.affinity import UMAPAffinity
from cartograd.affinity.counter import stream
from cartograd.affinity.fuzzy import memberships, smooth_distances
from cartograd.core.lazy import lazy_attribute
from cartograd.embedding import umap_device, umap_placing, umap_rows
from cartograd.embedding.edge_clock import Acting, Piece, clock
from cartograd.embedding.estimator import estimator
from cartograd.embedding.inverse import rows_at
from cartograd.embedding.kernel_rows import HOOKS, inherited, plain_descent, served
from cartograd.embedding.labels import intersected, known_labels, labels_of_distinct
from cartograd.embedding.negative import NegativeSamplingNeighborEmbedding
from cartograd.embedding.neighbourhood import fitting_neighbours
from cartograd.embedding.parametric import Parametric
from cartograd.embedding.placement import mean_of_neighbours, ordered_sum, own_draws, refine, step_lengths
from cartograd.embedding.sharing import own_edges, own_memberships
from cartograd.embedding.source import Source
from cartograd.embedding.umap_curve import fit_curve
from cartograd.embedding.umap_device import UmapOnDevice
from cartograd.embedding.umap_forces import CLIP, SOFTENING, apart_in, attraction, repulsion
from cartograd.embedding.umap_rows import Forces, UmapRows
from cartograd.errors import InputError, OptionError
from cartograd.kernels import cpu
from cartograd.neighbors import Graph, validate
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.workers import all_cores, spread

FORCES = (
    "_gradient _draw _negatives _pulled _pushed _acting_pairs _compute_loss _compute_attractive_loss "
    "_compute_repulsive_loss _compute_attractive_gradients _compute_repulsive_gradients _allowed _loss_now"
).split()
"""Methods that make up the layout: a subclass that writes one anew is laid out by torch."""
FEW_ROWS = 10_000


@estimator
class UMAP(NegativeSamplingNeighborEmbedding, Parametric):
    r"""Uniform manifold approximation and projection (McInnes, Healy and Melville, 2018).

    .. math:: \min_Z \; -\sum_{ij} P_{ij} \log q_{ij} - \rho \sum_{i,\, j \sim \text{negatives}} \log(1 - q_{ij}),
        \qquad q_{ij} = \frac{1}{1 + a |z_i - z_j|^{2b}}

    P is the fuzzy union of neighbourhoods (`UMAPAffinity`). At each step the edges that are due, in proportion to their
    weights, pull both their ends, and push each away from `negative_sample_rate` random points, which stay; all points
    move at once, so the map does not depend on the number of threads. Semantics are umap-learn's: true distances,
    `n_neighbors` counts the row itself, forces are clipped pair by pair, edges act at exact periods. Since all pairs
    act at once, the sum of a point's attractions and that of its repulsions are clipped too.

    Parameters
    ----------
    n_neighbors : int, default=15
        Neighbours of each row, itself included.
    min_dist : float, default=0.1
        How close points may lie in the map.
    spread : float, default=1.0
        The scale of the map: over which distance neighbours are scattered.
    a, b : float, default=None
        The curve itself; None to fit it to `min_dist` and `spread`.
    negative_sample_rate : int, default=5
        Negatives for each acting edge.
    local_connectivity : float, default=1.0
        The number of neighbours that are certainly connected.
    set_op_mix_ratio : float, default=1.0
        1 for the union of neighbourhoods, 0 for their intersection.
    target_weight : float, default=0.5
        How much labels count in a supervised fit, from 0 to 1.
    lr : float or "auto", default=1.0
        The learning rate, which falls to 0 over the steps.
    max_iter : int or "auto", default="auto"
        Steps; "auto" for 500 up to 10,000 rows and 200 beyond, as in umap-learn.
    max_iter_affinity : int, default=100
        Has no effect: the widths of the neighbourhoods are found to full precision.
    optimizer_kwargs : dict, default=None
        Keyword arguments of the optimiser.
    scheduler : str or class, default="LinearLR"
        How the learning rate falls.
    n_negatives : int, default=None
        Another name of `negative_sample_rate`.
    discard_NNs, early_exaggeration_coeff, early_exaggeration_iter, repulsion_strength, metric, precomputed_knn
        See `NegativeSamplingNeighborEmbedding`.
    optimizer, scheduler_kwargs, init, init_scaling, check_interval, backend, random_state, callbacks, n_components
        See `AffinityMatcher`.
    encoder, decoder, hidden_sizes, batch_size, n_epochs, patience, min_desired_loss, timeout, training
        See `Parametric`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(60, 5)
    >>> UMAP(n_neighbors=10, max_iter=20, random_state=0).fit_transform(X).shape
    (60, 2)
    """

    n_neighbors: int = 15
    _: KW_ONLY
    min_dist: float = 0.1
    spread: float = 1.0
    a: float | None = None
    b: float | None = None
    negative_sample_rate: int = 5
    local_connectivity: float = 1.0
    set_op_mix_ratio: float = 1.0
    target_weight: float = 0.5
    lr: Any = 1.0
    max_iter: int | str = "auto"
    max_iter_affinity: int = 100
    optimizer_kwargs: Any = None
    scheduler: Any = "LinearLR"
    n_negatives: int | None = None
    affinity_in: Any = field(default=None, init=False)

    def _check_affinities(self) -> None:
        if self.min_dist > self.spread:
            raise OptionError(f"min_dist must be at most spread={self.spread}, got {self.min_dist}")
        if (self.a is None) != (self.b is None):
            raise OptionError("a and b are one curve: give both or neither")
        if self.n_negatives is not None and self.negative_sample_rate != 5:
            raise OptionError("n_negatives is another name of negative_sample_rate: give one of them, not both")

    def _usual_steps(self, n: int) -> int:
        return 500 if n <= FEW_ROWS else 200

    def _check_data(self, given: Given, y: Any) -> None:
        super()._check_data(given, y)
        self._labels = None if y is None else known_labels(y, given.rows.count)

    def _rate(self) -> int:
        return self.negative_sample_rate if self.n_negatives is None else self.n_negatives

    def _searched(self, n: int) -> int:
        return min(self.n_neighbors, n) - 1

    def _affinity(self, source: Source, y: Any) -> Graph:
        k = fitting_neighbours(self.n_neighbors, source.n, with_self=True)
        self._by_kernel = self._served(source)
        if self._by_kernel and source.rows.device.type == "cpu":
            cpu.prepare(umap_rows.MODULE)  # while the search is at work
        near = self._neighbourhood(source, k - 1)
        with self.report_.phase("affinities"):
            mix = float(self.set_op_mix_ratio)
            if self._bounds is not None:
                graph = own_memberships(self, near, float(self.local_connectivity), mix)
            else:
                affinity = UMAPAffinity(k, self.local_connectivity, mix)
                graph = affinity(None, knn=(near.indices, near.distances))
            if self._labels is not None:
                graph = intersected(graph, self._labels_of(source), self.target_weight)
            self.a_, self.b_ = (self.a, self.b) if self.a and self.b else fit_curve(self.min_dist, self.spread)
            return graph

    def _labels_of(self, source: Source) -> torch.Tensor:
        """Return the label of each different row, (n,) int64."""
        assert self._labels is not None
        if source.distinct is None:
            return self._labels
        return labels_of_distinct(self._labels, source.distinct.inverse, source.n)

    def _served(self, source: Source) -> bool:
        """Whether the kernel for the CPU can lay out these rows: the forces are those it knows."""
        usual = self._has_closed_form() and inherited(type(self), UMAP, FORCES)
        changed = self.discard_NNs or self.compile or self.encoder is not None
        shape = source.n, self.n_components, self._precision(), source.rows.device
        size = served(*shape) or (umap_device.served(*shape) and self._bounds is None)
        return size and usual and not changed

    @lazy_attribute
    def _rows(self) -> UmapRows | UmapOnDevice | None:
        """The edges as the kernel takes them; None where torch makes the map."""
        if self._by_kernel and self.affinity_in_.device.type == "cuda":
            return UmapOnDevice(self.affinity_in_, self._steps)
        if not (self._by_kernel and cpu.usable()):
            return None
        return UmapRows(self.affinity_in_, self._steps, own_edges(self, self.affinity_in_))

    @lazy_attribute
    def _pieces(self) -> list[Piece]:
        """The edges as torch takes them."""
        part = own_edges(self, self.affinity_in_)
        if part is None:
            return clock(self.affinity_in_, self._steps)
        pieces = clock(self.affinity_in_, self._steps, part.largest)
        before = part.edges_before(sum(len(piece.rows) for piece in pieces))
        return [replace(piece, first=piece.first + before) for piece in pieces]

    def _owns_rows(self) -> bool:
        return self.encoder is None and getattr(self, "_labels", None) is None and self._has_closed_form()

    def _forces(self) -> Forces:
        pull, push = self.early_exaggeration_coeff_, float(self.repulsion_strength)
        return Forces(self._seed, self._rate(), self.a_, self.b_, pull, push)

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_rows", "_pieces", "_labels", "_attraction", "_repulsion")

    def _optimise(self) -> None:
        self._attraction, self._repulsion = self._compiled(attraction), self._compiled(repulsion)
        super()._optimise()

    def _draw(self, step: int) -> None:
        """Negatives are drawn edge by edge where they are needed."""

    def _acting_pairs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ends of the edges that act at this step, and rows with their negatives."""
        acting = [piece.at(self._step) for piece in self._pieces]
        rows, columns = (torch.cat([getattr(one, end) for one in acting]) for end in ("rows", "columns"))
        negatives = [self._negatives(one) for one in acting]
        heads = torch.cat([one.rows.repeat(len(others)) for one, others in zip(acting, negatives, strict=True)])
        return rows, columns, heads, torch.cat([others.reshape(-1) for others in negatives])

    def _negatives(self, acting: Acting) -> torch.Tensor:
        """The negatives of each acting edge, (rate, a)."""
        key = stream(self._seed, "negatives", self._step)
        return self._complement.draw(acting.rows, acting.numbers(self._rate()), key)

    def _compute_attractive_loss(self) -> Any:
        rows, columns, _, _ = self._acting_pairs()
        s = ((self.embedding_[rows] - self.embedding_[columns]) ** 2).sum(1)
        return torch.log1p(self.a_ * s**self.b_).sum() / 2  # each edge is there in both directions

    def _compute_repulsive_loss(self) -> Any:
        _, _, rows, others = self._acting_pairs()
        s = ((self.embedding_[rows] - self.embedding_.detach()[others]) ** 2).sum(1)  # a negative stays where it is
        s = s[s > 0]
        return (torch.log1p(self.a_ * s**self.b_) - torch.log(self.a_ * s**self.b_)).sum()

    def _compute_attractive_gradients(self) -> torch.Tensor:
        acting = [piece.at(self._step) for piece in self._pieces]
        return torch.cat([one.row_sums(self._pulled(one, self._own(one))).clamp_(-CLIP, CLIP) for one in acting])

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        acting = [piece.at(self._step) for piece in self._pieces]
        return torch.cat([one.row_sums(self._pushed(one, self._own(one))).clamp_(-CLIP, CLIP) for one in acting])

    def _own(self, acting: Acting) -> torch.Tensor:
        """Where the rows of the acting edges are, (c, a)."""
        return self._layout.T.contiguous().index_select(1, acting.rows)

    def _pulled(self, acting: Acting, own: torch.Tensor) -> torch.Tensor:
        """The attraction of each acting edge, (c, a). Its other end moves by the edge that leads back."""
        apart = apart_in(self._layout.T.contiguous(), own, acting.columns)
        return self._attraction(apart, self.a_, self.b_)

    def _pushed(self, acting: Acting, own: torch.Tensor, strength: float = 1.0) -> torch.Tensor:
        """The repulsion from all negatives of each acting edge, (c, a)."""
        others = self._negatives(acting)
        apart = apart_in(self._layout.T.contiguous(), own, others)
        forces = self._repulsion(apart.flatten(1), self.a_, self.b_, strength).view(apart.shape)
        total = torch.zeros_like(own)
        for draw in range(len(others)):
            total += forces[:, draw]
        return total

    def _gradient(self) -> torch.Tensor:
        if not self._has_closed_form():
            return super()._gradient()

        def both(piece: Piece) -> torch.Tensor:
            acting = piece.at(self._step)
            own = self._own(acting)
            forces = [self._pulled(acting, own), self._pushed(acting, own, float(self.repulsion_strength))]
            pulled, pushed = acting.row_sums(torch.cat(forces)).clamp_(-CLIP, CLIP).tensor_split(2, dim=1)
            return torch.add(pushed, pulled, alpha=self.early_exaggeration_coeff_)

        with torch.no_grad():
            if self._rows is not None:
                return self._rows.gradient(self._layout, self._step, self._forces())
            return torch.cat(list(spread(both, self._pieces)))

    def _many_steps(self, first: int) -> Callable[[int, Sequence[float]], None] | None:
        """Steps in which nobody looks in, by the kernel."""
        if self._rows is None or not inherited(type(self), UMAP, HOOKS):
            return None
        self._before_step(first)
        return self._take if plain_descent(self.optimizer_) else None

    def _take(self, first: int, rates: Sequence[float]) -> None:
        assert self._rows is not None

        def reached(steps: int, places: torch.Tensor) -> None:
            self.n_iter_, self._layout = steps, places  # also where the next step is interrupted

        self._rows.advance(self._layout, first, rates, self._forces(), reached)

    def _loss_now(self) -> float:
        if self._rows is None:
            return super()._loss_now()
        attraction, repulsion = self._rows.losses(self._layout, self._step, self._forces())
        return attraction + self.repulsion_strength * repulsion

    # with an encoder: -log q and -log(1 - q) are softplus of x and of -x, x = log a + b log s

    def _usual_negatives(self) -> int:
        return self._rate()

    def _batch_attraction(self, s: Any) -> Any:
        return F.softplus(math.log(self.a_) + self.b_ * torch.log(s + SOFTENING)).mean()

    def _batch_repulsion(self, s: Any) -> Any:
        x = math.log(self.a_) + self.b_ * torch.log(s + SOFTENING)
        return F.softplus(-x).sum(1).mean() / 2  # a negative moves too, and without an encoder it does not

    def inverse_transform(self, Z: Any) -> Any:
        """Rows that belong at places of the map, (m, n_features_in_): means of the rows fitted near them.

        Parameters
        ----------
        Z : array-like, (m, n_components)
            Places in the map.
        """
        if self.decoder is not None:
            return super().inverse_transform(Z)
        check_is_fitted(self)
        model = self._as_fitted()
        places = intake(Z, "Z", self._placement.places.device)
        if places.rows.width != model.n_components:
            raise InputError(f"Z has {places.rows.width} columns, but the map has {model.n_components} dimensions")
        validate.scan(places.rows, "Z", 1 << 16)
        with model._working(), all_cores(places.rows.device):
            return places.answer(rows_at(self._placement, places.rows.block(0, places.rows.count), model.n_neighbors))

    def _kept_besides(self) -> dict[str, Any]:
        return {"a": self.a_, "b": self.b_}

    def _weights_of_new(self, distances: torch.Tensor) -> torch.Tensor:
        rho, sigma = smooth_distances(distances, float(self.local_connectivity), overall=1.0)
        return torch.exp(memberships(distances, rho, sigma))

    def _settle(self, indices: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """As in the fit, but the point alone moves, and every edge acts at every step by its weight."""
        fitted, c = self._placement, self.n_components
        a, b, count = fitted.more["a"], fitted.more["b"], 2 * self._rate()
        share_of_draw = self._rate() * ordered_sum(weights)[:, None] / max(count, 1)
        strength = float(self.repulsion_strength)

        def forces(rows: slice) -> Callable[[torch.Tensor, int], torch.Tensor]:
            neighbours, share = fitted.places[indices[rows]], weights[rows][:, :, None]

            def gradient(z: torch.Tensor, step: int) -> torch.Tensor:
                near = z[:, None, :] - neighbours
                pull = ordered_sum(attraction(near.reshape(-1, c).T, a, b).T.reshape(near.shape) * share)
                if count == 0:
                    return pull
                others = own_draws(keys[rows], fitted.source.n, count, fitted.seed, step)
                far = z[:, None, :] - fitted.places[others]
                push = repulsion(far.reshape(-1, c).T, a, b, strength).T.reshape(far.shape)
                return pull + share_of_draw[rows] * ordered_sum(push)

            return gradient

        Z = mean_of_neighbours(fitted.places, indices, weights)
        steps = 100 if fitted.source.n <= 10_000 else 30
        lr = self._learning_rate()
        rate = 0.25 * (1.0 if lr == "auto" else lr)
        if umap_placing.by_kernel(fitted, weights):
            descent = umap_placing.Descent(a, b, strength, count, step_lengths(steps, rate))
            return umap_placing.settled(Z, fitted, indices, weights, share_of_draw[:, 0], keys, descent)
        return refine(Z, forces, (indices.shape[1] + count) * c, steps, rate)
