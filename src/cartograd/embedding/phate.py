"""PHATE: distances between the places that diffusion leads to, laid out by least squares."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.affinity import PHATEAffinity
from cartograd.embedding.base import AffinityMatcher
from cartograd.embedding.estimator import estimator
from cartograd.embedding.neighbourhood import fitting_neighbours
from cartograd.embedding.source import Source, searchable
from cartograd.neighbors.workers import spread

TILE_ELEMENTS = 1 << 16
"""Pairs in a tile, few enough to stay in the cache of a core."""
MATRICES = 6
"""So many (n, n) matrices of float64 are there at once, while powers are taken."""


@estimator
class PHATE(AffinityMatcher):
    r"""Potential of heat diffusion for affinity-based transition embedding (Moon et al., 2019).

    .. math:: \min_Z \; \sqrt{\sum_{ij} (P_{ij} - Q_{ij})^2 \Big/ \sum_{ij} P_{ij}^2}, \qquad
        P_{ij} = -\lVert U_i - U_j \rVert, \quad Q_{ij} = -\lVert z_i - z_j \rVert

    with U the potentials of the rows after t steps of diffusion (`PHATEAffinity`): the normalised stress between
    potential distances and distances in the map. P is an n x n matrix, which bounds n by memory.

    Parameters
    ----------
    k : int, default=5
        Which neighbour's distance is the width of the kernel, the row itself not counted.
    t : int or "auto", default=100
        How many steps of diffusion; "auto" for the knee of the von Neumann entropy.
    alpha : float, default=10.0
        How sharply the kernel falls.
    n_landmarks : int, default=None
        Diffuse by way of this many groups of rows, which spares the powers of an n x n matrix; None for all rows.
    metric_in : str or callable, default="euclidean"
        How rows are compared: a metric of `cartograd.neighbors.search`, or "precomputed".
    optimizer : str or class, default="Adam"
        An optimiser of ``torch.optim``.
    lr : float, default=1.0
        The learning rate, in the units of potential distances.
    min_grad_norm : float, default=1e-15
        The fit ends where the gradient's norm is below this.
    max_iter : int, default=1000
        Steps at most.
    init : str or array-like, default="pca"
        The start, see `AffinityMatcher`.
    init_scaling : float, default=1.0
        The standard deviation of the start's first coordinate; None to take the start as it is.
    backend : str, default=None
        None alone: potentials take all pairs.
    optimizer_kwargs, scheduler, scheduler_kwargs, check_interval, compile, process_duplicates, callbacks
        See `AffinityMatcher`.
    n_components, device, verbose, random_state
        See `Estimator`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> model = PHATE(t=5, max_iter=100, check_interval=100).fit(X)
    >>> model.embedding_.shape, model.loss_[0] < 0.3
    ((40, 2), True)
    """

    k: int = 5
    _: KW_ONLY
    t: int | str = 100
    alpha: float = 10.0
    n_landmarks: int | None = None
    metric_in: Any = "euclidean"
    min_grad_norm: float = 1e-15
    init_scaling: float | None = 1.0
    affinity_in: Any = field(default=None, init=False)
    affinity_out: Any = field(default=None, init=False)
    kwargs_affinity_out: Any = field(default=None, init=False)
    loss_fn: str = field(default="square_loss", init=False)
    kwargs_loss: Any = field(default=None, init=False)

    def _check_affinities(self) -> None:
        self._potential(self.k)

    def _potential(self, k: int, seed: int = 0) -> PHATEAffinity:
        return PHATEAffinity(
            k, self.alpha, self.t, n_landmarks=self.n_landmarks, metric=self.metric_in, random_state=seed
        )

    def _metric(self) -> Any:
        return self.metric_in

    def _memory(self, n: int, d: int, size: int) -> tuple[float, str]:
        return MATRICES * 8.0 * n * n, "use fewer rows, or UMAP, whose affinity is sparse"

    def _affinity(self, source: Source, y: Any) -> torch.Tensor:
        with self.report_.phase("affinities"):
            affinity = self._potential(fitting_neighbours(self.k, source.n, "k"), self._seed)
            P: torch.Tensor = affinity(searchable(source.rows)).to(source.rows.device, self._precision())
            self._sum_of_squares = sum_of_squares(P)
            return P

    def _buffers(self) -> tuple[str, ...]:
        return ("_sum_of_squares",)

    def _compute_loss(self) -> Any:
        return stress(self.affinity_in_, self.embedding_)

    def _gradient(self) -> torch.Tensor:
        if not self._use_closed_form_gradients:
            return super()._gradient()
        self._last_loss, gradient = stress_and_gradient(self.affinity_in_, self._layout, self._sum_of_squares)
        return gradient


def stress(P: torch.Tensor, Z: Any) -> Any:
    r""":math:`\sqrt{\sum_{ij} (P_{ij} + \lVert z_i - z_j \rVert)^2 / \sum_{ij} P_{ij}^2}`, written with Tensors.

    Parameters
    ----------
    P : torch.Tensor
        (n, n), minus the distances to be matched.
    Z : Tensor
        (n, c), the map.
    """
    Q = -torch.cdist(Z, Z, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.sqrt(((P - Q) ** 2).sum() / sum_of_squares(P))


def stress_and_gradient(P: torch.Tensor, Z: torch.Tensor, size: float | None = None) -> tuple[float, torch.Tensor]:
    r"""The same and its gradient in closed form, in tiles of rows on all cores.

    .. math:: \frac{\partial L}{\partial z_i} =
        \frac{2}{L \sum P^2} \sum_j \Big(1 + \frac{P_{ij}}{\lVert z_i - z_j \rVert}\Big) (z_i - z_j)

    with nothing from points that coincide; 0 for a map without stress.

    Parameters
    ----------
    P : torch.Tensor
        (n, n), minus the distances to be matched, symmetric.
    Z : torch.Tensor
        (n, c), the map.
    size : float, default=None
        The `sum_of_squares` of P, where it is known.
    """
    tile = max(1, TILE_ELEMENTS // len(Z))

    def of_rows(start: int) -> tuple[float, torch.Tensor]:
        own, target = Z[start : start + tile], P[start : start + tile]
        apart = torch.cdist(own, Z, compute_mode="donot_use_mm_for_euclid_dist")
        missed = float((apart + target).square_().sum(dtype=torch.float64))
        weights = (target / apart).masked_fill_(apart == 0, -1.0).add_(1.0)
        return missed, weights.sum(1, keepdim=True) * own - weights @ Z

    parts = list(spread(of_rows, range(0, len(Z), tile)))
    size = sum_of_squares(P) if size is None else size
    loss = math.sqrt(math.fsum(missed for missed, _ in parts) / size)
    gradient = torch.cat([part for _, part in parts])
    return loss, gradient * (2 / (loss * size)) if loss > 0 else torch.zeros_like(gradient)


def sum_of_squares(P: torch.Tensor) -> float:
    """The sum of the squares of P; 1 where all are zero, so that the stress is that of the map alone."""
    return float(P.square().sum(dtype=torch.float64)) or 1.0
