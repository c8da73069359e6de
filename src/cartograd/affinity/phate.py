"""The affinity of PHATE: how alike the places are that diffusion leads to."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data, diffusion
from cartograd.engine import no_grad
from cartograd.errors import OptionError

log_of = logging.getLogger("cartograd.affinity")


@dataclass(frozen=True)
class PHATEAffinity:
    r"""Minus the potential distance of PHATE: :math:`P_{ij} = -\lVert U_i - U_j \rVert`.

    .. math:: U = -\log\left((D^{-1} K)^t + 10^{-7}\right), \qquad
        K_{ij} = \tfrac12 \left(e^{-(d_{ij} / \sigma_i)^\alpha} + e^{-(d_{ij} / \sigma_j)^\alpha}\right)

    with :math:`\sigma_i` the distance of the k-th neighbour and D the row sums of K. Symmetric, 0 on the diagonal and
    negative elsewhere, so it has no logarithm.

    Parameters
    ----------
    k : int, default=5
        Which neighbour's distance is the width, the row itself not counted.
    alpha : float, default=10.0
        How sharply the kernel falls at that distance.
    t : int or "auto", default=5
        How many steps of diffusion; "auto" for the knee of the von Neumann entropy of the first `t_max`.
    t_max : int, default=100
        The most steps that "auto" takes.
    n_landmarks : int, default=None
        Diffuse by way of this many groups of rows, which spares the powers of an (n, n) matrix; None for all rows.
    metric : str or callable, default="euclidean"
        What d is: a metric of `cartograd.neighbors.search`, or "precomputed".
    device : torch.device or str, default=None
        Where to compute; None for where the data are.
    random_state : int, default=0
        Seed of the grouping into landmarks.

    Examples
    --------
    >>> import torch
    >>> P = PHATEAffinity(k=2, t=3)(torch.arange(5.0)[:, None])
    >>> bool((P == P.T).all()), bool(P[0, 4] < P[0, 1] < 0)
    (True, True)
    """

    k: int = 5
    alpha: float = 10.0
    t: int | str = 5
    t_max: int = 100
    n_landmarks: int | None = None
    metric: data.MetricLike = "euclidean"
    device: data.DeviceLike = None
    random_state: int = 0

    def __post_init__(self) -> None:
        checks.count(self.k, "k")
        checks.number(self.alpha, "alpha", 0.0, strict=True)
        if self.t != "auto":
            checks.count(self.t, "t")
        checks.count(self.t_max, "t_max")
        if self.n_landmarks is not None:
            checks.count(self.n_landmarks, "n_landmarks", 2)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n), detached from X."""
        if log:
            raise OptionError("PHATE's affinity is minus a distance and has no logarithm: use log=False")
        with no_grad(), torch.no_grad():
            X, given = data.opened(X, self.metric, self.device)
            checks.neighbours_fit(self.k, "k", given.rows.count)
            K = diffusion.alpha_decay_kernel(
                data.distance_matrix(X, given, self.metric, self.device), self.k, float(self.alpha)
            )
            return data.like(X, given, -diffusion.potential_distances(self._potential(K)))

    def _potential(self, K: torch.Tensor) -> torch.Tensor:
        if self.n_landmarks is None or self.n_landmarks >= len(K):
            return diffusion.potential(diffusion.stepped(diffusion.by_rows(K), self.steps(K)))
        t = self.steps(K)
        labels = diffusion.groups(K, self.n_landmarks, t, self.random_state)
        operator, to_landmarks = diffusion.landmark_operator(K, labels, int(labels.max()) + 1)
        # the way to the landmarks is one step, and each of theirs two
        return diffusion.potential(to_landmarks @ diffusion.stepped(operator, t // 2))

    def steps(self, K: torch.Tensor) -> int:
        """How many steps of diffusion with this kernel."""
        if not isinstance(self.t, str):
            return self.t
        t = diffusion.knee(diffusion.spectral_entropies(K, self.t_max)) + 1
        log_of.info("PHATE: %d steps of diffusion", t)
        return t
