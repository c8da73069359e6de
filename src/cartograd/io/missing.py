"""Missing values: refused with their place, filled by a named rule, or dropped with their rows."""

from __future__ import annotations

import math
from typing import Any

import numpy

from cartograd.core.checks import show
from cartograd.errors import InputError, OptionError
from cartograd.io.cells import MISSING
from cartograd.io.learned import Learned, mean, median
from cartograd.io.raw import Raw

OPTIONS = ("error", "mean", "median", "zero", "drop")


def check_option(missing: Any) -> None:
    """Refuse a rule for missing values that is not known."""
    if not isinstance(missing, str) or missing not in OPTIONS:
        raise OptionError(f"missing must be one of {', '.join(OPTIONS)}, got {show(missing)}")


def is_missing(cell: Any) -> bool:
    """Whether one value of a column stands for nothing."""
    if cell is None:
        return True
    return cell.strip() in MISSING if isinstance(cell, str) else isinstance(cell, float) and math.isnan(cell)


def filled(X: Any, names: list[str], missing: str, raw: Raw, learned: Learned | None = None) -> tuple[Any, Any, Any]:
    """X without NaN; which rows were kept, None for all; and which values were filled, None for none.

    Figures are those of `learned`, the rows of a map that was made before, or of X itself. Infinite values are always
    refused.
    """
    _refuse_infinite(X, names, raw)
    gone = numpy.isnan(X)
    if not gone.any():
        return X, None, None
    if missing == "error":
        row = int(gone.any(axis=1).argmax())
        column = names[int(gone[row].argmax())]
        raise InputError(
            f"{raw.row(row)}, column {column!r}: the value is missing ({int(gone.sum()):,} of {gone.size:,} are); "
            "say what to do: missing='mean', 'median' or 'zero' fills them, 'drop' leaves such rows out"
        )
    if missing == "drop":
        kept = ~gone.any(axis=1)
        if not kept.any():
            raise InputError(f"missing='drop' leaves no row: column {_emptiest(gone, names)!r} has most missing values")
        return X[kept], kept, None
    for place in numpy.nonzero(gone.any(axis=0))[0].tolist():
        X[gone[:, place], place] = _substitute(X[~gone[:, place], place], missing, names[place], learned)
    return X, None, gone


def _substitute(there: Any, missing: str, name: str, learned: Learned | None) -> float:
    if missing == "zero":
        return 0.0
    if learned is not None:
        return learned.figure(name, missing)
    if not len(there):
        raise InputError(
            f"column {name!r} has no value at all, so there is no {missing}; leave it out, columns=['-{name}']"
        )
    return mean(there) if missing == "mean" else median(there)


def _refuse_infinite(X: Any, names: list[str], raw: Raw) -> None:
    infinite = numpy.isinf(X)
    if infinite.any():
        row = int(infinite.any(axis=1).argmax())
        column = int(infinite[row].argmax())
        raise InputError(
            f"{raw.row(row)}, column {names[column]!r}: {X[row, column]}; features must be finite. Mend the value, "
            "or leave the column out"
        )


def _emptiest(gone: Any, names: list[str]) -> str:
    return names[int(gone.sum(axis=0).argmax())]
