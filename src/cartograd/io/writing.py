"""`write_table`: named columns to a file, in the format its name asks for, wholly or not at all."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy

from cartograd.core.checks import show
from cartograd.core.filenames import show_name
from cartograd.errors import InputError, OptionError
from cartograd.io.atomic import open_atomic, replacing
from cartograd.io.packages import required
from cartograd.io.plainfile import checked_path
from cartograd.io.spreadsheet import EMPTY_LINE, text_cell, written
from cartograd.io.writable import checked_columns, spread

PIECE = 10_000
"""Rows that are turned into text at a time."""

MOST_TEXT = 2**30
LONGEST_MEMBER = 60_000
"""Bytes of a name in a zip archive, which allows 65,535 with the suffix."""

Columns = dict[str, Any]


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Write columns of one length.

    In .csv and .tsv, text that a spreadsheet would take for a formula gets an apostrophe before it; missing values are
    empty there and null in .jsonl. Numbers are written with as many digits as it takes to read the same
    ones back. What was there before stays as it is until the new file is whole.

    Parameters
    ----------
    path : str or path
        The file: .parquet, .feather, .arrow, .csv, .tsv, .jsonl, .npz, or .npy (which holds numbers only, one column
        beside the other, without names).
    columns : dict of str to array-like
        Each (n,) of numbers, truth values, times, or text and None; or (n, d) of numbers.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "map.csv")
    >>> write_table(path, {"x": numpy.float32([0.1, 0.2]), "name": ["=1+1", None]})
    >>> print(path.read_text())
    x,name
    0.1,'=1+1
    0.2,
    <BLANKLINE>
    """
    suffix = Path(checked_path(path)).suffix.lower()
    if suffix not in WRITERS:
        raise OptionError(
            f"cannot write {show_name(os.fspath(path))}: its name must end in one of {', '.join(WRITERS)}"
        )
    WRITERS[suffix](path, checked_columns(columns))


def _write_parquet(path: Any, columns: Columns) -> None:
    parquet = required("pyarrow.parquet", "tables", "writing Parquet")
    table = _arrow_table(columns)
    with replacing(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def _write_arrow(path: Any, columns: Columns) -> None:
    feather = required("pyarrow.feather", "tables", "writing Arrow files")
    table = _arrow_table(columns)
    with replacing(path) as temporary:
        feather.write_feather(table, os.fspath(temporary), compression="zstd")


def _arrow_table(columns: Columns) -> Any:
    import pyarrow

    arrays = {}
    for name, column in columns.items():
        if column.ndim == 2:
            flat = pyarrow.array(numpy.ascontiguousarray(column).reshape(-1))
            arrays[name] = pyarrow.FixedSizeListArray.from_arrays(flat, column.shape[1])
        elif column.dtype == object:
            arrays[name] = pyarrow.array(column.tolist(), type=pyarrow.string())
        else:
            arrays[name] = pyarrow.array(column)
    return pyarrow.table(arrays)


def _write_csv(path: Any, columns: Columns, delimiter: str = ",") -> None:
    flat = spread(columns)
    with open_atomic(path, "w", encoding="utf-8", newline="") as file:
        file.write(delimiter.join(text_cell(name, delimiter) for name in flat) + "\n")
        for begin in range(0, len(next(iter(flat.values()))), PIECE):
            cells = [written(column[begin : begin + PIECE], delimiter) for column in flat.values()]
            file.writelines((delimiter.join(row) or EMPTY_LINE) + "\n" for row in zip(*cells, strict=True))


def _write_tsv(path: Any, columns: Columns) -> None:
    _write_csv(path, columns, "\t")


def _write_jsonl(path: Any, columns: Columns) -> None:
    with open_atomic(path, "w", encoding="utf-8", newline="\n") as file:
        for row in _rows(columns):
            file.write(row + "\n")


def _rows(columns: Columns) -> Iterator[str]:
    """Each row as JSON. What is not finite has no name there: NaN becomes null, infinity a number that overflows."""
    names = list(columns)
    for begin in range(0, len(columns[names[0]]), PIECE):
        pieces = [_plain(column[begin : begin + PIECE]) for column in columns.values()]
        for values in zip(*pieces, strict=True):
            try:
                yield json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False, allow_nan=False)
            except ValueError:
                finite = json.dumps({name: _finite(one) for name, one in zip(names, values, strict=True)})
                yield finite.replace('"\\u0000+"', "1e999").replace('"\\u0000-"', "-1e999")


def _plain(column: Any) -> list[Any]:
    if column.dtype.kind in "Mm":
        return [None if numpy.isnat(one) else str(one) for one in column]
    if column.dtype == numpy.float32 and column.ndim == 1:
        return [float(one) for one in column.astype(str)]  # the short form of a float32, not that of its double
    values: list[Any] = column.tolist()
    return values


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "\0+" if value > 0 else "\0-"


def _write_npz(path: Any, columns: Columns) -> None:
    for name in columns:
        if "\0" in name or len(name.encode()) > LONGEST_MEMBER:
            raise InputError(f"column {show(name)} cannot be an array of .npz: its name is too long, or holds NUL")
    arrays = {name: _fixed_text(name, column) for name, column in columns.items()}
    with open_atomic(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():  # numpy.savez takes no column called "file"
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                numpy.lib.format.write_array(member, array, allow_pickle=False)


def _fixed_text(name: str, column: Any) -> Any:
    """Text in NumPy's own form, in which every string takes as much as the longest."""
    if column.dtype != object:
        return column
    texts = [one or "" for one in column.tolist()]
    size = 4 * len(texts) * max(map(len, texts), default=0)
    if size > MOST_TEXT:
        raise InputError(
            f"column {show(name)} would take {size:,} bytes as text of NumPy; write .parquet, or leave it out"
        )
    return numpy.array(texts, dtype=numpy.str_)


def _write_npy(path: Any, columns: Columns) -> None:
    for name, column in columns.items():
        if column.dtype.kind not in "biuf":
            raise InputError(
                f"cannot write {os.fspath(path)}: .npy holds numbers only, and column {show(name)} holds "
                f"{column.dtype}; leave it out, or write .npz or .parquet"
            )
    matrix = numpy.column_stack(list(columns.values()))
    with open_atomic(path) as file:
        numpy.save(file, matrix, allow_pickle=False)


WRITERS: dict[str, Callable[[Any, Columns], None]] = {
    ".parquet": _write_parquet,
    ".feather": _write_arrow,
    ".arrow": _write_arrow,
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".jsonl": _write_jsonl,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
