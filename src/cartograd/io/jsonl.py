"""Tables as JSON: an object (or a list) on every line, or one array of objects (or of lists)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from cartograd.errors import DataFileError
from cartograd.io.jsonarray import elements, is_array
from cartograd.io.limits import LARGEST_EXPANSION, check_columns, check_total
from cartograd.io.raw import Given, Options, Raw
from cartograd.io.textfile import beginning, encodings, lines, open_text
from cartograd.io.values import column_of, encodable, first_odd_value, sparse_column

log = logging.getLogger("cartograd.io")

VALUE_BYTES = 32
"""About what one number takes while it is a Python object."""
CELL = 8
FREE_CELLS = 2**26
"""Bytes that a table may take however empty it is."""

Row = tuple[int, int, Any]
"""A line or the number of an element, about how many characters it has, and its value."""


def read_jsonl(given: Given, options: Options) -> Raw:
    """Read lines of JSON. Columns come in the order of their first mention; what a line leaves out is missing."""
    return _read(given, options, _lines, "line")


def read_json(given: Given, options: Options) -> Raw:
    """Read an array of rows, or lines of JSON."""
    sample = beginning(given.path, options)
    text = sample.decode(encodings(sample, options)[0], "replace")
    if is_array(text):
        return _read(given, options, elements, "row")
    raw = read_jsonl(given, options)
    if raw.count == 1 and any(column.ndim == 2 or _is_nested(column[0]) for column in raw.columns.values()):
        raise DataFileError(
            "it is one JSON object, and no rows; write an array of objects, one for each row (with pandas: "
            "to_json(orient='records'))"
        )
    return raw


def _is_nested(cell: Any) -> bool:
    """Return whether a text was an object or a list of JSON."""
    return isinstance(cell, str) and cell.startswith(("{", "["))


def _read(given: Given, options: Options, rows_of: Any, unit: str) -> Raw:
    encoding = encodings(beginning(given.path, options), options)[0]
    try:
        with open_text(given.path, encoding, options) as file:
            return _Columns(options.max_bytes, unit).filled(rows_of(file)).table()
    except UnicodeError as error:
        reason = getattr(error, "reason", None) or str(error)
        raise DataFileError(f"it is not text in {encoding}: {reason}; name its encoding") from error


def _lines(file: Any) -> Iterator[Row]:
    """Yield the value of every line that is not blank."""
    for number, line in enumerate(lines(file), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataFileError(
                f"line {number} is no JSON: {error}; write an object on every line, or an array of objects"
            ) from error
        yield number, len(line), value


class _Columns:
    """Values by column, with the rows that have one: a row costs what it holds, however many columns there are.

    Parameters
    ----------
    max_bytes : int
        How much the table may take.
    unit : str
        What a row is called in messages, "line" or "row".
    """

    def __init__(self, max_bytes: int, unit: str) -> None:
        self.max_bytes, self.unit = max_bytes, unit
        self.values: dict[str, list[Any]] = {}
        self.rows: dict[str, list[int]] = {}
        self.where: list[int] = []
        self.read = self.taken = 0

    def filled(self, rows: Iterable[Row]) -> _Columns:
        """Take every row; refuse tables that are too large or almost empty."""
        for line, length, value in rows:
            self.read += length
            self._add(line, value)
            cells = CELL * len(self.values) * len(self.where)
            check_total(max(self.taken, cells), self.max_bytes, "the table")
            if cells > FREE_CELLS and cells > LARGEST_EXPANSION * self.read:
                raise DataFileError(
                    f"its first {len(self.where):,} rows have {len(self.values):,} different keys, nearly all of them "
                    "missing in each row: a table would be nearly empty; use the same keys in all rows, or a sparse "
                    "matrix"
                )
        if not self.where:
            raise DataFileError("it is empty: there is no row in it")
        return self

    def _add(self, line: int, value: Any) -> None:
        if isinstance(value, list):
            value = {f"x{place}": one for place, one in enumerate(value)}
        if not isinstance(value, dict):
            raise DataFileError(
                f"{self.unit} {line} is a {type(value).__name__}; every {self.unit} must be an object or a list"
            )
        row = len(self.where)
        for name, one in value.items():
            if name not in self.values:
                self.values[name], self.rows[name] = [], []
                check_columns(len(self.values))
            self.values[name].append(one)
            self.rows[name].append(row)
            self.taken += VALUE_BYTES * (len(one) if isinstance(one, (list, str)) else 1)
        self.where.append(line)

    def table(self) -> Raw:
        """Return the columns as arrays."""
        columns: dict[str, Any] = {}
        odd: dict[str, tuple[int, str]] = {}
        for given, values in self.values.items():
            name, rows = encodable(given), self.rows[given]
            if name in columns:
                raise DataFileError(f"two of its columns would be called {name!r}; rename one")
            whole = len(rows) == len(self.where)
            columns[name] = column_of(values) if whole else sparse_column(values, rows, len(self.where))
            if columns[name].dtype == object:
                found = first_odd_value(values, rows)
                odd |= {name: found} if found else {}
        return Raw(columns, lines=numpy.array(self.where, dtype=numpy.int64) if self.unit == "line" else None, odd=odd)
