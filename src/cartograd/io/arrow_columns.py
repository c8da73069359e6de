"""Arrow's columns as NumPy's."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy

from cartograd.errors import DataFileError
from cartograd.io.arrow_bounds import unfolded_size
from cartograd.io.dialect import distinct_names
from cartograd.io.foreign import foreign
from cartograd.io.limits import check_columns, check_total
from cartograd.io.raw import Raw
from cartograd.io.values import texts_of

log = logging.getLogger("cartograd.io")

INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls the index of a frame when it writes it."""
LARGEST_UNFOLDED = 1000
"""How many times its file a table may have: views, dictionaries and runs name the same values again and again."""
FREE_UNFOLDED = 2**26
PIECE = 10_000
"""Rows of lists and structures that are Python objects at a time."""


def raw_of_arrow(table: Any, name: str, max_bytes: int, packed: int | None = None) -> Raw:
    """Return the columns of a ``pyarrow.Table``; `packed` is the size of the file that it was read from.

    The offsets within it are checked first: a broken one would crash later.
    """
    check_columns(table.num_columns)
    with foreign("an Arrow table"):
        table.validate()
        size = unfolded_size(table)
    check_total(size, max_bytes, "the table")
    if packed is not None and size > FREE_UNFOLDED and size > LARGEST_UNFOLDED * packed:
        raise DataFileError(
            f"it would expand from {packed:,} to {size:,} bytes, more than {LARGEST_UNFOLDED} times: refused as a bomb"
        )
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
    """Return one ``pyarrow.ChunkedArray`` as an array; None for binary data."""
    import pyarrow

    types, kind = pyarrow.types, column.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return column_from_arrow(pyarrow.chunked_array([c.storage for c in column.chunks], type=kind.storage_type))
    if types.is_run_end_encoded(kind) or types.is_dictionary(kind):
        return _repeated(column)
    if types.is_boolean(kind):
        return column.to_numpy() if not column.null_count else _truth_values(column)
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
    if types.is_null(kind):
        return numpy.full(len(column), numpy.nan)
    if "binary" in str(kind):
        return None
    if types.is_nested(kind):
        return _lists(column)
    return _texts(column.cast(pyarrow.string()))


def _lists(column: Any) -> Any:
    """Lists of numbers of one length as a matrix, in the precision they have; any others as text."""
    import pyarrow
    import pyarrow.compute as compute

    inner = getattr(column.type, "value_type", None)
    numeric = inner is not None and (pyarrow.types.is_integer(inner) or pyarrow.types.is_floating(inner))
    if numeric and len(column) and not column.null_count:
        lengths = compute.unique(compute.list_value_length(column))
        if len(lengths) == 1 and lengths[0].as_py() > 0:
            flat = column_from_arrow(pyarrow.chunked_array([chunk.flatten() for chunk in column.chunks], type=inner))
            return flat.reshape(len(column), -1)
    pieces = [texts_of(column.slice(begin, PIECE).to_pylist()) for begin in range(0, len(column), PIECE)]
    return numpy.concatenate(pieces) if pieces else numpy.empty(0, dtype=object)


def _repeated(column: Any) -> Any:
    """A dictionary or runs: numbers as they are, texts shared by all rows that have the same one."""
    import pyarrow
    import pyarrow.compute as compute

    types, kind = pyarrow.types, column.type
    inner, is_runs = kind.value_type, types.is_run_end_encoded(kind)
    if types.is_primitive(inner) or types.is_decimal(inner):
        plain = [compute.run_end_decode(chunk) if is_runs else chunk.cast(inner) for chunk in column.chunks]
        return column_from_arrow(pyarrow.chunked_array(plain, inner))
    pieces = [_shared(chunk, is_runs) for chunk in column.chunks]
    if any(piece is None for piece in pieces) or "binary" in str(inner):
        return None
    return numpy.concatenate(pieces) if pieces else numpy.empty(0, dtype=object)


def _shared(chunk: Any, is_runs: bool) -> Any:
    """The texts of one chunk; equal ones are one object. None for binary data."""
    import pyarrow
    import pyarrow.compute as compute

    if is_runs:
        first = chunk.find_physical_offset()
        values = chunk.values.slice(first, chunk.find_physical_length())
        ends = chunk.run_ends.slice(first, len(values)).to_numpy().astype(numpy.int64) - chunk.offset
        codes = numpy.repeat(numpy.arange(len(values)), numpy.diff(ends.clip(0, len(chunk)), prepend=0))
    else:
        values = chunk.dictionary
        codes = compute.coalesce(chunk.indices.cast(pyarrow.int64()), -1).to_numpy()
    found = column_from_arrow(pyarrow.chunked_array([values]))
    if found is None:
        return None
    texts = found if found.dtype == object else texts_of(found.tolist())
    return numpy.append(texts, [None])[codes]


def _truth_values(column: Any) -> Any:
    """Truth values of which some are missing, as text."""
    import pyarrow

    codes = column.cast(pyarrow.int8()).fill_null(2).to_numpy()
    return numpy.array(["false", "true", None], dtype=object)[codes]


def _texts(column: Any) -> Any:
    result = numpy.empty(len(column), dtype=object)
    result[:] = column.to_pylist()
    return result
