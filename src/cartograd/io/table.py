"""`Table`: a matrix of features, and beside it everything else that was in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cartograd.errors import OptionError


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows to be mapped.

    Parameters
    ----------
    X : array, (n, d)
        The features, float32 or float64, finite.
    feature_names : tuple of str
        The d names.
    columns : dict of str to array
        The other columns by name, in their order: (n,) of numbers, truth values, times or objects (str or None).
    ids : array, (n,)
        What the rows are called: the file's own ids, or the numbers of the rows.
    rows : array, (n,) int64
        The place of each row in the source, from 0: differs from 0, 1, 2, ... where rows were dropped.
    label_name, color_name, text_name : str, default=None
        The columns that were chosen.
    thumbnails : array, default=None
        (n, height, width) or (n, height, width, 3) uint8: a picture of each row.
    source : str, default=""
        What was read.
    gaps : array, default=None
        (n, d) bool: the values of X that were missing and were filled; None where there are none.
    categories : dict of str to list
        The values of each column that became one feature for each value; these are the last features.
    dropped : int, default=0
        How many rows were left out because a value was missing.
    """

    X: Any
    feature_names: tuple[str, ...]
    columns: dict[str, Any]
    ids: Any
    rows: Any
    label_name: str | None = None
    color_name: str | None = None
    text_name: str | None = None
    thumbnails: Any = None
    source: str = ""
    gaps: Any = None
    categories: dict[str, list[Any]] = field(default_factory=dict)
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        chosen = {"label": self.label_name, "color": self.color_name, "text": self.text_name}
        named = [f"{role}={name!r}" for role, name in chosen.items() if name is not None]
        shape = f"{len(self)} rows, {len(self.feature_names)} features"
        return f"Table({', '.join([shape, f'{len(self.columns)} other columns', *named])})"

    @property
    def label(self) -> Any:
        """The label column, or None."""
        return None if self.label_name is None else self.column(self.label_name)

    @property
    def color(self) -> Any:
        """The colour column, or None."""
        return None if self.color_name is None else self.column(self.color_name)

    @property
    def text(self) -> Any:
        """The text column, or None."""
        return None if self.text_name is None else self.column(self.text_name)

    def column(self, name: str) -> Any:
        """A column by name, (n,): a feature as it is used, or any other one."""
        if name in self.columns:
            return self.columns[name]
        if name in self.feature_names:
            return self.X[:, self.feature_names.index(name)]
        raise OptionError(f"there is no column {name!r}")

    def all_columns(self) -> dict[str, Any]:
        """Features and other columns by name; where both have a name, the feature."""
        features = {name: self.X[:, place] for place, name in enumerate(self.feature_names)}
        return features | {name: column for name, column in self.columns.items() if name not in features}
