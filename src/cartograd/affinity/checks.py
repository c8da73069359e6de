"""What can be wrong with the parameters of an affinity, each with its message, checked before any work."""

from __future__ import annotations

import math

from cartograd.core.checks import choice as choice
from cartograd.core.checks import count as count
from cartograd.core.checks import number as number
from cartograd.errors import OptionError


def perplexity_fits(perplexity: float, n: int) -> None:
    """Refuse a perplexity that n - 1 neighbours cannot reach."""
    if perplexity > n - 1:
        advice = f"use perplexity <= {n - 1}" if n > 1 else "give at least 2 rows"
        raise OptionError(
            f"perplexity={perplexity:g} is too large for {n} rows: a row has {n - 1} neighbours, so the largest that "
            f"fits is {max(n - 1, 0)}; {advice}"
        )


def perplexity_fits_neighbours(perplexity: float, k: int) -> None:
    """Refuse a perplexity that the k neighbours given cannot reach."""
    if perplexity > k:
        raise OptionError(
            f"perplexity={perplexity:g} is too large for the {k} neighbours of each row in knn: the largest that fits "
            f"is {k}; search for {math.ceil(3 * perplexity)}"
        )


def neighbours_fit(k: int, name: str, n: int, with_self: bool = False) -> None:
    """Refuse more neighbours than there are rows."""
    largest = n if with_self else n - 1
    if k > largest:
        reason = "the row itself is counted" if with_self else "a row is not its own neighbour"
        advice = f"use {name} <= {largest}" if largest > 0 else "give more rows"
        raise OptionError(f"{name}={k} is too large for {n} rows ({reason}): {advice}")


def at_least_two(n: int) -> None:
    """Refuse a single row: it has no neighbour to be alike to."""
    if n < 2:
        raise OptionError(f"an affinity needs at least 2 rows, got {n}")
