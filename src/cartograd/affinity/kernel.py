"""The kernels by themselves: Gaussian and Student, of fixed width, without normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.recorded import is_recorded, recorded_distances
from cartograd.engine import no_grad


@dataclass(frozen=True)
class GaussianAffinity:
    r"""The Gaussian kernel :math:`P_{ij} = \exp(-C_{ij} / \sigma)`: symmetric, between 0 and 1.

    Parameters
    ----------
    sigma : float, default=1.0
        Its width, in units of C.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself (otherwise 1).
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Examples
    --------
    >>> import torch
    >>> GaussianAffinity(sigma=0.5)(torch.tensor([[0.0], [1.0]]), log=True)[0, 1].item()
    -2.0
    """

    sigma: float = 1.0
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None

    def __post_init__(self) -> None:
        checks.number(self.sigma, "sigma", 0.0, strict=True)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n): a Tensor that leads back to X where that is a Tensor that requires grad."""
        return answer(log_kernel(X, self, gaussian(self.sigma)), log)


@dataclass(frozen=True)
class StudentAffinity:
    r"""The Student kernel :math:`P_{ij} = (1 + C_{ij} / \nu)^{-(\nu + 1) / 2}`: symmetric, between 0 and 1.

    Parameters
    ----------
    degrees_of_freedom : float, default=1.0
        :math:`\nu`; 1 is t-SNE's.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself (otherwise 1).
    device : torch.device or str, default=None
        Where to compute; None for where the data are.

    Examples
    --------
    >>> import torch
    >>> StudentAffinity()(torch.tensor([[0.0], [1.0]])).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """

    degrees_of_freedom: float = 1.0
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None

    def __post_init__(self) -> None:
        checks.number(self.degrees_of_freedom, "degrees_of_freedom", 0.0, strict=True)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n): a Tensor that leads back to X where that is a Tensor that requires grad."""
        return answer(log_kernel(X, self, student(self.degrees_of_freedom)), log)


def gaussian(sigma: float) -> Any:
    r""":math:`C \mapsto -C / \sigma`."""
    return lambda C: -C / sigma


def student(dof: float) -> Any:
    r""":math:`C \mapsto -\frac{\nu + 1}{2} \log(1 + C / \nu)`."""
    return lambda C: torch.log1p(C / dof) * (-(dof + 1) / 2)


def log_kernel(X: Any, affinity: Any, of_distances: Any) -> Any:
    """log K for an affinity with the fields metric, zero_diag and device; recorded where X is."""
    if is_recorded(X):
        return diagonal_out(of_distances(recorded_distances(X, affinity.metric)), affinity.zero_diag)
    with no_grad(), torch.no_grad():
        X, given = data.opened(X, affinity.metric, affinity.device)
        C = data.distance_matrix(X, given, affinity.metric, affinity.device)
        return data.like(X, given, diagonal_out(of_distances(C), affinity.zero_diag))


def diagonal_out(log_K: Any, zero_diag: bool) -> Any:
    """Minus infinity on the diagonal, where wanted."""
    if not zero_diag:
        return log_K
    own = torch.eye(log_K.shape[0], dtype=torch.bool, device=log_K.device)
    return torch.masked_fill(log_K, own, -torch.inf)


def answer(log_P: Any, log: bool) -> Any:
    """The logarithms, or what they are of."""
    return log_P if log else torch.exp(log_P)
