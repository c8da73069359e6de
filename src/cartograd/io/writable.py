"""Columns as they can be written: arrays of one length, of plain kinds, with names that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import torch

from cartograd.core.checks import shorten, show
from cartograd.engine import Tensor
from cartograd.errors import InputError, UnsupportedError
from cartograd.io.values import column_of, encodable


def checked_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Every column as an array, (n,) or (n, d), all of one length."""
    if not columns:
        raise InputError("there are no columns to write")
    arrays: dict[str, Any] = {}
    for given, values in columns.items():
        name = _checked_name(given)
        if name in arrays:
            raise InputError(f"two columns would be called {show(name)}; rename one")
        arrays[name] = column_array(values, name)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns must be of one length, got {lengths}")
    return arrays


def column_array(values: Any, name: str) -> Any:
    """One column: numbers, truth values and times as they are, everything else as text or None."""
    array = _converted(values, name)
    if (
        array.dtype.kind not in "biufMmO"
        or array.ndim not in (1, 2)
        or (array.ndim == 2 and array.dtype.kind not in "biuf")
    ):
        raise UnsupportedError(
            f"column {show(name)} is an array of {array.dtype} of shape {array.shape}: it cannot be written"
        )
    return array


def _converted(values: Any, name: str) -> Any:
    """Return values as an array; whatever their own conversion raises becomes one line."""
    try:
        if isinstance(values, Tensor):
            values = values.data
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu()
            values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
        array = numpy.asarray(values if hasattr(values, "__array__") else _objects(values))
        return _texts(array) if array.dtype.kind in "OUST" else array
    except MemoryError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"column {show(name)} cannot be made an array of numbers or texts: {type(error).__name__}: "
            f"{shorten(str(error))}"
        ) from error


def spread(columns: dict[str, Any]) -> dict[str, Any]:
    """Matrices as single columns, name_0, name_1, ..., for formats that have nothing else."""
    flat: dict[str, Any] = {}
    for name, column in columns.items():
        parts = {name: column} if column.ndim == 1 else {f"{name}_{place}": one for place, one in enumerate(column.T)}
        for part in parts:
            if part in flat:
                raise InputError(f"two columns would be called {show(part)}; rename one")
        flat |= parts
    return flat


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise UnsupportedError(f"names of columns must be text, got {show(name)}")
    return encodable(name)


def _objects(values: Any) -> Any:
    """A list: of plain numbers as numbers, with text or None in it as objects."""
    values = list(values)
    if any(value is None or isinstance(value, str) for value in values):
        return numpy.array(values, dtype=object)
    return numpy.array(values)


def _texts(array: Any) -> Any:
    """Text and None; missing values of pandas are None too."""
    values = array.tolist()
    if array.ndim != 1:
        return array
    if array.dtype == object and any(isinstance(value, (int, float)) for value in values):
        if all(value is None or isinstance(value, (bool, int, float)) for value in values):
            return column_of(values)
    column = numpy.empty(len(values), dtype=object)
    column[:] = [_text(value) for value in values]
    return column


def _text(value: Any) -> str | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return None
    return encodable(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
