"""The doubly stochastic affinity of least squares: sparse by itself, most similarities are exactly zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.newton import Convex, minimise, newton_step, said
from cartograd.affinity.sinkhorn import KERNELS
from cartograd.engine import no_grad


@dataclass(frozen=True)
class DoublyStochasticQuadraticAffinity:
    r"""The doubly stochastic matrix of least cost plus squared size.

    .. math:: P_{ij} = \frac{1}{n \varepsilon} \max(f_i + f_j - C_{ij}, 0), \qquad \sum_j P_{ij} = \frac1n

    The f are the minimum of the convex :math:`\frac{1}{4 \varepsilon} \sum_{ij} \max(f_i + f_j - C_{ij}, 0)^2 -
    \sum_i f_i`, found by Newton's method. Symmetric; C is replaced by :math:`\log(1 + C)` for the Student kernel.

    Parameters
    ----------
    eps : float, default=1.0
        Its width: the larger, the more even P and the fewer zeros.
    tol : float, default=1e-10
        How far a row of n P may be from summing to one. All is computed in float64.
    max_iter : int, default=200
        How many steps at most; the log says when the tolerance was not reached by then.
    base_kernel : {"gaussian", "student"}, default="gaussian"
        Which C.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    zero_diag : bool, default=True
        Whether a row has no similarity to itself.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.
    verbose : bool, default=False
        Whether to show progress bars.

    Examples
    --------
    >>> import torch
    >>> P = DoublyStochasticQuadraticAffinity()(torch.tensor([[0.0], [1.0], [9.0], [10.0]])) * 4
    >>> [[round(float(p), 4) for p in row] for row in P]
    [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]]
    """

    eps: float = 1.0
    tol: float = 1e-10
    max_iter: int = 200
    base_kernel: str = "gaussian"
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None
    verbose: bool = False

    def __post_init__(self) -> None:
        checks.number(self.eps, "eps", 0.0, strict=True)
        checks.number(self.tol, "tol", 0.0, strict=True)
        checks.count(self.max_iter, "max_iter")
        checks.choice(self.base_kernel, "base_kernel", KERNELS)
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n), detached from X."""
        with no_grad(), torch.no_grad():
            X, given = data.opened(X, self.metric, self.device)
            if self.zero_diag:
                checks.at_least_two(given.rows.count)
            C = data.distance_matrix(X, given, self.metric, self.device)
            C = torch.log1p(C) if self.base_kernel == "student" else C
            P = self._solve((C + C.T) / (2 * self.eps))
            return data.like(X, given, P.log() - math.log(len(P)) if log else P / len(P))

    def _solve(self, C: torch.Tensor) -> torch.Tensor:
        """P with rows that sum to one, of C in units of eps."""
        C = C.clone().fill_diagonal_(torch.inf) if self.zero_diag else C
        n = len(C)

        def P(f: torch.Tensor) -> torch.Tensor:
            return (f[:, None] + f[None, :] - C).clamp_(min=0)

        def direction(f: torch.Tensor, gradient: torch.Tensor, ridge: float) -> torch.Tensor:
            active = (P(f) > 0).to(f.dtype)
            degree = active.sum(1)
            hessian = active + torch.diag(degree * (1 + ridge) + (degree == 0) + 1e-10)
            return newton_step(hessian, gradient)

        convex = Convex(lambda f: P(f).square().sum() / 4 - f.sum(), lambda f: P(f).sum(1) - 1, direction)
        nearest = C.amin(1)  # from there each row has its nearest neighbour, and so some weight
        f, gap = minimise(convex, nearest + 1.0 / n, self.tol, self.max_iter, verbose=self.verbose)
        said(gap, self.tol, "doubly stochastic quadratic affinity")
        return P(f)
