"""Gaussian and Student kernels that sum to one: all together, or in each row or column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.kernel import answer, gaussian, log_kernel, student

Dims: TypeAlias = int | tuple[int, ...] | None
KNOWN_DIMS = ((0, 1), 0, 1, None)


@dataclass(frozen=True)
class NormalizedGaussianAffinity:
    r""":math:`P_{ij} = \exp(-C_{ij} / \sigma) / Z`.

    Parameters
    ----------
    sigma : float, default=1.0
        Its width, in units of C.
    normalization_dim : {(0, 1), 0, 1, None}, default=(0, 1)
        Z is the sum over both indices, so that P sums to one; or n times that over one of them, so that each row
        (1) or column (0) sums to 1/n; or there is no Z.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Examples
    --------
    >>> import torch
    >>> NormalizedGaussianAffinity()(torch.tensor([[0.0], [1.0]])).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """

    sigma: float = 1.0
    normalization_dim: Dims = (0, 1)
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None

    def __post_init__(self) -> None:
        checks.number(self.sigma, "sigma", 0.0, strict=True)
        checks.choice(self.normalization_dim, "normalization_dim", KNOWN_DIMS)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n): a Tensor that leads back to X where that is a Tensor that requires grad."""
        log_K = log_kernel(X, self, gaussian(self.sigma))
        return answer(normalised(log_K, self.normalization_dim, self.zero_diag), log)


@dataclass(frozen=True)
class NormalizedStudentAffinity:
    r""":math:`P_{ij} = (1 + C_{ij} / \nu)^{-(\nu + 1) / 2} / Z`.

    Parameters
    ----------
    degrees_of_freedom : float, default=1.0
        :math:`\nu`; 1 is t-SNE's.
    normalization_dim : {(0, 1), 0, 1, None}, default=(0, 1)
        As for `NormalizedGaussianAffinity`.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Examples
    --------
    >>> import torch
    >>> NormalizedStudentAffinity()(torch.tensor([[0.0], [1.0]])).sum().item()
    1.0
    """

    degrees_of_freedom: float = 1.0
    normalization_dim: Dims = (0, 1)
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None

    def __post_init__(self) -> None:
        checks.number(self.degrees_of_freedom, "degrees_of_freedom", 0.0, strict=True)
        checks.choice(self.normalization_dim, "normalization_dim", KNOWN_DIMS)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n): a Tensor that leads back to X where that is a Tensor that requires grad."""
        log_K = log_kernel(X, self, student(self.degrees_of_freedom))
        return answer(normalised(log_K, self.normalization_dim, self.zero_diag), log)


def normalised(log_K: Any, dims: Dims, zero_diag: bool, marginal: float | None = None) -> Any:
    """log K less the log of its sums over `dims`; over one of them the sums become `marginal`, 1/n for None."""
    n = log_K.shape[0]
    if zero_diag:
        checks.at_least_two(n)
    if dims is None:
        return log_K
    if isinstance(dims, tuple):
        return log_K - torch.logsumexp(log_K, dims)
    log_K = log_K - torch.logsumexp(log_K, dims, keepdim=True)
    return log_K + math.log(1 / n if marginal is None else marginal)
