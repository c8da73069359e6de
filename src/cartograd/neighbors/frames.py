"""Data frames as arrays of numbers; columns that hold no numbers are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from cartograd.core.checks import shorten
from cartograd.errors import CartogradError, InputError

NAMED_AT_MOST = 12
"""Columns that a message lists."""
PLAIN = (int, float, numpy.number, numpy.bool_, type(None))


def is_frame(data: Any) -> bool:
    """Return whether it is a table with named columns: of pandas, polars or Arrow."""
    pandas = hasattr(data, "columns") and hasattr(data, "iloc")
    return pandas or (hasattr(data, "columns") and hasattr(data, "to_numpy")) or hasattr(data, "column_names")


def frame_numbers(frame: Any, name: str) -> Any:
    """Return the columns of a frame as an array (n, d), missing numbers as NaN."""
    plain = convert(lambda: frame.to_numpy() if hasattr(frame, "to_numpy") else numpy.asarray(frame), name, "to_numpy")
    if plain.dtype.kind in "biufc":
        return plain
    columns = convert(lambda: _columns(frame), name, "its columns")
    odd = {column: dtype for column, dtype, values in columns if not _is_numeric(values)}
    if odd:
        raise InputError(_words(name, odd))
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
    """Return (name, dtype, values) of each column."""
    if hasattr(frame, "iloc"):
        parts = [frame.iloc[:, place] for place in range(frame.shape[1])]
        return [
            (str(label), str(part.dtype), _pandas_values(part))
            for label, part in zip(frame.columns, parts, strict=True)
        ]
    if hasattr(frame, "get_columns"):
        return [(part.name, str(part.dtype), part.to_numpy()) for part in frame.get_columns()]
    parts = [frame.column(place) for place in range(frame.num_columns)]
    return [
        (str(label), str(part.type), part.to_numpy()) for label, part in zip(frame.column_names, parts, strict=True)
    ]


def _pandas_values(series: Any) -> Any:
    """Return a column; nullable numbers with gaps as float64, where a gap is NaN."""
    if isinstance(series.dtype, numpy.dtype) or getattr(series.dtype, "kind", "O") not in "biuf":
        return series.to_numpy()
    return (
        series.to_numpy(dtype=numpy.float64, na_value=numpy.nan)
        if series.hasnans
        else series.to_numpy(dtype=numpy.dtype(getattr(series.dtype, "numpy_dtype", "float64")))
    )


def _is_numeric(values: Any) -> bool:
    if values.dtype.kind in "biufc":
        return True
    return values.dtype == object and all(isinstance(value, PLAIN) for value in values.tolist())


def _numbers(values: Any) -> Any:
    return values if values.dtype.kind in "biufc" else values.astype(numpy.float64)


def _words(name: str, odd: dict[str, str]) -> str:
    listed = ", ".join(f"{shorten(repr(column))} ({dtype})" for column, dtype in list(odd.items())[:NAMED_AT_MOST])
    more = f" and {len(odd) - NAMED_AT_MOST} more" if len(odd) > NAMED_AT_MOST else ""
    return (
        f"{name} has columns that hold no numbers: {listed}{more}; drop them, or encode them first: texts as columns "
        "of 0 and 1 (as pandas.get_dummies does), times as numbers"
    )
