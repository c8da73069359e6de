"""What a reader is given, and what it gives: named columns as they are in the file, nothing chosen yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cartograd.core.lazy import lazy_attribute
from cartograd.io.limits import MAX_BYTES


@dataclass(frozen=True)
class Options:
    """How to read, from the arguments of `cartograd.io.read`."""

    key: str | None = None
    max_bytes: int = MAX_BYTES
    header: bool | None = None
    delimiter: str | None = None
    encoding: str | None = None
    verbose: bool = False


@dataclass
class Raw:
    """Columns of one length.

    Parameters
    ----------
    columns : dict of str to array
        By name, in order: (n,) of numbers, truth values, times or objects (str or None), or (n, d) of numbers.
    parts : dict of str to list of str
        The names of the d columns of a matrix, where they have any.
    features : list of str, default=None
        The columns that are the features; None where they are to be found by their kind.
    ids : array, default=None
        What the file itself calls its rows, (n,).
    label : str, default=None
        The column that is the label by the nature of the source.
    thumbnails : array, default=None
        (n, height, width) or (n, height, width, 3) uint8.
    lines : array, default=None
        The line on which each row begins, counted from 1, (n,).
    odd : dict of str to (int, str)
        Columns of text that would be numbers but for a few cells: the first such row and cell.
    """

    columns: dict[str, Any]
    parts: dict[str, list[str]] = field(default_factory=dict)
    features: list[str] | None = None
    ids: Any = None
    label: str | None = None
    thumbnails: Any = None
    lines: Any = None
    odd: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @lazy_attribute
    def part_places(self) -> dict[str, tuple[str, int]]:
        """The matrix and the place in it of each named part; the first where several have the name."""
        places: dict[str, tuple[str, int]] = {}
        for home, parts in self.parts.items():
            for place, part in enumerate(parts):
                places.setdefault(part, (home, place))
        return places

    def has(self, name: str) -> bool:
        """Return whether a column, or a part of a matrix, has the name."""
        return name in self.columns or name in self.part_places

    def row(self, place: int) -> str:
        """A row as a reader of the file would count it."""
        return f"row {place + 1}" if self.lines is None else f"row {place + 1} (line {int(self.lines[place])})"


@dataclass(frozen=True)
class Given:
    """A file to be read.

    Parameters
    ----------
    path : Path
        Where it is.
    name : str
        What to call it.
    """

    path: Path
    name: str
