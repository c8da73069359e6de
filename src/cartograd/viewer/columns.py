"""A column of data: what it is (category, text, number, time) and its values in the form the page stores.

A column of strings becomes a table of its distinct values and one code for each row; the code after the last means
that the row has no value. Whole numbers of few distinct values are categories, too: cluster numbers, mostly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy

from cartograd.errors import InputError, UnsupportedError
from cartograd.viewer.points import plain_array

Kind = Literal["category", "text", "number", "time"]
FEW_NUMBERS = 20
"""Whole numbers of at most so many distinct values are categories."""
FEW_NAMES, SHORT_NAME, ALWAYS_FEW = 1000, 120, 12
"""Strings are categories if there are few of them and they are short; otherwise text."""
MISSING_TYPES = ("NAType", "NaTType")


@dataclass(frozen=True)
class Column:
    """One column, ready to be stored or drawn.

    Parameters
    ----------
    name : str
        What it is called.
    kind : {"category", "text", "number", "time"}
        How it is shown.
    values : numpy.ndarray
        (n,): codes into `names`, where ``len(names)`` is a missing value; or numbers, NaN where missing; times are
        milliseconds since 1970.
    names : list of str
        The distinct values of a category or text.
    unlabelled : int or None
        The code of the category -1, by which clusterings mean no cluster.
    """

    name: str
    kind: Kind
    values: Any
    names: list[str]
    unlabelled: int | None


def column(name: str, values: Any, count: int, *, kind: Kind | None = None) -> Column:
    """Recognise a column of `count` values.

    Parameters
    ----------
    name : str
        What to call it.
    values : sequence
        One value for each row: numbers, strings, truth values, dates; None, NaN and NaT are missing.
    count : int
        How many rows there are.
    kind : {"category", "text"} or None, default=None
        Take it as this; None looks at the values.

    Examples
    --------
    >>> found = column("kind", ["b", "a", None, "b"], 4)
    >>> found.kind, found.names, found.values.tolist()
    ('category', ['a', 'b'], [1, 0, 2, 1])
    >>> column("height", [1.5, None, 2.5, 1.0], 4).values.tolist()
    [1.5, nan, 2.5, 1.0]
    """
    array = _array(name, values, count)
    if array.dtype.kind == "M":
        return _of_times(name, array, kind)
    if array.dtype.kind in "biuf":
        return _of_numbers(name, array, kind)
    return _of_strings(name, [None if _is_missing(value) else str(value) for value in array], kind)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Order in which a reader expects names: c2 before c10, -1 before 0.

    Examples
    --------
    >>> sorted(["c10", "c2", "b"], key=natural_key)
    ['b', 'c2', 'c10']
    """
    try:
        return [(0, int(text), "")]
    except ValueError:
        pieces = re.split(r"([0-9]{1,15})", text.casefold())
        return [(1, int(piece), "") if index % 2 else (2, 0, piece) for index, piece in enumerate(pieces)]


