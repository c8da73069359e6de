"""How many bytes Arrow's columns take as NumPy's, found before any is converted.

Views, dictionaries and runs name the same values again and again: a small file may stand for any number of bytes.
"""

from __future__ import annotations

from typing import Any

import numpy

CELL = 8
"""A number, or the place of a text."""
TEXT, VALUE, NESTED = 57, 32, 64
"""Bytes of a Python text beside its characters, of another Python object, and of a list or dictionary."""


def unfolded_size(table: Any) -> int:
    """Return about how many bytes the columns of a ``pyarrow.Table`` take once they are converted.

    The table need not be valid beyond what ``validate()`` checks: only lengths and offsets are read.
    """
    return sum(_column_size(chunk) for column in table.columns for chunk in column.chunks)


def _column_size(array: Any) -> int:
    """Return the bytes of one chunk of a column, where equal texts are shared and vectors of numbers are dense."""
    import pyarrow

    types, kind = pyarrow.types, array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _column_size(array.storage)
    if types.is_dictionary(kind):
        return CELL * len(array) + _size(array.dictionary)
    if types.is_run_end_encoded(kind):
        return CELL * len(array) + _size(array.values)
    if _is_list(kind) and types.is_primitive(kind.value_type):
        return CELL * (len(array) + _element_count(array))
    if types.is_primitive(kind) or types.is_null(kind):
        return CELL * len(array)
    return _size(array)


def _size(array: Any) -> int:
    """Return the bytes of values as Python objects, each for itself."""
    import pyarrow

    types, kind = pyarrow.types, array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _size(array.storage)
    if _is_text(kind):
        return (TEXT + CELL) * len(array) + _sum(_lengths(array))
    if types.is_struct(kind):
        return NESTED * len(array) + sum(_size(array.field(place)) for place in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        values, (first, last) = array.values, _ends(array)
        return NESTED * len(array) + _size(values.slice(first, last - first))
    return len(array) * _largest(array)


def _largest(array: Any) -> int:
    """Return the bytes that no single value exceeds."""
    import pyarrow

    types, kind = pyarrow.types, array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _largest(array.storage)
    if types.is_dictionary(kind):
        return _largest(array.dictionary)
    if types.is_run_end_encoded(kind):
        return _largest(array.values)
    if _is_text(kind):
        return TEXT + CELL + _max(_lengths(array))
    if _is_list(kind) or types.is_map(kind):
        return NESTED + _max(_lengths(array)) * _largest(array.values)
    if types.is_struct(kind) or types.is_union(kind):
        return NESTED + sum(_largest(array.field(place)) for place in range(kind.num_fields))
    if types.is_fixed_size_binary(kind):
        return TEXT + int(kind.byte_width)
    return VALUE


def _is_text(kind: Any) -> bool:
    """Return whether values are texts or bytes of any length."""
    import pyarrow.types as types

    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(views or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _element_count(array: Any) -> int:
    """Return how many elements the lists have together, those of overlapping ones each for itself."""
    import pyarrow.types as types

    if types.is_fixed_size_list(array.type):
        return len(array) * int(array.type.list_size)
    return _sum(_lengths(array))


def _lengths(array: Any) -> Any:
    """Return the length of each text or list as int64, 0 for missing ones."""
    import pyarrow
    import pyarrow.compute as compute

    if pyarrow.types.is_string_view(array.type) or pyarrow.types.is_binary_view(array.type):
        return _view_lengths(array)
    if _is_text(array.type):
        found = compute.binary_length(array)
    elif pyarrow.types.is_map(array.type):
        found = compute.subtract(array.offsets.slice(1), array.offsets.slice(0, len(array)))
    else:
        found = compute.list_value_length(array)
    return compute.coalesce(found.cast(pyarrow.int64()), 0)


def _view_lengths(array: Any) -> Any:
    """Return the length of each text of an array of views, which is the first number of the 16 bytes of a view."""
    import pyarrow

    views = array.buffers()[1]
    lengths = numpy.frombuffer(views, dtype=numpy.int32, count=4 * (array.offset + len(array)))[4 * array.offset :: 4]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pyarrow.array(numpy.where(valid, numpy.maximum(lengths, 0), 0).astype(numpy.int64))


def _ends(array: Any) -> tuple[int, int]:
    """Return where the elements of a list array begin and end."""
    offsets = array.offsets
    return offsets[0].as_py(), offsets[len(offsets) - 1].as_py()


def _sum(lengths: Any) -> int:
    import pyarrow.compute as compute

    return int(compute.sum(lengths).as_py() or 0)


def _max(lengths: Any) -> int:
    import pyarrow.compute as compute

    return int(compute.max(lengths).as_py() or 0)
