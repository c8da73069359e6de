"""The arguments of `cartograd.io.read`, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from cartograd.core.checks import FLAG, Constraint, Instance, Whole, optional, show
from cartograd.errors import UnsupportedError
from cartograd.io.choosing import Choice
from cartograd.io.missing import check_option
from cartograd.io.raw import Options
from cartograd.io.textfile import check_encoding

TEXT = optional(Instance((str,), "text"))
OPTIONS: dict[str, Constraint] = {
    "key": TEXT,
    "max_bytes": Whole(1),
    "header": optional(FLAG),
    "delimiter": TEXT,
    "encoding": TEXT,
    "verbose": FLAG,
}
ROLES = ("label", "color", "text")


def check(options: Options, choice: Choice) -> None:
    """Refuse arguments of wrong types, by name."""
    for name, constraint in OPTIONS.items():
        constraint.check(getattr(options, name), name)
    if options.encoding is not None:
        check_encoding(options.encoding)
    for role in ROLES:
        TEXT.check(getattr(choice, role), role)
    check_option(choice.missing)


def names_of(names: Any, argument: str) -> list[str] | None:
    """Return one name or several as a list of text; refuse other things."""
    if names is None or isinstance(names, str):
        return names if names is None else [names]
    if isinstance(names, bytes) or not isinstance(names, Iterable):
        raise UnsupportedError(f"{argument} must be a list of names of columns, got {show(names)}")
    found = list(names)
    for name in found:
        if not isinstance(name, (str, int, numpy.integer)):
            raise UnsupportedError(f"{argument} must hold names as text, got {show(name)} among them")
    return [str(name) for name in found]
