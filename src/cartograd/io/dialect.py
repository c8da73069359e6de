"""How a text table is written: its encoding, its delimiter, whether its first line names the columns."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence

from cartograd.errors import DataFileError
from cartograd.io.cells import MISSING, is_number
from cartograd.io.values import encodable

SAMPLE = 2**16
DELIMITERS = ("\t", ";", "|", ",", " ")
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte-order marks; the longer ones before those they begin with."""


def encoding_of(sample: bytes) -> str:
    """The encoding that the mark at the beginning says, or UTF-8; bytes that are no text are refused."""
    for mark, encoding in MARKS.items():
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        raise DataFileError("it is no text: there are zero bytes in its beginning")
    return "utf-8"


def delimiter_of(sample: str, preferred: str | None = None) -> str:
    """The delimiter that cuts most lines of `sample` into the same number of fields, more than one.

    `preferred` wins if it cuts at all. Of two that cut equally well a semicolon goes before a comma: beside it, commas
    are decimal ones. Spaces count only where nothing else cuts.
    """
    shares = {delimiter: _agreement(sample, delimiter) for delimiter in DELIMITERS}
    if preferred is not None and (shares.get(preferred) or preferred not in shares):
        return preferred
    best = max(DELIMITERS[:-1], key=lambda delimiter: shares[delimiter])
    if shares[best]:
        return best
    return " " if shares[" "] == 1 else preferred or ","


def _agreement(sample: str, delimiter: str) -> float:
    """The share of lines that have the commonest number of fields; 0 where that number is one."""
    counts = [len(row) for row in _sample_rows(sample, delimiter)]
    if len(counts) > 1 and counts[0] == counts[1] - 1:  # R writes no name for the names of the rows
        counts = counts[1:]
    commonest = max(sorted(set(counts)), key=counts.count, default=1)
    return counts.count(commonest) / len(counts) if commonest > 1 else 0.0


def _sample_rows(sample: str, delimiter: str) -> list[list[str]]:
    """Whole rows of the sample; the last line may be cut, so it does not count."""
    lines = io.StringIO(sample, newline="")
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " "))
    except csv.Error:
        return []
    return [row for row in (rows[:-1] if len(rows) > 2 else rows) if row]


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns.

    It does where a column has text first and numbers below; where it counts the columns, 0, 1, 2, ...; and where it is
    all text, none of which comes again below in its column.
    """
    first, rest = rows[0], rows[1:]
    if rest and _counts_columns(first, rest):
        return True
    below = [[row[place] for row in rest if place < len(row)] for place in range(len(first))]
    texts = [cell.strip() not in MISSING and not is_number(cell) for cell in first]
    if any(text and _numbers_only(column) for text, column in zip(texts, below, strict=True)):
        return True
    if any(is_number(cell) for cell in first):
        return False
    return not any(cell in column for cell, column in zip(first, below, strict=True) if cell.strip())


def _numbers_only(cells: Sequence[str]) -> bool:
    there = [cell for cell in cells if cell.strip() not in MISSING]
    return bool(there) and all(is_number(cell) for cell in there)


def _counts_columns(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether a row is 0, 1, 2, ..., as a frame without names writes it, and not a row of data that looks the same."""
    names = [cell.strip() for cell in first]
    has_index = bool(names) and names[0] == ""
    names = names[1:] if has_index else names
    if len(names) < 2 or names != [str(place) for place in range(len(names))]:
        return False
    return has_index or len(names) > 10 or any(is_number(cell) and not cell.strip().isdigit() for cell in rest[0])


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names made distinct: empty ones are called by their place, repeated ones get a number.

    Examples
    --------
    >>> distinct_names(["a", "", "a"])
    ['a', 'column_2', 'a.1']
    """
    repeats: dict[str, int] = {}
    result = []
    for place, given in enumerate(names):
        name = stem = encodable(given.strip()) or f"column_{place + 1}"
        while name in repeats:
            repeats[stem] += 1
            name = f"{stem}.{repeats[stem]}"
        repeats[name] = 0
        result.append(name)
    return result
