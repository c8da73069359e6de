"""Frames in memory: pandas, polars, Arrow tables, and whatever else speaks Arrow's interface."""

from __future__ import annotations

from typing import Any

import numpy

from cartograd.io.arrow_columns import raw_of_arrow
from cartograd.io.dialect import distinct_names
from cartograd.io.foreign import foreign
from cartograd.io.packages import required
from cartograd.io.raw import Raw
from cartograd.io.values import column_of


def is_frame(source: Any) -> bool:
    """Whether it is a table with named columns, of any library."""
    return (hasattr(source, "iloc") and hasattr(source, "columns")) or hasattr(source, "__arrow_c_stream__")


def raw_of_frame(frame: Any, name: str, max_bytes: int) -> Raw:
    """The columns of a frame; the index of a pandas frame, where it has one of its own, names the rows."""
    if hasattr(frame, "iloc"):
        return _raw_of_pandas(frame)
    pyarrow = required("pyarrow", "tables", "reading a frame")
    with foreign("an Arrow table"):
        return raw_of_arrow(pyarrow.table(frame), name, max_bytes)


def _raw_of_pandas(frame: Any) -> Raw:
    names = distinct_names([str(name) for name in frame.columns])
    columns = {name: column_from_pandas(frame.iloc[:, place]) for place, name in enumerate(names)}
    counted = type(frame.index).__name__ == "RangeIndex"
    return Raw(columns, ids=None if counted else column_from_pandas(frame.index.to_series()))


def column_from_pandas(series: Any) -> Any:
    """One pandas series as a NumPy column; missing values are NaN among numbers and None among text."""
    kind = getattr(series.dtype, "kind", "O")
    name = type(series.dtype).__name__
    if name == "CategoricalDtype":
        series = series.astype(series.cat.categories.dtype if not series.isna().any() else object)
        kind = getattr(series.dtype, "kind", "O")
    missing = series.isna().to_numpy()
    if kind == "b" and not missing.any():
        return series.to_numpy(dtype=bool)
    if kind in "iuf" and (not missing.any() or kind == "f"):
        width = numpy.dtype(getattr(series.dtype, "numpy_dtype", series.dtype))
        return series.to_numpy(dtype=width, na_value=numpy.nan) if kind == "f" else series.to_numpy(dtype=width)
    if kind in "iu":
        return series.to_numpy(dtype=numpy.float64, na_value=numpy.nan)
    if kind in "Mm" and name != "DatetimeTZDtype":
        return series.to_numpy()
    if name == "DatetimeTZDtype":
        return series.dt.tz_convert(None).to_numpy()
    values = [None if gone else value for value, gone in zip(series.tolist(), missing.tolist(), strict=True)]
    return column_of([value.item() if isinstance(value, numpy.generic) else value for value in values])
