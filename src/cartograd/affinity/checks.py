"""What can be wrong with the parameters of an affinity, each with its message, checked before any work."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy

from cartograd.errors import OptionError, UnsupportedError


def number(value: Any, name: str, low: float, strict: bool = False, high: float = math.inf) -> float:
    """`value` as a float of at least `low` (above it if `strict`) and at most `high`."""
    if isinstance(value, (bool, numpy.bool_)) or not isinstance(value, (Real, numpy.number)):
        raise UnsupportedError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    given = float(value)
    if not (given > low if strict else given >= low) or given > high or not math.isfinite(given):
        bound = f"above {low:g}" if strict else f"at least {low:g}"
        top = f" and at most {high:g}" if high < math.inf else ""
        raise OptionError(f"{name} must be {bound}{top} and finite, got {value!r}")
    return given


def count(value: Any, name: str, low: int = 1) -> int:
    """`value` as an int of at least `low`."""
    if isinstance(value, (bool, numpy.bool_)) or not hasattr(value, "__index__"):
        raise UnsupportedError(f"{name} must be a whole number, got {value!r} of type {type(value).__name__}")
    given = operator.index(value)
    if given < low:
        raise OptionError(f"{name} must be at least {low}, got {given}")
    return given


def choice(value: Any, name: str, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not among those known."""
    if not any(value is one or (type(value) is type(one) and value == one) for one in known):
        raise OptionError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


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
