"""The symmetric entropic affinity: every row has the same perplexity, and P is symmetric and doubly stochastic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.entropic_rows import solve_rows
from cartograd.affinity.kernel import answer
from cartograd.affinity.newton import Convex, minimise, newton_step, said
from cartograd.affinity.recorded import off_diagonal
from cartograd.engine import no_grad

BARRIERS = (1e-2, 1e-4, 1e-6, 1e-8)


@dataclass(frozen=True)
class SymmetricEntropicAffinity:
    r"""The symmetric matrix of least cost whose rows sum to 1/n and have a given perplexity (SNEkhorn).

    .. math:: \min_P \sum_{ij} P_{ij} C_{ij} \quad\text{such that}\quad n P = n P^T,\; \sum_j n P_{ij} = 1,\;
        H(n P_i) \ge \log(\mathrm{perplexity})

    Entropies are equal to that bound wherever a symmetric matrix can have them all so; rows that many others are
    nearest to (a perplexity of 5 in 50 dimensions, say) may have more. The solution is
    :math:`\log n P_{ij} = (\mu_i + \mu_j - 2 C_{ij}) / (\gamma_i + \gamma_j)`; its multipliers are the minimum of the
    convex :math:`\frac12 \sum_{ij} (\gamma_i + \gamma_j) n P_{ij} - \sum_i \mu_i + \gamma_i
    (1 + \log \mathrm{perplexity})`, found by Newton's method from those of `EntropicAffinity`.

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours a row is effectively similar to, between 1 and n - 1, whole or not.
    tol : float, default=1e-9
        How far row sums and entropies may be off. All is computed in float64.
    max_iter : int, default=200
        How many steps at most; the log says when the tolerance was not reached by then.
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
    >>> X = torch.tensor([[0.0], [1.0], [3.0], [4.0], [6.0]], dtype=torch.float64)
    >>> P = SymmetricEntropicAffinity(perplexity=3)(X) * 5
    >>> perplexities = torch.special.entr(P).sum(1).exp()
    >>> bool((P.sum(0) - 1).abs().max() < 1e-8), round(float(perplexities.min()), 8)
    (True, 3.0)
    """

    perplexity: float = 30.0
    tol: float = 1e-9
    max_iter: int = 200
    metric: data.MetricLike = "sqeuclidean"
    zero_diag: bool = True
    device: data.DeviceLike = None
    verbose: bool = False

    def __post_init__(self) -> None:
        checks.number(self.perplexity, "perplexity", 1.0)
        checks.number(self.tol, "tol", 0.0, strict=True)
        checks.count(self.max_iter, "max_iter")
        data.check_source(self.metric)

    def __call__(self, X: Any, log: bool = False) -> Any:
        """(n, n), detached from X."""
        with no_grad(), torch.no_grad():
            X, given = data.opened(X, self.metric, self.device)
            checks.perplexity_fits(self.perplexity, given.rows.count)
            C = data.distance_matrix(X, given, self.metric, self.device)
            log_P = self._solve((C + C.T) / 2) - math.log(len(C))
            return data.like(X, given, answer(log_P, log))

    def _solve(self, C: torch.Tensor) -> torch.Tensor:
        scale = float(C.mean())
        C = C / scale if scale > 0 else C
        dual = Dual(C, math.log(self.perplexity), self.zero_diag)
        x, gap = self._along_barrier(dual, dual.start(self.perplexity))
        said(gap, self.tol, "symmetric entropic affinity")
        return dual.log_P(x)

    def _along_barrier(self, dual: Dual, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A barrier that fades keeps gammas positive; from near the end plain steps reach the tolerance."""
        for weight in BARRIERS:
            x, _ = minimise(dual.convex(weight), x, weight, self.max_iter, verbose=self.verbose)
            found, gap = minimise(dual.convex(0.0), x, self.tol, self.max_iter, patience=3, verbose=self.verbose)
            if gap < self.tol:
                return found, gap
        # a gamma that shrinks with the barrier has nothing to hold it: that row's entropy is above the bound
        return minimise(
            dual.convex(0.0, x[: dual.n] < math.sqrt(weight)),
            x,
            self.tol,
            self.max_iter,
            patience=9,
            verbose=self.verbose,
        )


