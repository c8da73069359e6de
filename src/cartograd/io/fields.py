"""Fields of a schema: what a value in a model file may be. `cartograd.io.schema` is made of them.

A field has a method ``check(value, where, sizes)``, which raises `ModelFileError`, one line that names the place, where
the value is something else. Shapes are given in letters, such as ("n", "d"): the first array with a letter decides how
large it is, and all others must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy
import torch

from cartograd.core.checks import Constraint, show
from cartograd.engine import Tensor
from cartograd.errors import CartogradError, ModelFileError

FLOATS = (torch.float32, torch.float64)
DOUBLE = (torch.float64,)
INT64 = (torch.int64,)


@dataclass
class Sizes:
    """How large each letter is, and the least and the largest number of the arrays that were read."""

    known: dict[str, int] = field(default_factory=dict)
    extremes: dict[int, tuple[float, float, torch.Tensor]] = field(default_factory=dict)

    def bind(self, letter: str | int, size: int, where: str) -> None:
        """Raise where a letter (or a number) is of another size."""
        expected = self.known.setdefault(letter, size) if isinstance(letter, str) else letter
        if size != expected:
            raise ModelFileError(f"{where} has {size} and not {expected} rows, columns or entries")


class Field(Protocol):
    """What a value may be."""

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""


@dataclass(frozen=True)
class Numbers:
    """A finite array or tensor of a shape, a dtype and a range; None for an 8th of the dtype's own range.

    `below` is a letter: entries are row numbers below its size.
    """

    shape: tuple[str | int, ...]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    low: float | None = None
    high: float | None = None
    below: str | None = None
    types: tuple[type, ...] = (numpy.ndarray, torch.Tensor, Tensor)

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        if not isinstance(value, self.types):
            raise ModelFileError(f"{where} must be a {self.types[0].__name__} of numbers, got {show(value)}")
        tensor = as_tensor(value, where)
        if tensor.dim() != len(self.shape) or tensor.dtype not in self.dtypes:
            raise ModelFileError(
                f"{where} must have {len(self.shape)} dimensions and the dtype {_names(self.dtypes)}, got the shape "
                f"{tuple(tensor.shape)} and {_names((tensor.dtype,))}"
            )
        for axis, letter in enumerate(self.shape):
            sizes.bind(letter, tensor.shape[axis], f"axis {axis} of {where}")
        if tensor.numel() and (tensor.is_floating_point() or self.below is not None):
            self._check_range(tensor, where, sizes)

    def _check_range(self, tensor: torch.Tensor, where: str, sizes: Sizes) -> None:
        usual = torch.finfo(tensor.dtype).max / 8 if tensor.is_floating_point() else 0.0
        low, high = -usual if self.low is None else self.low, usual if self.high is None else self.high
        if self.below is not None:
            low, high = 0, sizes.known.get(self.below, math.inf) - 1
        if id(tensor) not in sizes.extremes:
            extremes = torch.aminmax(tensor)  # both are NaN where any number is
            sizes.extremes[id(tensor)] = float(extremes.min), float(extremes.max), tensor
        least, most, _ = sizes.extremes[id(tensor)]
        if not (least >= low and most <= high):
            raise ModelFileError(f"{where} must hold numbers from {low:g} to {high:g}, got {least:g} to {most:g}")


def tensor(
    shape: tuple[str | int, ...],
    dtypes: tuple[torch.dtype, ...] = FLOATS,
    low: float | None = None,
    high: float | None = None,
    below: str | None = None,
) -> Numbers:
    """Return the field of a tensor of torch's, which nothing else may stand for."""
    return Numbers(shape, dtypes, low, high, below, (torch.Tensor,))


@dataclass(frozen=True)
class Plain:
    """A value that a constraint on arguments allows."""

    constraint: Constraint

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        try:
            self.constraint.check(value, where)
        except CartogradError as error:
            raise ModelFileError(str(error)) from None


@dataclass(frozen=True)
class Size:
    """A whole number that says how large a letter is."""

    letter: str
    low: int = 1

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        if type(value) is not int or value < self.low:
            raise ModelFileError(f"{where} must be a whole number of at least {self.low}, got {show(value)}")
        sizes.bind(self.letter, value, where)


@dataclass(frozen=True)
class Maybe:
    """None, or another field."""

    other: Field

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        if value is not None:
            self.other.check(value, where, sizes)


@dataclass(frozen=True)
class Part:
    """An object of one of some classes, whose own fields a table gives."""

    names: tuple[str, ...]
    tables: Mapping[str, Mapping[str, Field]]
    own_sizes: bool = False
    """Whether its letters are its own."""

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        name = type(value).__name__
        if name not in self.names or not type(value).__module__.startswith("cartograd."):
            raise ModelFileError(f"{where} must be a {' or a '.join(self.names)}, got {show(value)}")
        own = Sizes(extremes=sizes.extremes) if self.own_sizes else sizes
        check_fields(self.tables[name], vars(value), where, own)


@dataclass(frozen=True)
class Entries:
    """A dictionary with declared entries; others are refused, and any may be missing."""

    fields: Mapping[str, Field]

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        if not isinstance(value, dict):
            raise ModelFileError(f"{where} must be a dictionary, got {show(value)}")
        unknown = [name for name in value if name not in self.fields]
        if unknown:
            raise ModelFileError(f"{where} has the entry {show(unknown[0])}, which this version does not know")
        check_fields({name: self.fields[name] for name in value}, value, where, sizes)


@dataclass(frozen=True)
class Sequence:
    """A list or tuple of values of one kind."""

    other: Field
    types: tuple[type, ...] = (list, tuple)

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        if type(value) not in self.types:
            raise ModelFileError(f"{where} must be a list or a tuple, got {show(value)}")
        for place, item in enumerate(value):
            self.other.check(item, f"{where}[{place}]", sizes)


@dataclass(frozen=True)
class Checked:
    """What a function of (value, where, sizes) does not refuse."""

    function: Callable[[Any, str, Sizes], None]

    def check(self, value: Any, where: str, sizes: Sizes) -> None:
        """Raise where the value is something else."""
        self.function(value, where, sizes)


def check_fields(fields: Mapping[str, Field], values: Mapping[str, Any], where: str, sizes: Sizes) -> None:
    """Check each field of a table; one that is missing is refused."""
    for name, one in fields.items():
        if name not in values:
            raise ModelFileError(f"{where} has no {name}")
        one.check(values[name], f"{where}.{name}", sizes)


def as_tensor(value: Any, where: str) -> torch.Tensor:
    """Return an array, a tensor of torch's or one of ours as a tensor of torch's that shares its memory."""
    if isinstance(value, Tensor):
        return value.data
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    raise ModelFileError(f"{where} must be an array of numbers, got {show(value)}")


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return " or ".join(str(one).removeprefix("torch.") for one in dtypes)
