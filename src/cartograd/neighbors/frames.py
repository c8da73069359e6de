"""Data frames as arrays of numbers; columns that hold no numbers are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from cartograd.core.checks import shorten
from cartograd.errors import CartogradError, InputError, UnsupportedError

NAMED_AT_MOST = 12
"""Columns that a message lists."""
PLAIN = (int, float, numpy.number, numpy.bool_, type(None))
TEXTS = (*PLAIN, str, bytes)


def is_frame(data: Any) -> bool:
    """Return whether it is a table with named columns: of pandas, polars or Arrow."""
    pandas = hasattr(data, "columns") and hasattr(data, "iloc")
    return pandas or (hasattr(data, "columns") and hasattr(data, "to_numpy")) or hasattr(data, "column_names")


def frame_numbers(frame: Any, name: str) -> Any:
    """Return the columns of a frame as an array (n, d)."""
    plain = convert(lambda: frame.to_numpy() if hasattr(frame, "to_numpy") else numpy.asarray(frame), name, "to_numpy")
    if plain.dtype.kind in "biufc":
        return plain
    columns = convert(lambda: _columns(frame), name, "its columns")
    odd = {column: dtype for column, dtype, values in columns if not _holds(values, PLAIN)}
    if odd:
        texts = all(_holds(values, TEXTS) for column, _, values in columns if column in odd)
        raise _refusal(name, odd, texts)
    return convert(lambda: numpy.column_stack([_numbers(values) for _, _, values in columns]), name, "its columns")


def convert(function: Callable[[], Any], name: str, what: str) -> Any:
    """Return the result of a conversion by another library; whatever it raises becomes one line."""
    try:
        return function()
    except (CartogradError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{name} cannot be read as a table of numbers: {what} raised {type(error).__name__}: {shorten(str(error))}"
        ) from error


def _columns(frame: Any) -> list[tuple[str, str, Any]]:
    """Return (name, dtype, values) of each column; a gap among numbers that have no NaN is an object."""
    if hasattr(frame, "iloc"):
        parts = [frame.iloc[:, place] for place in range(frame.shape[1])]
        names = [str(label) for label in frame.columns]
        values = [part.to_numpy(dtype=object if _has_gaps(part) else None) for part in parts]
    elif hasattr(frame, "get_columns"):
        parts = frame.get_columns()
        names, values = [part.name for part in parts], [part.to_numpy() for part in parts]
    else:
        parts = [frame.column(place) for place in range(frame.num_columns)]
        names, values = list(map(str, frame.column_names)), [part.to_numpy() for part in parts]
    dtypes = [str(getattr(part, "dtype", None) or part.type) for part in parts]
    return list(zip(names, dtypes, values, strict=True))


def _has_gaps(series: Any) -> bool:
    """Return whether a column of pandas has a dtype of its own, and misses values."""
    return not isinstance(series.dtype, numpy.dtype) and bool(series.hasnans)


def _holds(values: Any, types: tuple[type, ...]) -> bool:
    """Return whether a column holds nothing but values of these types, or numbers."""
    if values.dtype.kind in "biufc":
        return True
    return values.dtype == object and all(isinstance(value, types) for value in values.tolist())


def _numbers(values: Any) -> Any:
    return values if values.dtype.kind in "biufc" else values.astype(numpy.float64)


def _refusal(name: str, odd: dict[str, str], texts: bool) -> CartogradError:
    """Return the error that names the columns; `texts` where they hold nothing but texts and numbers."""
    listed = ", ".join(f"{shorten(repr(column))} ({dtype})" for column, dtype in list(odd.items())[:NAMED_AT_MOST])
    more = f" and {len(odd) - NAMED_AT_MOST} more" if len(odd) > NAMED_AT_MOST else ""
    what = f"{name} must hold numbers, got dtypes that are none in the columns {listed}{more}"
    if texts:
        return InputError(
            f"{what}; drop them, or encode them first as columns of 0 and 1, as pandas.get_dummies({name}) does"
        )
    return UnsupportedError(
        f"{what}: float() argument must be a string or a number; drop them, fill what is missing, or turn times into "
        "numbers first"
    )