class Dual:
    """The dual problem in x = (gamma, mu), (2n,)."""

    def __init__(self, C: torch.Tensor, entropy: float, zero_diag: bool) -> None:
        self.C, self.n, self.zero_diag = C, len(C), zero_diag
        self.target = 1 + entropy
        self.own = torch.eye(self.n, dtype=torch.bool, device=C.device)

    def convex(self, barrier: float, fixed: torch.Tensor | None = None) -> Convex:
        """The function to minimise, less `barrier` times the sum of the logarithms of gamma; some may be fixed."""
        still = torch.zeros(2 * self.n, dtype=torch.bool, device=self.C.device)
        if fixed is not None:
            still[: self.n] = fixed
        return Convex(
            lambda x: self.value(x, barrier),
            lambda x: self.slope(x, barrier).masked_fill(still, 0.0),
            lambda x, gradient, ridge: self.direction(x, gradient, ridge, barrier, still),
        )

    def start(self, perplexity: float) -> torch.Tensor:
        r""":math:`\gamma_i = \varepsilon_i, \mu_i = -\varepsilon_i \log Z_i` of the entropic affinity.

        log P is then a mean of the two conditional ones, so nothing is large.
        """
        D = off_diagonal(self.C) if self.zero_diag else self.C
        log_p = solve_rows(D, perplexity)
        p = log_p.exp()
        centred = D - (p * D).sum(1, keepdim=True)
        variance = (p * centred * centred).sum(1)
        beta = -(p * centred * log_p).sum(1) / torch.where(variance > 0, variance, 1.0)
        gamma = (1 / beta.clamp(min=1e-6)).clamp(min=1e-3 * float(D.mean()) + 1e-6)
        mu = -gamma * torch.logsumexp(-D / gamma[:, None], 1)
        return torch.cat([gamma, mu])

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """gamma_i + gamma_j, and log P; 1 and minus infinity on a diagonal that is left out."""
        gamma, mu = x[: self.n], x[self.n :]
        s = gamma[:, None] + gamma[None, :]
        s = s.masked_fill(self.own, 1.0) if self.zero_diag else s
        log_P = (mu[:, None] + mu[None, :] - 2 * self.C) / s
        return s, log_P.masked_fill(self.own, -torch.inf) if self.zero_diag else log_P

    def log_P(self, x: torch.Tensor) -> torch.Tensor:
        """log P at x."""
        return self.parts(x)[1]

    def value(self, x: torch.Tensor, barrier: float) -> torch.Tensor:
        """The dual function; infinite where a sum of two gammas (with a barrier, any of them) is not positive."""
        s, log_P = self.parts(x)
        gamma, mu = x[: self.n], x[self.n :]
        value = (s * log_P.exp()).sum() / 2 - mu.sum() - self.target * gamma.sum()
        if barrier:
            value = value - barrier * gamma.log().sum()
        return torch.where((s > 0).all() & torch.isfinite(value), value, torch.inf)

    def slope(self, x: torch.Tensor, barrier: float) -> torch.Tensor:
        """Entropies plus one less what they should be, and row sums less one."""
        P = self.parts(x)[1].exp()
        entropy = P.sum(1) + torch.special.entr(P).sum(1)
        push = barrier / x[: self.n] if barrier else 0.0
        return torch.cat([entropy - self.target - push, P.sum(1) - 1])

    def direction(
        self, x: torch.Tensor, gradient: torch.Tensor, ridge: float, barrier: float, still: torch.Tensor
    ) -> torch.Tensor:
        r"""Newton's step: the second-order term is :math:`\frac14 \sum_{ij} \frac{P_{ij}}{s_{ij}}
        (d\mu_i + d\mu_j - \log P_{ij} (d\gamma_i + d\gamma_j))^2`.
        """
        s, log_P = self.parts(x)
        W = log_P.exp() / s
        logs = torch.where(W > 0, log_P, 0.0)
        blocks = [matrix + torch.diag(matrix.sum(1)) for matrix in (W * logs * logs, -W * logs, W)]
        hessian = torch.cat([torch.cat(blocks[:2], 1), torch.cat(blocks[1:], 1)], 0)
        hessian = hessian.masked_fill_(still[:, None] | still[None, :], 0.0)
        diagonal = hessian.diagonal()
        diagonal.masked_fill_(still, 1.0)
        if barrier:
            diagonal[: self.n] += barrier / x[: self.n].square()
        diagonal.add_(ridge * diagonal + 1e-300)
        return newton_step(hessian, gradient)
