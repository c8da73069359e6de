"""Newton's method for a smooth convex function of many variables, with steps that only ever go down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.neighbors.progress import steps

log_of = logging.getLogger("cartograd.affinity")
HALVINGS = 40


@dataclass(frozen=True)
class Convex:
    """A convex function, in the pieces that `minimise` needs.

    Parameters
    ----------
    value : callable
        x, (m,) float64, to the function's value, a scalar tensor; infinite or NaN outside its domain.
    slope : callable
        x to the gradient, (m,), whose largest element is what the tolerance is about.
    direction : callable
        (x, gradient, ridge) to Newton's step, (m,).
    """

    value: Callable[[torch.Tensor], torch.Tensor]
    slope: Callable[[torch.Tensor], torch.Tensor]
    direction: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]


def newton_step(hessian: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The solution of hessian @ step = -gradient, by Cholesky; each element on its own where that fails."""
    factor, failed = torch.linalg.cholesky_ex(hessian)
    step = torch.cholesky_solve(-gradient[:, None], factor)[:, 0]
    usable = (failed == 0) & torch.isfinite(step).all()
    return torch.where(usable, step, -gradient / hessian.diagonal())


def minimise(
    function: Convex,
    x: torch.Tensor,
    tol: float,
    max_iter: int,
    patience: int | None = None,
    verbose: bool = False,
) -> tuple[torch.Tensor, float]:
    """Where the largest element of the gradient is below `tol`, or the best point found, and that element.

    Parameters
    ----------
    function : Convex
        What to minimise.
    x : torch.Tensor
        (m,) float64, where to begin.
    tol : float
        When to stop.
    max_iter : int
        How many steps to take at most.
    patience : int, default=None
        Give up after this many steps in a row that had to be cut to a hundredth: the minimum is not inside the domain.
    verbose : bool, default=False
        Whether to show a progress bar.
    """
    best, best_gap, ridge, cut = x, torch.inf, 1e-14, 0
    for _ in steps(range(max_iter), max_iter, "affinity, Newton steps", verbose):
        gradient = function.slope(x)
        gap = float(gradient.abs().max())
        if gap < best_gap:
            best, best_gap = x, gap
        if gap < tol or cut == patience or ridge > 1.0:
            break
        size = _descend(function, x, gradient, step := function.direction(x, gradient, ridge))
        cut = cut + 1 if size < 0.01 else 0
        ridge = max(1e-14, ridge / 10) if size > 0 else ridge * 1e3
        x = x + size * step if size > 0 else x
    return best, best_gap


def said(gap: float, tol: float, name: str) -> None:
    """A line in the log where the tolerance was not reached."""
    if gap >= tol:
        log_of.warning("%s: its conditions hold within %.1e, not %.1e", name, gap, tol)


def _descend(function: Convex, x: torch.Tensor, gradient: torch.Tensor, step: torch.Tensor) -> float:
    """The first of 1, 1/2, 1/4, ... times the step that leads down far enough, or, near the end, to a smaller gradient.

    0 where none does.
    """
    here, along = function.value(x), gradient @ step
    if not bool(along < 0):
        return 0.0
    size, noise = 1.0, 1e-13 * (1 + here.abs())
    for _ in range(HALVINGS):
        there = x + size * step
        value = function.value(there)
        if bool(value <= here + 1e-4 * size * along):
            return size
        # within rounding of each other the values say nothing; the gradients still do
        if bool((value <= here + noise) & (function.slope(there).abs().max() < gradient.abs().max())):
            return size
        size /= 2
    return 0.0
