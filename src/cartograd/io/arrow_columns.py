"""Arrow's columns as NumPy's."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy

from cartograd.io.dialect import distinct_names
from cartograd.io.foreign import foreign
from cartograd.io.limits import check_columns, check_total
from cartograd.io.raw import Raw
from cartograd.io.values import column_of

log = logging.getLogger("cartograd.io")

INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls the index of a frame when it writes it."""
CELL = 8


def raw_of_arrow(table: Any, name: str, max_bytes: int) -> Raw:
    """The columns of a ``pyarrow.Table``. The offsets within it are checked first: a broken one would crash later."""
    check_columns(table.num_columns)
    check_total(CELL * table.num_rows * table.num_columns, max_bytes, "the table")
    with foreign("an Arrow table"):
        table.validate(full=True)
        names = distinct_names(table.column_names)
        found = {one: column_from_arrow(table.column(place)) for place, one in enumerate(names)}
    for one in [one for one, column in found.items() if column is None]:
        log.info("%s: column %r holds binary data and is left out", name, one)
    columns = {one: column for one, column in found.items() if column is not None}
    indices = [columns.pop(one) for one in list(columns) if INDEX.fullmatch(one)]
    return Raw(columns, ids=indices[0] if indices else None)


def column_from_arrow(column: Any) -> Any:
    """One ``pyarrow.ChunkedArray``; None for binary data."""
    import pyarrow
    import pyarrow.compute as compute

    types, kind = pyarrow.types, column.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return column_from_arrow(pyarrow.chunked_array([c.storage for c in column.chunks], type=kind.storage_type))
    if types.is_run_end_encoded(kind):
        return column_from_arrow(
            pyarrow.chunked_array([compute.run_end_decode(c) for c in column.chunks], kind.value_type)
        )
    if types.is_dictionary(kind):
        return column_from_arrow(column.cast(kind.value_type))
    if types.is_boolean(kind):
        return column.to_numpy() if not column.null_count else _texts(column.cast(pyarrow.string()))
    if types.is_integer(kind) and not column.null_count:
        return column.to_numpy()
    if types.is_integer(kind) or types.is_decimal(kind):
        return column.cast(pyarrow.float64(), safe=False).to_numpy()
    if types.is_floating(kind):
        return (column.cast(pyarrow.float32()) if types.is_float16(kind) else column).to_numpy()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _texts(column)
    return _rare(column)


def _rare(column: Any) -> Any:
    """Times, lists and what is left."""
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_timestamp(kind) or types.is_duration(kind):
        return column.to_numpy()
    if types.is_date(kind):
        return column.cast(pyarrow.timestamp("s")).to_numpy()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(column)
    if "binary" in str(kind):
        return None
    if types.is_nested(kind) or types.is_null(kind):
        return column_of(column.to_pylist())
    return _texts(column.cast(pyarrow.string()))


def _lists(column: Any) -> Any:
    """Lists of one length as a matrix, in the precision they have; any others as text."""
    import pyarrow
    import pyarrow.compute as compute

    kind = column.type.value_type
    numeric = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
    if numeric and len(column) and not column.null_count:
        lengths = compute.unique(compute.list_value_length(column))
        if len(lengths) == 1 and lengths[0].as_py() > 0:
            flat = column_from_arrow(pyarrow.chunked_array([chunk.flatten() for chunk in column.chunks], type=kind))
            return flat.reshape(len(column), -1)
    return None if "binary" in str(kind) else column_of(column.to_pylist())


def _texts(column: Any) -> Any:
    result = numpy.empty(len(column), dtype=object)
    result[:] = column.to_pylist()
    return result
