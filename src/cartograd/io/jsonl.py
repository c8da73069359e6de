"""Tables as lines of JSON: an object (or a list) on every line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy

from cartograd.errors import DataFileError
from cartograd.io.limits import check_columns, check_total
from cartograd.io.raw import Given, Options, Raw
from cartograd.io.textfile import beginning, encodings, lines, open_text
from cartograd.io.values import column_of, first_odd_value

log = logging.getLogger("cartograd.io")

VALUE_BYTES = 32
"""About what one number takes while it is a Python object."""


def read_jsonl(given: Given, options: Options) -> Raw:
    """Read lines of JSON. Columns come in the order of their first mention; what a line leaves out is missing."""
    encoding = encodings(beginning(given.path, options), options)[0]
    values: dict[str, list[Any]] = {}
    where: list[int] = []
    taken = 0
    try:
        for line, row in _rows(given, encoding, options):
            for name, value in row.items():
                if name not in values:
                    values[name] = [None] * len(where)
                    check_columns(len(values))
                values[name].append(value)
                taken += VALUE_BYTES * (len(value) if isinstance(value, (list, str)) else 1)
            where.append(line)
            for column in values.values():
                if len(column) < len(where):
                    column.append(None)
            check_total(taken, options.max_bytes, "the table")
    except UnicodeDecodeError as error:
        raise DataFileError(f"it is not text in {encoding}: {error.reason}; name its encoding") from error
    if not where:
        raise DataFileError("it is empty: there is no row in it")
    return _table(values, where)


def _rows(given: Given, encoding: str, options: Options) -> Iterator[tuple[int, dict[str, Any]]]:
    with open_text(given.path, encoding, options) as file:
        for number, line in enumerate(lines(file), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataFileError(f"line {number} is no JSON: {error}") from error
            if isinstance(value, list):
                value = {f"x{place}": one for place, one in enumerate(value)}
            if not isinstance(value, dict):
                raise DataFileError(
                    f"line {number} is a {type(value).__name__}; every line must be an object or a list"
                )
            yield number, value


def _table(values: dict[str, list[Any]], where: list[int]) -> Raw:
    columns = {name: column_of(column) for name, column in values.items()}
    odd = {name: first_odd_value(values[name]) for name, column in columns.items() if column.dtype == object}
    found = {name: one for name, one in odd.items() if one is not None}
    return Raw(columns, lines=numpy.array(where, dtype=numpy.int64), odd=found)
