"""Columns that are built piece by piece from cells of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from cartograd.io import cells

POINTER = 8


class Pieces:
    """Arrays of numbers or lists of text for each column, one for each piece that was added.

    Parameters
    ----------
    names : list of str
        The columns.
    texts : set of int
        Columns that are known to be text: their cells are kept as they are written.

    Attributes
    ----------
    turned : set of int
        Columns whose first pieces were numbers and a later one was not. The table must then be read again.
    nbytes : int
        About what the pieces take.
    """

    def __init__(self, names: Sequence[str], texts: set[int]) -> None:
        self.names, self.texts = list(names), set(texts)
        self.turned: set[int] = set()
        self.lines: list[Any] = []
        self.nbytes = 0
        self._kept: list[list[Any]] = [[] for _ in names]

    def add(self, lines: Sequence[int], columns: Sequence[Sequence[str]]) -> None:
        """Add rows: the line of each, and the cells of each column."""
        self.lines.append(numpy.array(lines, dtype=numpy.int64))
        for place, column in enumerate(columns):
            if place in self.turned:
                continue
            piece = None if place in self.texts else cells.numbers(column)
            if piece is None and place not in self.texts:
                (self.turned if self._kept[place] else self.texts).add(place)
            if piece is None:
                piece = cells.text_column(column)
                self.nbytes += POINTER * len(column) + len("".join(column))
            else:
                self.nbytes += piece.nbytes
            self._kept[place].append(piece)

    def columns(self) -> dict[str, Any]:
        """Each column as one array; a column of whole numbers and others is one of float64."""
        return {name: numpy.concatenate(kept) for name, kept in zip(self.names, self._kept, strict=True)}
