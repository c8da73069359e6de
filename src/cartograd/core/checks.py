"""Constraints on arguments: what a value may be, declared once, with one line of error where it is something else.

A constraint has a method ``check(value, name)``, which raises `UnsupportedError` for a wrong type and `OptionError` for
a wrong value. The message names the argument, the value given and what is allowed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from cartograd.core.filenames import wrong_name
from cartograd.errors import OptionError, UnsupportedError

LONGEST = 80
"""Characters of a value that an error message shows at most."""
LARGEST = sys.float_info.max


def show(value: Any) -> str:
    """Return a value as one short line for an error message, whatever its type."""
    kind = type(value).__name__
    if value is None or type(value) in (bool, float, complex) or (type(value) is int and abs(value) < 1e100):
        return repr(value)
    if isinstance(value, (str, bytes)):
        return shorten(ascii(value[:LONGEST]) if type(value) in (str, bytes) else kind)
    if isinstance(getattr(value, "shape", None), tuple):
        return f"an array of shape {tuple(value.shape)} ({kind})"
    if isinstance(value, (list, tuple, set, frozenset, dict, range)):
        return f"a {kind} of {len(value)}"
    if isinstance(value, type):
        return f"the class {shorten(value.__name__)}"
    return f"a {kind}" if kind != "int" else "a whole number of many digits"


def shorten(text: str) -> str:
    """Return a text as one line of at most `LONGEST` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def number(value: Any, name: str, low: float = -LARGEST, strict: bool = False, high: float = LARGEST) -> float:
    """Return `value` as a float of at least `low` (above it if `strict`) and at most `high`."""
    if isinstance(value, (bool, numpy.bool_)) or not isinstance(value, (int, float, numpy.integer, numpy.floating)):
        raise UnsupportedError(f"{name} must be a number, got {show(value)} of type {type(value).__name__}")
    if not ((value > low if strict else value >= low) and value <= high):
        bound = f"above {low:g}" if strict else f"at least {low:g}"
        bound = bound if low > -LARGEST else ""
        top = f"at most {high:g}" if high < LARGEST else ""
        raise OptionError(f"{name} must be {' and '.join(filter(None, (bound, top, 'finite')))}, got {show(value)}")
    return float(value)


def count(value: Any, name: str, low: int = 1, high: int | None = None) -> int:
    """Return `value` as an int of at least `low`, and at most `high`."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number as an array or tensor
        value = value.item()
    if isinstance(value, (bool, numpy.bool_)) or not isinstance(value, (int, numpy.integer)):
        raise UnsupportedError(f"{name} must be a whole number, got {show(value)} of type {type(value).__name__}")
    if value < low or (high is not None and value > high):
        top = "" if high is None else f" and at most {high}"
        raise OptionError(f"{name} must be at least {low}{top}, got {show(int(value))}")
    return int(value)


def choice(value: Any, name: str, known: tuple[Any, ...]) -> None:
    """Refuse a value that is not among those known."""
    if not any(value is one or (type(value) is type(one) and value == one) for one in known):
        raise OptionError(f"{name} must be one of {', '.join(map(repr, known))}, got {show(value)}")


class Constraint(Protocol):
    """What an argument may be."""

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""


@dataclass(frozen=True)
class Whole:
    """A whole number of at least `low` and at most `high`."""

    low: int = 1
    high: int | None = None

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""
        if getattr(value, "shape", None) == () and not isinstance(value, numpy.integer):
            raise UnsupportedError(f"{name} must be a whole number, got {show(value)}; write int(...)")
        count(value, name, self.low, self.high)


@dataclass(frozen=True)
class Real:
    """A finite number of at least `low` (above it if `strict`) and at most `high`."""

    low: float = -LARGEST
    strict: bool = False
    high: float = LARGEST

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""
        number(value, name, self.low, self.strict, self.high)


class OneOf:
    """One of a few values."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""
        choice(value, name, self.values)


@dataclass(frozen=True)
class Or:
    """One of a few words or None, or what another constraint allows."""

    words: tuple[Any, ...]
    other: Constraint

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""
        if any(value is word or (type(value) is str and value == word) for word in self.words):
            return
        try:
            self.other.check(value, name)
        except (OptionError, UnsupportedError) as error:
            words = ", ".join(map(repr, self.words))
            raise type(error)(f"{error}; also allowed: {words}") from None


def optional(other: Constraint) -> Or:
    """Allow None besides."""
    return Or((None,), other)


@dataclass(frozen=True)
class Test:
    """What a function of (value, name) does not refuse."""

    function: Callable[[Any, str], Any]

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""
        self.function(value, name)


@dataclass(frozen=True)
class Instance:
    """An object of one of some types, which `words` names."""

    types: tuple[type, ...]
    words: str

    def check(self, value: Any, name: str) -> None:
        """Raise where the value is something else."""
        if not isinstance(value, self.types):
            raise UnsupportedError(f"{name} must be {self.words}, got {show(value)}")


FLAG = OneOf(True, False)


def check_path(value: Any, name: str) -> None:
    """Refuse what is no path: only texts and path objects, without NUL characters."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise UnsupportedError(f"{name} must be a path as text, got {show(value)}")
    wrong = wrong_name(os.fspath(value))
    if wrong is not None:
        raise OptionError(f"{name} must be the path of a file or folder, got {show(os.fspath(value))}: {wrong}")


def check_function(value: Any, name: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise UnsupportedError(f"{name} must be a function, got {show(value)}")
