r"""The one root search: all rows at once, bracketed, to full precision, without waiting for the device at each step.

Bandwidths are sought as :math:`u = \log \beta`, in which entropies and sums of memberships fall like sigmoids: halving
brings every row into a bracket where Newton's steps converge, and Newton's steps, kept inside the bracket, do the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

NARROW = 0.25
"""The width of the bracket at which halving ends and Newton's steps begin."""
NEWTON_STEPS = 9
FLAT, STEEP = 1e-9, 800.0
r"""Where :math:`e^{-\beta d}` is 1, and where it is 0, to the last digit of float64."""


def falling_root(
    function: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], low: torch.Tensor, high: torch.Tensor
) -> torch.Tensor:
    """The root of a falling function of one variable for each row, or the end of its bracket that comes nearest to one.

    Parameters
    ----------
    function : callable
        ``function(u)``, (n,) float64, to its values and its slopes, (n,) each.
    low, high : torch.Tensor
        (n,) float64, the brackets.

    Returns
    -------
    root : torch.Tensor
        (n,) float64.
    """
    if not len(low):
        return low
    halvings = torch.ceil(torch.log2((high - low).clamp(min=NARROW) / NARROW))  # each row's own: not its neighbours'
    u = (low + high) / 2
    for number in range(int(halvings.max())):  # the only wait: the number of steps is fixed from here on
        value, _ = function(u)
        wide = halvings > number
        low, high = torch.where(wide & (value > 0), u, low), torch.where(wide & (value <= 0), u, high)
        u = (low + high) / 2
    best, error = u, torch.full_like(u, torch.inf)
    for _ in range(NEWTON_STEPS):
        value, slope = function(u)
        closer = value.abs() <= error
        best, error = torch.where(closer, u, best), torch.where(closer, value.abs(), error)
        low, high = torch.where(value > 0, u, low), torch.where(value > 0, high, u)
        step = u - value / slope.clamp(max=-1e-300)
        u = torch.where((step > low) & (step < high), step, (low + high) / 2)
    return best


def bracket(excess: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Where :math:`\log \beta` can be, for a function of :math:`e^{-\beta d}`.

    Parameters
    ----------
    excess : torch.Tensor
        (n, m) float64, distances :math:`d \ge 0`, of which only the positive ones matter.

    Returns
    -------
    low, high : torch.Tensor
        (n,) each: from all terms being 1 to all terms with d > 0 being 0; both 0 for a row without any d > 0.
    """
    largest = excess.amax(1)
    smallest = torch.where(excess > 0, excess, torch.inf).amin(1)
    some = largest > 0
    one = torch.ones_like(largest)
    low = math.log(FLAT) - torch.log(torch.where(some, largest, one))
    high = math.log(STEEP) - torch.log(torch.where(some, smallest, one))
    return torch.where(some, low, 0.0), torch.where(some, high, 0.0)
