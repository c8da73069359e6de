"""Tables as text, .csv and .tsv: read as a stream, in pieces that become arrays at once."""

from __future__ import annotations

import csv
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from cartograd.errors import DataFileError
from cartograd.io import cells
from cartograd.io.dialect import delimiter_of, distinct_names, has_header
from cartograd.io.limits import check_columns, check_total
from cartograd.io.pieces import Pieces
from cartograd.io.raw import Given, Options, Raw
from cartograd.io.textfile import beginning, encodings, lines, open_text

log = logging.getLogger("cartograd.io")

PIECE = 200_000
"""Cells that are held as text at a time."""
LEAST_ROWS = 32
"""Rows that are held at a time at least: a table of very many columns has as few pieces."""
ROWS_SEEN = 100
"""Rows that decide whether there is a header."""

Row = tuple[int, list[str]]


def read_delimited(given: Given, options: Options, preferred: str | None = None) -> Raw:
    """Read a text table. `preferred` is the delimiter that its name promises."""
    sample = beginning(given.path, options)
    tried = encodings(sample, options)
    for encoding in tried:
        try:
            return _Reader(given, options, encoding, _delimiter(sample, encoding, options, preferred)).table()
        except UnicodeDecodeError as error:
            reason = f"{error.reason} at byte {error.object[error.start]:#04x}"
        except UnicodeError as error:
            reason = str(error)
        log.info("%s is not %s text (%s)", given.name, encoding, reason)
    raise DataFileError(f"it is not text in {' or '.join(tried)}: {reason}; name its encoding, encoding='...'")


def _delimiter(sample: bytes, encoding: str, options: Options, preferred: str | None) -> str:
    if options.delimiter is not None:
        if len(options.delimiter) != 1 or options.delimiter in '"\r\n\0':
            raise DataFileError(f"delimiter must be one character, got {options.delimiter!r}")
        return options.delimiter
    return delimiter_of(sample.decode(encoding, "replace"), preferred)


class _Reader:
    def __init__(self, given: Given, options: Options, encoding: str, delimiter: str) -> None:
        self.given, self.options, self.encoding, self.delimiter = given, options, encoding, delimiter
        self.texts: set[int] = set()

    def table(self) -> Raw:
        """Read; and read again where a column began with numbers and turned out to be text, to have it as written."""
        pieces = self._read_once()
        if pieces.turned:
            self.texts |= pieces.turned
            pieces = self._read_once()
        return self._finished(pieces)

    def _read_once(self) -> Pieces:
        with open_text(self.given.path, self.encoding, self.options) as file:
            rows = self._rows(file)
            first = list(itertools.islice(rows, ROWS_SEEN))
            names, first = self._names(first)
            check_columns(len(names))
            pieces = Pieces(names, self.texts)
            everything = itertools.chain(first, self._watched(rows))
            while piece := list(itertools.islice(everything, max(LEAST_ROWS, PIECE // len(names)))):
                pieces.add([line for line, _ in piece], self._columns(piece, len(names)))
                check_total(pieces.nbytes, self.options.max_bytes, "the table")
        return pieces

    def _rows(self, file: Any) -> Iterator[Row]:
        """(line, cells) of every line that is not blank."""
        reader = csv.reader(lines(file), delimiter=self.delimiter, skipinitialspace=self.delimiter == " ", strict=True)
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataFileError(f"line {line}: {error}") from error
            if len(row) > 1 or (row and not row[0].isspace()):
                if any("\0" in cell for cell in row):
                    raise DataFileError(f"line {line}: a zero byte; it is no text, or damaged")
                yield line, row

    def _names(self, first: list[Row]) -> tuple[list[str], list[Row]]:
        """The names of the columns, and the rows without the one that gave them."""
        if not first:
            raise DataFileError("it is empty: there is no row in it")
        rows = [row for _, row in first]
        header = self.options.header if self.options.header is not None else has_header(rows)
        if not header:
            log.info("%s: the first line is taken as data, not as names of columns", self.given.name)
            return [f"column_{place + 1}" for place in range(len(rows[0]))], first
        if len(rows) == 1:
            raise DataFileError("it has names of columns and no rows")
        names = rows[0]
        if all(
            len(row) == len(names) + 1 for row in rows[1:]
        ):  # names of rows without a name of their own, as R writes
            names = ["", *names]
        return distinct_names(names), first[1:]

    def _columns(self, piece: Sequence[Row], width: int) -> list[tuple[str, ...]]:
        for line, row in piece:
            if len(row) != width:
                raise DataFileError(
                    f"line {line} has {len(row)} fields where the first has {width} (the delimiter is taken to be "
                    f"{self.delimiter!r})"
                )
        return list(zip(*(row for _, row in piece), strict=True))

    def _watched(self, rows: Iterator[Row]) -> Iterator[Row]:
        if not self.options.verbose:
            return rows
        from tqdm.auto import tqdm

        bar: Iterator[Row] = iter(tqdm(rows, desc=f"read {self.given.name}", unit=" rows", leave=False))
        return bar

    def _finished(self, pieces: Pieces) -> Raw:
        columns: dict[str, Any] = {}
        odd: dict[str, tuple[int, str]] = {}
        for name, column in pieces.columns().items():
            if column.dtype == object and self.delimiter != ",":
                with_comma = cells.with_decimal_comma(column)
                if with_comma is not None:
                    log.info("%s: commas in column %r are taken as decimal ones", self.given.name, name)
                    column = with_comma
            if column.dtype == object:
                found = cells.first_odd(column)
                odd |= {name: found} if found else {}
                column = _truth_values(column)
            columns[name] = column
        return Raw(columns, lines=numpy.concatenate(pieces.lines), odd=odd)


def _truth_values(column: Any) -> Any:
    """A column of nothing but true and false, as truth values."""
    words = {"true": True, "false": False}
    if set(itertools.islice(column, 100)) <= {"True", "False", "TRUE", "FALSE", "true", "false"}:
        values = [words.get(cell.lower()) if cell is not None else None for cell in column]
        if None not in values:
            return numpy.array(values, dtype=bool)
    return column
