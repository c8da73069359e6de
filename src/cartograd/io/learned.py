"""What the rows of a map teach about their columns, so that later rows are read like them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy

from cartograd.errors import InputError, ModelFileError
from cartograd.io.table import Table

MOST_VALUES = 2**27
"""Figures of larger tables are not learned: the medians of so many values take seconds."""


@dataclass(frozen=True)
class Learned:
    """Figures that fill gaps, and the values of categories.

    Parameters
    ----------
    names : sequence of str
        The columns of numbers, in the order of the features.
    means, medians : sequence of float
        A figure for each of them; NaN where the column had no value. Empty where none were learned.
    categories : dict of str to list
        The values of each column that became one feature for each value, in the order of the features.
    """

    names: Sequence[str]
    means: Sequence[float] = ()
    medians: Sequence[float] = ()
    categories: dict[str, list[Any]] = field(default_factory=dict)

    def figure(self, name: str, missing: str) -> float:
        """Return what fills a gap of a column; `missing` is "mean" or "median"."""
        figures = dict(zip(self.names, self.means if missing == "mean" else self.medians, strict=False))
        figure = figures.get(name, math.nan)
        if math.isnan(figure):
            raise InputError(f"column {name!r} has a gap, and the map was made without a {missing} of that column")
        return figure

    def renamed(self, names: Sequence[str]) -> Learned:
        """Return the same figures for columns of other names, in the same order."""
        return replace(self, names=list(names))

    def plain(self) -> dict[str, Any]:
        """Return everything but the names as lists and dictionaries, for the header of a model file."""
        return {"means": list(self.means), "medians": list(self.medians), "categories": dict(self.categories)}


def learn(table: Table) -> Learned:
    """Learn from a table that was read; values that were filled in do not count.

    Parameters
    ----------
    table : Table
        What `cartograd.io.read` gave.

    Examples
    --------
    >>> from cartograd.io import read
    >>> table = read(numpy.array([[1.0, 5.0], [numpy.nan, 6.0], [3.0, 8.0]]), missing="mean")
    >>> learn(table).means, learn(table).medians
    ([2.0, 6.333333333333333], [2.0, 6.0])
    """
    made = sum(map(len, table.categories.values()))
    names = table.feature_names[: len(table.feature_names) - made]
    if len(table) * len(names) > MOST_VALUES:
        return Learned(names, categories=table.categories)
    there = [_present(table, place) for place in range(len(names))]
    return Learned(names, [mean(column) for column in there], [median(column) for column in there], table.categories)


def restore(names: Sequence[str], plain: Any) -> Learned:
    """Return what a model file holds of `Learned.plain`; anything else is refused."""
    parts: dict[str, Any] = plain if isinstance(plain, dict) else {}
    means, medians, categories = parts.get("means"), parts.get("medians"), parts.get("categories")
    if _are_figures(means) and _are_figures(medians) and _are_lists(categories):
        made = sum(len(values) for values in categories.values())
        count = len(names) - made
        if count >= 0 and len(means) in (0, count) and len(medians) in (0, count):
            return Learned(list(names)[:count], means, medians, categories)
    raise ModelFileError("what the model holds of the columns of its rows is damaged; make the map anew")


def mean(values: Any) -> float:
    """Return the mean of numbers, NaN where there are none."""
    return float(values.astype(numpy.float64).mean()) if len(values) else math.nan


def median(values: Any) -> float:
    """Return the median of numbers, NaN where there are none."""
    return float(numpy.median(values.astype(numpy.float64))) if len(values) else math.nan


def category_key(value: Any) -> str:
    """Return by what a category is recognized: 1, 1.0 and "1" are the same.

    Examples
    --------
    >>> category_key(1.0), category_key("1"), category_key(True), category_key(0.5)
    ('1', '1', 'True', '0.5')
    """
    number = isinstance(value, (float, numpy.floating)) and value == value and abs(value) != math.inf
    return str(int(value)) if number and float(value).is_integer() else str(value)


def _present(table: Table, place: int) -> Any:
    column = table.X[:, place]
    return column if table.gaps is None else column[~table.gaps[:, place]]


def _are_lists(categories: Any) -> TypeGuard[dict[str, list[Any]]]:
    return isinstance(categories, dict) and all(
        isinstance(name, str) and isinstance(values, list) for name, values in categories.items()
    )


def _are_figures(figures: Any) -> TypeGuard[list[float]]:
    return isinstance(figures, list) and all(type(figure) in (float, int) for figure in figures)
