"""Kernels whose width is the distance to a neighbour: self-tuning and MAGIC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.kernel import answer, diagonal_out
from cartograd.affinity.normalized import KNOWN_DIMS, Dims, normalised
from cartograd.engine import no_grad


@dataclass(frozen=True)
class SelfTuningAffinity:
    r"""The kernel of Zelnik-Manor and Perona, whose width follows the density.

    .. math:: P_{ij} = \exp\left(-\frac{C_{ij}}{\sigma_i \sigma_j}\right) / Z, \qquad \sigma_i^2 = C_{i (K)}

    :math:`C_{i (K)}` is the value of the K-th neighbour: with squared distances :math:`\sigma_i` is its distance, as in
    the paper. Symmetric where Z is one number.

    Parameters
    ----------
    K : int, default=7
        Which neighbour's distance is the width.
    normalization_dim : {(0, 1), 0, 1, None}, default=(0, 1)
        Whether P sums to one in all, or each column (0) or row (1) does, or there is no Z.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Examples
    --------
    >>> import torch
    >>> P = SelfTuningAffinity(K=1, normalization_dim=None)(torch.tensor([[0.0], [1.0], [5.0]]), log=True)
    >>> P[0].tolist()
    [-inf, -1.0, -6.25]
    """

    K: int = 7
    normalization_dim: Dims = (0, 1)
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None

    def __post_init__(self) -> None:
        checks.count(self.K, "K")
        checks.choice(self.normalization_dim, "normalization_dim", KNOWN_DIMS)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n), detached from X."""
        with no_grad(), torch.no_grad():
            X, given = data.opened(X, self.metric, self.device)
            checks.neighbours_fit(self.K, "K", given.rows.count)
            C = data.distance_matrix(X, given, self.metric, self.device)
            sigma = data.kth_smallest(C, self.K).sqrt()
            log_K = diagonal_out(-ratio(C, sigma[:, None] * sigma[None, :]), self.zero_diag)
            return data.like(X, given, answer(_summed(log_K, self.normalization_dim, self.zero_diag), log))


@dataclass(frozen=True)
class MAGICAffinity:
    r"""The diffusion operator of MAGIC: a kernel as wide as the K-th neighbour is far, made symmetric, rows to one.

    .. math:: P_{ij} = \frac{A_{ij} + A_{ji}}{\sum_l A_{il} + A_{li}}, \qquad A_{ij} = \exp(-C_{ij} / C_{i (K)})

    Parameters
    ----------
    K : int, default=7
        Which neighbour's distance is the width.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Examples
    --------
    >>> import torch
    >>> MAGICAffinity(K=1)(torch.tensor([[0.0], [1.0], [3.0]])).sum(1).tolist()
    [1.0, 1.0, 1.0]
    """

    K: int = 7
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None

    def __post_init__(self) -> None:
        checks.count(self.K, "K")
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n), detached from X."""
        with no_grad(), torch.no_grad():
            X, given = data.opened(X, self.metric, self.device)
            checks.neighbours_fit(self.K, "K", given.rows.count)
            C = data.distance_matrix(X, given, self.metric, self.device)
            log_A = -ratio(C, data.kth_smallest(C, self.K)[:, None])
            both = diagonal_out(torch.logaddexp(log_A, log_A.T) - math.log(2), self.zero_diag)
            return data.like(X, given, answer(_summed(both, 1, self.zero_diag), log))


def ratio(C: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    """C over its width; where that is 0 (more equal rows than neighbours asked for), 0 for equals and else infinity."""
    return torch.where(C > 0, C / width, 0.0)


def _summed(log_K: torch.Tensor, dims: Dims, zero_diag: bool) -> torch.Tensor:
    """Normalised with marginals of one; a row without any weight (its widths all 0, no equals) stays so."""
    out: torch.Tensor = normalised(log_K, dims, zero_diag, marginal=1.0)
    return torch.where(torch.isnan(out), -torch.inf, out)