def _array(name: str, values: Any, count: int) -> Any:
    """The values as one of numpy's plain kinds where they have one, otherwise as objects."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise UnsupportedError(
            f"column {name!r} must be a sequence of one value for each row, got {type(values).__name__}"
        )
    if hasattr(values, "to_pylist"):  # Arrow
        values = values.to_pylist()
    values = plain_array(values)
    if isinstance(values, numpy.ma.MaskedArray):
        values = values.tolist()
    if not isinstance(values, numpy.ndarray):
        values = _objects(list(values))
    if values.ndim != 1 or len(values) != count:
        raise InputError(
            f"column {name!r} must have one value for each of the map's {count} rows, got shape {values.shape}"
        )
    return _typed(values) if values.dtype == object else values


def _objects(values: Sequence[Any]) -> Any:
    plain = (value.item() if isinstance(value, numpy.generic) else value for value in values)
    return numpy.fromiter(plain, dtype=object, count=len(values))


def _typed(values: Any) -> Any:
    """Objects as numbers or times where each of them is one or is missing; as they are otherwise."""
    missing = numpy.fromiter((_is_missing(value) for value in values), bool, len(values))
    present = values[~missing]
    kinds = {type(value) for value in present}
    if not len(present):
        return values
    if all(issubclass(kind, (bool, numpy.bool_)) for kind in kinds):
        return values if missing.any() else values.astype(bool)
    if all(issubclass(kind, (int, float, numpy.number)) and not issubclass(kind, complex) for kind in kinds):
        if not missing.any() and all(issubclass(kind, (int, numpy.integer)) for kind in kinds):
            return values.astype(numpy.int64) if max(map(abs, present)) < 2**63 else values
        return numpy.where(missing, numpy.nan, values).astype(numpy.float64)
    if all(kind.__name__ in ("datetime", "date", "Timestamp") for kind in kinds) and not any(
        getattr(value, "tzinfo", None) for value in present
    ):
        return numpy.where(missing, numpy.datetime64("NaT"), values).astype("datetime64[ms]")
    return values


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in MISSING_TYPES:
        return True
    return isinstance(value, (float, numpy.floating)) and bool(value != value)


def _of_times(name: str, array: Any, kind: Kind | None) -> Column:
    if kind is not None:
        return _of_strings(name, [None if text == "NaT" else text for text in array.astype(str).tolist()], kind)
    milliseconds = array.astype("datetime64[ms]")
    numbers = milliseconds.astype(numpy.int64).astype(numpy.float64)
    return Column(name, "time", numpy.where(numpy.isnat(milliseconds), numpy.nan, numbers), [], None)


def _of_numbers(name: str, array: Any, kind: Kind | None) -> Column:
    missing = numpy.isnan(array) if array.dtype.kind == "f" else numpy.zeros(len(array), dtype=bool)
    whole = array.dtype.kind in "biu" or bool((array[~missing] == numpy.floor(array[~missing])).all())
    whole = whole and not numpy.isinf(array[~missing].astype(numpy.float64)).any()
    distinct = numpy.unique(array[~missing])
    if kind == "category" or (kind is None and whole and len(distinct) <= FEW_NUMBERS):
        names = [_number_name(value) for value in distinct.tolist()]
        codes = numpy.where(missing, len(names), numpy.searchsorted(distinct, array))
        noise = names.index("-1") if "-1" in names and names[0] == "-1" else None
        return Column(name, "category", codes, names, noise)
    if kind == "text" or (array.dtype.kind in "iu" and _beyond_float(distinct)):
        texts = [None if gone else _number_name(value) for value, gone in zip(array.tolist(), missing, strict=True)]
        return _of_strings(name, texts, "text")
    return Column(name, "number", array.astype(numpy.float64), [], None)


def _beyond_float(distinct: Any) -> bool:
    """Whether a whole number, a row's id say, is too long to be kept as a floating-point number."""
    return len(distinct) > 0 and max(abs(int(distinct[0])), abs(int(distinct[-1]))) > 2**53


def _number_name(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _of_strings(name: str, texts: list[str | None], kind: Kind | None) -> Column:
    table: dict[str, int] = {}
    codes = numpy.fromiter((-1 if text is None else table.setdefault(text, len(table)) for text in texts), numpy.int64)
    names = list(table)
    if kind is None:
        few = len(names) <= FEW_NAMES and len(names) <= max(ALWAYS_FEW, len(texts) // 2)
        kind = "category" if few and all(len(text) <= SHORT_NAME for text in names) else "text"
    if kind == "category":
        order = sorted(range(len(names)), key=lambda code: natural_key(names[code]))
        places = numpy.empty(len(names) + 1, dtype=numpy.int64)
        places[order] = numpy.arange(len(names))
        codes = numpy.where(codes < 0, -1, places[codes])
        names = [names[code] for code in order]
    return Column(name, kind, numpy.where(codes < 0, len(names), codes), names, None)
