"""Cells of a text table: numbers that read back as the same, text that no spreadsheet takes for a formula."""

from __future__ import annotations

import re
from typing import Any

import numpy

from cartograd.io.cells import is_number

EMPTY_LINE = '""'
"""A row of one empty cell; a blank line would be none."""
SIGNS = "=+-@"
"""How a formula begins; spreadsheets of East Asia take the wide forms of these characters, too."""
WIDE_SIGNS = "\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u207a\u207b\u207c\u208a\u208b\u208c\u2212"
SEPARATORS = re.compile("([,;|\t\n\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029])")
"""What parts cells or lines in some spreadsheet, whatever the delimiter and the quotes of the file are."""
IGNORED = re.compile('[\\s"\x00\u200b-\u200f\u2060\ufeff]+')
"""What spreadsheets leave out at the beginning of a cell: blanks, quotes and characters without a width."""
QUOTED = ('"', ";", "\t", "\r", "\n")
"""What a cell has quotes for, beside the delimiter: other spreadsheets part cells there."""
BREAKS = "\t\r\n"
"""What some spreadsheets leave out at the beginning of a file's cell."""
SUSPECT = re.compile(f"[{re.escape(SIGNS)}{WIDE_SIGNS}]|^[{BREAKS}]")
"""Text without any of these needs no closer look."""


def harmless(text: str) -> str:
    """Return `text` with an apostrophe before each part that a spreadsheet would compute. Numbers stay.

    A part begins at the beginning, after a line break, and after a comma, semicolon, tab or bar: a spreadsheet that
    takes another delimiter than the file has parts the text there, and does not see its quotes.

    Examples
    --------
    >>> harmless("=HYPERLINK(A1)"), harmless("-1.5"), harmless("a-b")
    ("'=HYPERLINK(A1)", '-1.5', 'a-b')
    >>> harmless("a;=1+1"), harmless("1;-2.5")
    ("a;'=1+1", '1;-2.5')
    """
    if not SUSPECT.search(text) or (is_number(text) and text[0] not in BREAKS):
        return text
    if text[0] in BREAKS:  # one apostrophe before all of it
        rest = IGNORED.sub("", text, count=1)
        start = len(text) - len(rest) + int(_begins_with_sign(rest))
        return f"'{text[:start]}{harmless(text[start:])}"
    parts = SEPARATORS.split(text)
    parts[::2] = [f"'{part}" if _is_formula(part) else part for part in parts[::2]]
    return "".join(parts)


def _begins_with_sign(part: str) -> bool:
    return bool(part) and part[0] in SIGNS + WIDE_SIGNS


def _is_formula(part: str) -> bool:
    start = IGNORED.match(part)
    rest = part[start.end() :] if start else part
    return _begins_with_sign(rest) and not is_number(rest)


def text_cell(text: str, delimiter: str) -> str:
    r"""`text` made harmless, in quotes where it needs them.

    The ``csv`` module of Python 3.11 leaves a lone carriage return unquoted: a reader would take it for the end of the
    row, and what follows for a cell of its own.

    Examples
    --------
    >>> text_cell('a "b", c', ","), text_cell("x\r=1", ",")
    ('"a ""b"", c"', '"x\r\'=1"')
    """
    text = harmless(text)
    if any(mark in text for mark in (delimiter, *QUOTED)):
        return '"' + text.replace('"', '""') + '"'
    return text


def written(column: Any, delimiter: str) -> list[str]:
    """The cells of a column: the shortest numbers that read back as the same, missing values empty."""
    kind = column.dtype.kind
    if kind == "O":
        return ["" if cell is None else text_cell(cell, delimiter) for cell in column]
    if column.dtype == numpy.float64 or kind in "iub":
        cells = list(map(repr, column.tolist()))  # several times as fast as NumPy's own text
    else:
        cells = column.astype(str).tolist()
    if kind not in "fMm":
        return cells
    gone = numpy.isnan(column) if kind == "f" else numpy.isnat(column)
    return ["" if missing else cell for cell, missing in zip(cells, gone.tolist(), strict=True)]
