"""CO-SNE: t-SNE in the Poincare ball."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

import torch

from cartograd.affinity.data import plain
from cartograd.affinity.recorded import squared_distances
from cartograd.embedding.entropic_input import EntropicInput
from cartograd.embedding.estimator import estimator
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.embedding.forces.poincare import (
    cosne_attraction,
    cosne_height,
    cosne_repulsion,
    cosne_repulsion_at,
    hyperbolic,
    room,
)
from cartograd.embedding.heights import Heights
from cartograd.embedding.neighbourhood import FARTHEST
from cartograd.embedding.placement import fixed_sample, mean_of_neighbours
from cartograd.embedding.poincare_ball import inside, moved
from cartograd.embedding.poincare_dense import MOST_ROWS, DenseForces
from cartograd.embedding.riemannian import RiemannianAdam
from cartograd.embedding.source import Source
from cartograd.errors import InputError
from cartograd.neighbors import Graph
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import Rows

SETTLING, FIRST_STEP = 100, 0.1
"""How many steps a new row takes to its place, and how long the first is in the distance of the ball."""
SMALLEST = 1e-30


@estimator
class COSNE(EntropicInput):
    r"""CO-SNE (Guo, Guo and Yu, 2022): a map in the Poincare ball, where there is more room the further out one goes.

    .. math:: \min_Z \; -\lambda \sum_{ij} P_{ij} \log Q_{ij} + \rho \log \sum_{i \ne j} Q_{ij} +
        \frac{\eta}{n} \sum_i \bigl(h_i - D(z_i, 0)\bigr)^2, \qquad Q_{ij} = \frac{\gamma}{D(z_i, z_j) + \gamma^2}

    with D the square of the distance in the ball,

    .. math:: D(x, y) = \operatorname{arccosh}\Bigl(1 + \frac{2 |x - y|^2}{(1 - |x|^2)(1 - |y|^2)}\Bigr)^2, \qquad
        h_i = \frac{|x_i - \mu|^2}{\frac{1}{n} \sum_j |x_j - \mu|^2}

    P is the symmetric entropic affinity. The last term keeps rows that are far from the mean row :math:`\mu` far from
    the middle of the ball. It takes the data in a scale of their own, in which the mean square distance from the mean
    is 1 (a length of 0.46 in the ball): in raw units a mean square of some hundreds, of centimetres or pixels, would
    press all points against the rim. The repulsion is exact, over all pairs in tiles: time O(n^2), memory O(n); all is
    computed in float64.

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours each row is effectively similar to.
    gamma : float, default=2.0
        :math:`\gamma`, the width of the Cauchy distribution in the map.
    learning_rate_for_h_loss : float, default=1.0
        :math:`\eta`.
    sparsity : bool, default=True
        Whether only the three times `perplexity` nearest rows are looked at; otherwise all.
    max_iter_affinity : int, default=100
        Has no effect: the bandwidths are found to full precision.
    lr : float or "auto", default="auto"
        The learning rate: about how far a point goes in a step, in the distance of the ball. "auto" for 0.2.
    optimizer : str or class, default="RiemannianAdam"
        `RiemannianAdam`, or an optimiser of ``torch.optim``, after whose steps points are drawn back into the ball.
    optimizer_kwargs : dict, default=None
        Its keyword arguments.
    init : str or array-like, default="hyperbolic"
        The start: "hyperbolic", or see `AffinityMatcher`; all of it inside the ball.
    init_scaling : float, default=0.5
        How far out it reaches: see `AffinityMatcher`.
    max_iter, early_exaggeration_coeff, early_exaggeration_iter, repulsion_strength, metric, precomputed_knn
        See `NeighborEmbedding`.
    scheduler, scheduler_kwargs, min_grad_norm, check_interval, backend, callbacks, n_components, random_state
        See `AffinityMatcher`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.RandomState(0).rand(40, 5)
    >>> Z = COSNE(perplexity=5, max_iter=20).fit_transform(X)
    >>> bool((numpy.linalg.norm(Z, axis=1) < 1).all())
    True
    """

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

    def _check_data(self, given: Given, y: Any) -> None:
        super()._check_data(given, y)
        if isinstance(self.init, str) or self.init_scaling is not None:
            return
        lengths = torch.linalg.vector_norm(plain(self.init).to(torch.float64), dim=1)
        if bool((lengths >= 1).any()):
            row = int(torch.nonzero(lengths >= 1)[0])
            raise InputError(
                f"init must lie inside the unit ball, but its row {row} has the length {float(lengths[row]):.3g}; "
                "divide it by something larger, or give an init_scaling"
            )

    def _precision(self) -> torch.dtype:
        return torch.float64

    def _affinity(self, source: Source, y: Any) -> Graph:
        P = super()._affinity(source, y)
        self._scale, self._heights = Heights.of(source)
        few = source.n <= MOST_ROWS
        self._dense = DenseForces.of(P.to_dense(), self._heights, float(self.gamma)) if few else None
        self._blocks = EdgeBlocks.of(P)
        return P

    def _start(self, source: Source) -> torch.Tensor:
        """A start in the ball; one that is of the plane is taken as velocities from the middle."""
        Z = super()._start(source).T
        in_ball = self.init == "hyperbolic" if isinstance(self.init, str) else self.init_scaling is None
        return inside(Z if in_ball else moved(torch.zeros_like(Z), Z)).T.contiguous()

    def _before_step(self, step: int) -> None:
        super()._before_step(step)
        self._stay_inside()

    def _optimise(self) -> None:
        super()._optimise()
        self._stay_inside()

    def _stay_inside(self) -> None:
        """Other optimisers than ours know nothing of the ball."""
        if not isinstance(self.optimizer_, RiemannianAdam):
            self._layout.copy_(inside(self._layout.T).T)

    def _buffers(self) -> tuple[str, ...]:
        return (*super()._buffers(), "_scale", "_heights", "_dense", "_blocks")

    # the loss, and its gradients

    def _compute_loss(self) -> Any:
        return super()._compute_loss() + self.learning_rate_for_h_loss * self._compute_height_loss()

    def _compute_attractive_loss(self) -> Any:
        P, Z = self.affinity_in_, self.embedding_
        rows, columns, room = P.rows(), P.indices, 1 - (Z**2).sum(1)
        D = _squared_distances(((Z[rows] - Z[columns]) ** 2).sum(1) / (room[rows] * room[columns]))
        return (P.weights * torch.log(D / self.gamma + self.gamma)).sum()

    def _compute_repulsive_loss(self) -> Any:
        Z = self.embedding_
        room = 1 - (Z**2).sum(1)
        D = _squared_distances(squared_distances(Z) / (room[:, None] * room[None, :]))
        return torch.log((self.gamma / (D + self.gamma**2)).sum() - len(Z) / self.gamma)

    def _compute_height_loss(self) -> Any:
        squared = (self.embedding_**2).sum(1)
        return ((self._heights - _squared_distances(squared / (1 - squared))) ** 2).mean()

    def _gradient(self) -> torch.Tensor:
        if not self._has_closed_form():
            return super()._gradient()
        eta = float(self.learning_rate_for_h_loss)
        with torch.no_grad():
            if self._dense is not None:
                return self._dense.gradient(self._layout, self.early_exaggeration_coeff_, self.repulsion_strength, eta)
            return super()._gradient().add_(cosne_height(self._layout, self._heights)[0], alpha=eta)

    def _compute_attractive_gradients(self) -> torch.Tensor:
        return cosne_attraction(self._layout, self._blocks, self.gamma)[0]

    def _compute_repulsive_gradients(self) -> torch.Tensor:
        return cosne_repulsion(self._layout, self.gamma)[0]

    def _loss_now(self) -> float:
        if not self._has_closed_form():
            return super()._loss_now() + self.learning_rate_for_h_loss * float(self._compute_height_loss())
        attraction = float(cosne_attraction(self._layout, self._blocks, self.gamma)[1])
        repulsion = float(torch.log(cosne_repulsion(self._layout, self.gamma)[1]))
        height = float(cosne_height(self._layout, self._heights)[1])
        return attraction + self.repulsion_strength * repulsion + self.learning_rate_for_h_loss * height

    # new rows

    def _kept_besides(self) -> dict[str, Any]:
        return {**super()._kept_besides(), "heights": self._scale}

    def _place(self, rows: Rows, keys: torch.Tensor) -> torch.Tensor:
        fitted = self._placement
        k = min(fitted.k, fitted.source.n)
        indices, distances = fitted.source.neighbours_of(rows, k, self.backend, fitted.seed)
        weights = self._weights_of_new((distances.to(torch.float64) / fitted.scale).clamp_(max=FARTHEST))
        return self._settle_in_ball(indices, weights, fitted.more["heights"].of_rows(rows))

    def _settle_in_ball(self, indices: torch.Tensor, weights: torch.Tensor, heights: torch.Tensor) -> torch.Tensor:
        """Descend the loss of each new row alone, from the mean of its neighbours, by steps that become shorter."""
        places, n = self._placement.places, self._placement.source.n
        Z = inside(mean_of_neighbours(places, indices, weights).T).T.contiguous()
        edges = EdgeBlocks.of_lists(indices, weights)
        fixed = places[fixed_sample(n, self._placement.seed, Z.device)]
        optimiser = RiemannianAdam([Z], lr=FIRST_STEP)
        for step in range(SETTLING):
            optimiser.param_groups[0]["lr"] = FIRST_STEP * (1 - step / SETTLING)
            Z.grad = cosne_attraction(Z, edges, self.gamma, places)[0]
            Z.grad += self.repulsion_strength * cosne_repulsion_at(Z, fixed, self.gamma)[0]
            # each pair counts from both its ends in the fit, the height once
            Z.grad += self.learning_rate_for_h_loss / 2 * _height_gradients(Z, heights)
            optimiser.step()
        Z.grad = None
        return Z


def _squared_distances(u: Any) -> Any:
    r""":math:`4 \operatorname{arsinh}(\sqrt u)^2`, of a Tensor; its derivative at 0 is 4."""
    return 4 * torch.asinh(torch.sqrt(u + SMALLEST)) ** 2


def _height_gradients(Z: torch.Tensor, heights: torch.Tensor) -> torch.Tensor:
    """The gradient of :math:`(h_i - D(z_i, 0))^2` of each row, (m, c)."""
    free = room(Z)
    D, slope = hyperbolic(Z.square().sum(1) / free)
    return 4 * ((D - heights) * slope / free.square())[:, None] * Z
