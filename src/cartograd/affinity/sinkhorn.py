"""The doubly stochastic affinity: a kernel scaled so that every row and column sums to the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.kernel import answer, diagonal_out
from cartograd.affinity.newton import Convex, minimise, newton_step, said
from cartograd.affinity.recorded import is_recorded, recorded_distances
from cartograd.engine import no_grad, primitive

KERNELS = ("gaussian", "student")
CHECK_EVERY = 8
NEWTON_STEPS, SCALINGS_BETWEEN, COOLING, ROUGHLY = 100, 10, 3.0, 1e-2
RIDGE = 1e-12
"""Keeps I + M invertible where a part of the kernel is bipartite (two rows, say); its own effect is as small."""


@dataclass(frozen=True)
class SinkhornAffinity:
    r"""The symmetric doubly stochastic scaling of a kernel.

    .. math:: P_{ij} = \frac{1}{n} e^{f_i} K_{ij} e^{f_j}, \qquad \sum_j P_{ij} = \sum_i P_{ij} = \frac{1}{n}

    with :math:`K_{ij} = \exp(-C_{ij} / \varepsilon)`, or :math:`(1 + C_{ij})^{-1/\varepsilon}` for the Student kernel.

    Parameters
    ----------
    eps : float, default=1.0
        Its width: the larger, the more even P.
    tol : float, default=1e-10
        How far a row of n P may be from summing to one. All is computed in float64.
    max_iter : int, default=100
        How many scalings to do at most; Newton's method finishes where they were not enough.
    base_kernel : {"gaussian", "student"}, default="gaussian"
        Which K.
    with_grad : bool, default=False
        Whether P leads back to X, a Tensor that requires grad (by the implicit function theorem).
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
    >>> P = SinkhornAffinity(zero_diag=False)(torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64))
    >>> bool((3 * P.sum(0) - 1).abs().max() < 1e-9), bool((P - P.T).abs().max() < 1e-12)
    (True, True)
    """

    eps: float = 1.0
    tol: float = 1e-10
    max_iter: int = 100
    base_kernel: str = "gaussian"
    with_grad: bool = False
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
        """(n, n): a Tensor that leads back to X where `with_grad` and X is a Tensor that requires grad."""
        if self.with_grad and is_recorded(X):
            if self.zero_diag:
                checks.at_least_two(len(X))
            log_K = diagonal_out(self._log_kernel(recorded_distances(X, self.metric)), self.zero_diag)
            return answer(doubly_stochastic(log_K, self.tol, self.max_iter), log)
        with no_grad(), torch.no_grad():
            X, given = data.opened(X, self.metric, self.device)
            if self.zero_diag:
                checks.at_least_two(given.rows.count)
            C = data.distance_matrix(X, given, self.metric, self.device)
            log_K = diagonal_out(self._log_kernel((C + C.T) / 2), self.zero_diag)
            return data.like(X, given, answer(scaled(log_K, self.tol, self.max_iter, self.verbose), log))

    def _log_kernel(self, C: Any) -> Any:
        return -(C if self.base_kernel == "gaussian" else torch.log1p(C)) / self.eps


def scaled(log_K: torch.Tensor, tol: float, max_iter: int, verbose: bool = False) -> torch.Tensor:
    r"""log P by the averaged iteration :math:`f \leftarrow (f - \log \sum_j K_{ij} e^{f_j}) / 2`.

    At its fixed point rows sum to one. For a kernel with a full diagonal the error is halved at least each time;
    where it falls too slowly Newton's method finishes.
    """
    f = torch.zeros(len(log_K), dtype=log_K.dtype, device=log_K.device)
    for step in range(max_iter):
        reduced = -torch.logsumexp(log_K + f, 1)
        if step % CHECK_EVERY == 0 and bool(torch.expm1(f - reduced).abs().max() < tol):
            break
        f = (f + reduced) / 2
    else:
        f = _annealed(log_K, tol, verbose)
    return f[:, None] + f[None, :] + log_K - math.log(len(log_K))


def _annealed(log_K: torch.Tensor, tol: float, verbose: bool) -> torch.Tensor:
    """The scaling by Newton's method, of a kernel made ever narrower: from each the next is near."""
    seen = torch.where(torch.isfinite(log_K), -log_K, 0.0)
    heat = max(1.0, float(seen.median()) / 5)
    f = torch.zeros(len(log_K), dtype=log_K.dtype, device=log_K.device)
    while True:
        warm = log_K / heat
        for _ in range(SCALINGS_BETWEEN):
            f = (f - torch.logsumexp(warm + f, 1)) / 2
        f, gap = minimise(_dual(warm), f, tol if heat == 1 else ROUGHLY, NEWTON_STEPS, verbose=verbose)
        if heat == 1:
            said(gap, tol, "Sinkhorn affinity")
            return f
        cooler = max(1.0, heat / COOLING)
        f, heat = f * (heat / cooler), cooler


def _dual(log_K: torch.Tensor) -> Convex:
    r""":math:`\frac12 \sum_{ij} e^{f_i + f_j} K_{ij} - \sum_i f_i`, whose gradient is the row sums less one.

    Its minimum is the same scaling, found fast where the iteration is slow: no diagonal and a narrow kernel.
    """

    def M(f: torch.Tensor) -> torch.Tensor:
        return torch.exp(f[:, None] + f[None, :] + log_K)

    def direction(f: torch.Tensor, gradient: torch.Tensor, ridge: float) -> torch.Tensor:
        hessian = M(f)
        degree = hessian.sum(1)
        hessian.diagonal().add_(degree * (1 + ridge + RIDGE))
        return newton_step(hessian, gradient)

    return Convex(lambda f: M(f).sum() / 2 - f.sum(), lambda f: M(f).sum(1) - 1, direction)


@primitive()
def doubly_stochastic(log_K: torch.Tensor, tol: float, max_iter: int) -> torch.Tensor:
    r"""log P with :math:`\log P_{ij} = f_i + f_j + \log K_{ij} - \log n`, f such that the rows of M = n P sum to one.

    Then :math:`(I + M) df = -\sum_j M_{ij}\, d\log K_{ij}`, so with :math:`(I + M)^T a = \sum_j (g_{ij} + g_{ji})`,
    d/dlogK_ij = g_ij - a_i M_ij
    """
    return scaled(log_K.to(torch.float64), tol, max_iter).to(log_K.dtype)


@doubly_stochastic.vjp("log_K")
def _(g: Any, out: Any) -> Any:
    n = out.shape[0]
    M = torch.exp(out) * n
    system = M.mT + (1 + RIDGE) * torch.eye(n, dtype=out.dtype, device=out.device)
    a = torch.linalg.solve(system, (g.sum(1) + g.sum(0))[:, None])
    return g - a * M


@doubly_stochastic.example
def _(make: Any) -> Any:
    return make(4, 4), 1e-13, 1000
