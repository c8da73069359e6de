"""Which columns are features: those that were asked for, or those that hold quantities."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from cartograd.errors import InputError, OptionError
from cartograd.io.learned import Learned
from cartograd.io.raw import Raw

log = logging.getLogger("cartograd.io")

ID_NAME = re.compile(
    r"(?i:(.*[ _.-])?(id|ids|uuid|guid)|index|idx|key|row|row[ _]?(id|names?|numbers?)|unnamed: 0)|.*[a-z]Id"
)
LABEL_NAME = re.compile(r"(?i)labels?|class(es)?|targets?|clusters?|category|categories|y")
NAMED_AT_MOST = 12
"""Columns that a message lists."""


@dataclass(frozen=True)
class Choice:
    """What the caller chose, from the arguments of `cartograd.io.read`."""

    columns: Sequence[str] | None = None
    label: str | None = None
    color: str | None = None
    text: str | None = None
    missing: str = "error"
    one_hot: Sequence[str] = ()
    learned: Learned | None = None


def listed(names: Sequence[str]) -> str:
    """Some names, for a message."""
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(repr(name) for name in names[:NAMED_AT_MOST]) + more


def check_name(raw: Raw, name: str, role: str) -> None:
    """Refuse a name that no column has, and say which are near it."""
    if not raw.has(name):
        known = [*raw.columns, *raw.part_places]
        near = difflib.get_close_matches(name, known[:1000], 3)
        hint = f"; did you mean {listed(near)}?" if near else f"; there are {listed(known)}"
        raise OptionError(f"{role}: there is no column {name!r}{hint}")


def selected(raw: Raw, choice: Choice, source: str) -> list[str]:
    """The names of the features, `columns` or found by kind; entries that begin with a minus are left out."""
    left_out = []
    if choice.columns is not None:
        left_out = [name[1:] for name in choice.columns if name.startswith("-") and name not in raw.columns]
        if not left_out or len(left_out) < len(choice.columns):
            if left_out:
                raise OptionError("columns: names with and without a minus are mixed; give one kind")
            for name in choice.columns:
                check_name(raw, name, "columns")
            return list(dict.fromkeys(choice.columns))
        for name in left_out:
            check_name(raw, name, "columns")
    if raw.features is not None:
        return _without_parts(raw, left_out)
    return _by_kind(raw, choice, left_out, source)


def _without_parts(raw: Raw, left_out: Sequence[str]) -> list[str]:
    without = set(left_out)
    names = [name for name in raw.features or [] if name not in without]
    if not without & raw.part_places.keys():
        return names
    spread = [part for name in names for part in raw.parts.get(name, [name])]
    return [name for name in spread if name not in without]


def _by_kind(raw: Raw, choice: Choice, left_out: Sequence[str], source: str) -> list[str]:
    without, hot = set(left_out), set(choice.one_hot)
    reasons = {name: _reason(raw, choice, name, hot) for name in raw.columns if name not in without}
    for name, reason in reasons.items():
        if reason == "text" and name in raw.odd and name != choice.color:
            place, cell = raw.odd[name]
            raise InputError(
                f"{raw.row(place)}, column {name!r}: {cell!r} is no number, and nearly all others in the column are; "
                f"mend the cell, or leave the column out with columns=['-{name}']"
            )
        if reason is not None:
            log.info("%s: column %r is kept beside the features: %s", source, name, reason)
    return [name for name, reason in reasons.items() if reason is None]


def _reason(raw: Raw, choice: Choice, name: str, hot: set[str]) -> str | None:
    """Why a column is no feature; None where it is one."""
    column = raw.columns[name]
    for role, chosen in (("label", choice.label or raw.label), ("text", choice.text)):
        if name == chosen:
            return f"it is the {role}"
    if name in hot:
        return "it becomes one feature for each of its values"
    if column.dtype.kind not in "iuf":
        return {"b": "truth values", "M": "times", "m": "lengths of time"}.get(column.dtype.kind, "text")
    if column.ndim == 2:
        return None
    if column.dtype.kind == "f" and bool(numpy.isnan(column).all()):
        return "it is empty"
    if is_id(name, column):
        return "it looks like ids: whole numbers, all different"
    if _looks_like_label(raw, name):
        return "it looks like a label: a few whole numbers"
    return None


def is_id(name: str, column: Any) -> bool:
    """Whether a column names its rows: a name such as "id", and a different whole number or text in every row."""
    if column.ndim != 1 or column.dtype.kind not in "iuO":
        return False
    nameless = name == "column_1" and column.dtype.kind != "O" and len(column) > 2
    if nameless and not (column[0] in (0, 1) and bool((numpy.diff(column) == 1).all())):
        return False
    if not nameless and not ID_NAME.fullmatch(name):
        return False
    return None not in set(column.tolist()) and len(set(column.tolist())) == len(column)


def _looks_like_label(raw: Raw, name: str) -> bool:
    column = raw.columns[name]
    if (
        column.dtype.kind not in "iu"
        or not LABEL_NAME.fullmatch(name)
        or (name in "yY" and {"x", "X"} & set(raw.columns))
    ):
        return False
    return 2 * len(numpy.unique(column)) <= len(column)
