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
    column = numpy.empty(len(values), dtype=object)
    column[:] = [value if value is None or isinstance(value, str) else _written(value) for value in values]
    return column


def first_odd_value(values: Sequence[Any]) -> tuple[int, str] | None:
    """The first value that is no number in a column where nearly all are; None elsewhere."""
    there = [(place, value) for place, value in enumerate(values) if value is not None]
    odd = [(place, str(value)) for place, value in there if type(value) not in (int, float)]
    few = len(odd) == 1 or len(odd) <= FEW * len(there)
    return odd[0] if odd and few and len(there) - len(odd) >= 2 else None


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
