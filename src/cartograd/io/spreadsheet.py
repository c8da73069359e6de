"""Cells of a text table: numbers that read back as the same, text that no spreadsheet takes for a formula."""

from __future__ import annotations

from typing import Any

import numpy

from cartograd.io.cells import is_number

EMPTY_LINE = '""'
"""A row of one empty cell; a blank line would be none."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless(text: str) -> str:
    """`text`, with an apostrophe before it where a spreadsheet would compute it. Text that is a number stays.

    Examples
    --------
    >>> harmless("=HYPERLINK(A1)"), harmless("-1.5"), harmless("a-b")
    ("'=HYPERLINK(A1)", '-1.5', 'a-b')
    """
    return f"'{text}" if text.startswith(FORMULA) and not is_number(text) else text


def text_cell(text: str, delimiter: str) -> str:
    r"""`text` made harmless, in quotes where it needs them.

    The ``csv`` module of Python 3.11 leaves a lone carriage return unquoted: a reader would take it for the end of the
    row, and what follows for a cell of its own.

    Examples
    --------
    >>> text_cell('a "b", c', ","), text_cell("x\r=1", ",")
    ('"a ""b"", c"', '"x\r=1"')
    """
    text = harmless(text)
    if any(mark in text for mark in (delimiter, '"', "\r", "\n")):
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
