"""Python values, one for each row, as a column: numbers, truth values, text, or vectors of one length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy

from cartograd.io.cells import FEW


def column_of(values: Sequence[Any]) -> Any:
    """The values as an array; None is a missing one.

    Whole numbers stay so where none is missing and all fit into int64. Lists of numbers of one length become a matrix;
    what is neither number nor text becomes text, as JSON.

    Examples
    --------
    >>> column_of([1, 2.5, None]).tolist()
    [1.0, 2.5, nan]
    >>> column_of([[1, 2], [3, 4]]).shape
    (2, 2)
    >>> column_of(["a", None, 3]).tolist()
    ['a', None, '3']
    """
    kinds = {type(value) for value in values}
    if kinds <= {bool}:
        return numpy.array(values, dtype=bool)
    if kinds <= {int, float, type(None)}:
        return _numbers(values, kinds)
    if kinds <= {list, tuple, numpy.ndarray}:
        matrix = _matrix(values)
        if matrix is not None:
            return matrix
    return texts_of(values)


def sparse_column(values: Sequence[Any], rows: Sequence[int], count: int) -> Any:
    """Return a column of `count` rows of which only some have a value; the others are missing.

    Examples
    --------
    >>> sparse_column([1, 2], [0, 2], 4).tolist()
    [1.0, nan, 2.0, nan]
    """
    found = column_of(values)
    if found.ndim == 1 and found.dtype.kind in "iuf":
        column = numpy.full(count, numpy.nan)
        column[rows] = found
        return column
    column = numpy.full(count, None, dtype=object)
    column[rows] = texts_of(values)
    return column


def first_odd_value(values: Sequence[Any], rows: Sequence[int]) -> tuple[int, str] | None:
    """Return the row and text of the first value that is no number in a column where nearly all are, or None."""
    there = [(row, value) for row, value in zip(rows, values, strict=True) if value is not None]
    odd = [(row, value) for row, value in there if type(value) not in (int, float)]
    few = len(odd) == 1 or len(odd) <= FEW * len(there)
    return (odd[0][0], str(odd[0][1])) if odd and few and len(there) - len(odd) >= 2 else None


def encodable(text: str) -> str:
    r"""Return a text with halves of characters, which no file format can hold, as question marks.

    Examples
    --------
    >>> encodable("a\ud800b")
    'a?b'
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def texts_of(values: Sequence[Any]) -> Any:
    """Return values as text, or None where they are missing; what is neither becomes JSON."""
    column = numpy.empty(len(values), dtype=object)
    column[:] = [
        None if value is None else encodable(value if isinstance(value, str) else _written(value)) for value in values
    ]
    return column


def _numbers(values: Sequence[Any], kinds: set[type]) -> Any:
    if kinds <= {int}:
        try:
            return numpy.array(values, dtype=numpy.int64)
        except OverflowError:
            pass
    return numpy.array([_float(value) for value in values], dtype=numpy.float64)


def _float(value: Any) -> float:
    try:
        return numpy.nan if value is None else float(value)
    except OverflowError:
        return numpy.inf if value > 0 else -numpy.inf


def _matrix(values: Sequence[Any]) -> Any:
    """Lists of numbers of one length, (n, d); None for any other lists."""
    try:
        matrix = numpy.array(values)
    except ValueError:  # of different lengths
        return None
    if matrix.ndim == 2 and matrix.shape[1] and matrix.dtype.kind in "iuf":
        return matrix
    if matrix.ndim != 2 or matrix.dtype != object:
        return None
    there = [type(number) for number in matrix.flat if number is not None]
    numbers = bool(there) and set(there) <= {int, float}
    return numpy.array([[_float(number) for number in row] for row in matrix]) if numbers else None


def _written(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return type(value).__name__
