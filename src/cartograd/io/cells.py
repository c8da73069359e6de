"""Cells of text as numbers: which are numbers, which stand for a missing value, which are neither."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy

MISSING = frozenset(
    ["", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null", "None", "<NA>", "#N/A", "?"]
)
"""What stands for a missing number. In a column of text only the empty cell is missing: NA may be a country."""

CODE = re.compile(r"0\d+")
"""A whole number with a leading zero is a code (a postcode, say), not a quantity."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
FEW = 0.1
"""A column of text in which at most this share of the cells (or a single one) are no numbers is an odd one."""


def is_number(cell: str) -> bool:
    """Whether a cell is a number as `float` reads it, underscores aside."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.strip() not in MISSING


def numbers(cells: Sequence[str]) -> Any:
    """The cells as an int64 or float64 array, missing ones as NaN; None where one of them is no number."""
    if "_" in "".join(cells):
        return None
    try:
        whole = numpy.array(cells, dtype=numpy.int64)
        return None if any(map(CODE.fullmatch, cells)) else whole
    except (ValueError, OverflowError):
        pass
    try:
        return numpy.array(cells, dtype=numpy.float64)
    except ValueError:
        pass
    there = [cell if cell not in MISSING and cell.strip() not in MISSING else "nan" for cell in cells]
    try:
        return numpy.array(there, dtype=numpy.float64) if not any(map(CODE.fullmatch, there)) else None
    except ValueError:
        return None


def with_decimal_comma(cells: Sequence[str | None]) -> Any:
    """Cells such as "1,5" as numbers; None where that is not what they are, or where commas may part thousands."""
    there = [cell.strip() for cell in cells if cell is not None and cell.strip() not in MISSING]
    with_comma = [cell for cell in there if "," in cell]
    if not with_comma or not all(map(DECIMAL_COMMA.fullmatch, there)) or all(map(THOUSANDS.fullmatch, with_comma)):
        return None
    return numbers([(cell or "").replace(",", ".") for cell in cells])


def first_odd(cells: Sequence[str | None]) -> tuple[int, str] | None:
    """The first cell that is no number in a column where nearly all are; None for a plain column of text."""
    odd: list[tuple[int, str]] = []
    count = 0
    for place, cell in enumerate(cells):
        if cell is None or cell.strip() in MISSING:
            continue
        count += 1
        if CODE.fullmatch(cell):
            return None
        if not is_number(cell):
            odd.append((place, cell))
            if len(odd) > 1 + FEW * max(count, 200):
                return None
    few = len(odd) == 1 or len(odd) <= FEW * count
    return odd[0] if odd and few and count - len(odd) >= 2 else None


def text_column(cells: Sequence[str]) -> Any:
    """Cells as they are, empty ones as None; equal cells share one string."""
    pool: dict[str, str] = {}
    column = numpy.empty(len(cells), dtype=object)
    column[:] = [pool.setdefault(cell, cell) if cell else None for cell in cells]
    return column
