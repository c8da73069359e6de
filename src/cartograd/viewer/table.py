"""The data beside a map: a frame or a mapping of columns, and those that are to colour, label or describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.viewer.columns import Column, Kind, column


@dataclass(frozen=True)
class Table:
    """Columns, and the places among them of the ones with a task.

    Parameters
    ----------
    columns : list of Column
        All of them, in the order in which they are shown.
    color, label, text : int or None
        Which column colours the points at first, names the clusters, heads the hover card.
    """

    columns: list[Column]
    color: int | None
    label: int | None
    text: int | None


def read_table(count: int, data: Any = None, *, color: Any = None, label: Any = None, text: Any = None) -> Table:
    """Recognise the columns of `data` and of the arguments that may name one of them or bring their own.

    Parameters
    ----------
    count : int
        How many rows the map has.
    data : mapping or frame or None, default=None
        Column name -> one value for each row; a dict, a frame of pandas or polars, an Arrow table, a structured array.
    color, label, text : str or sequence or None, default=None
        The name of a column of `data`, or one value for each row.

    Examples
    --------
    >>> table = read_table(2, {"a": [0.5, 1.5]}, color="a", text=["one", "two"])
    >>> [(column.name, column.kind) for column in table.columns], table.color, table.text
    ([('a', 'number'), ('text', 'text')], 0, 1)
    """
    given = dict(_named_columns(data))
    roles: dict[str, str | None] = {}
    for role, value in (("label", label), ("color", color), ("text", text)):
        roles[role] = _role(role, value, given)
    kinds: dict[str | None, Kind] = {roles["text"]: "text", roles["label"]: "category"}
    columns = [column(name, values, count, kind=kinds.get(name)) for name, values in given.items()]
    # a text cannot colour, unless it was asked for: then each of its values is a category
    columns = [
        column(found.name, given[found.name], count, kind="category")
        if found.name == roles["color"] and found.kind == "text"
        else found
        for found in columns
    ]
    places = {found.name: place for place, found in enumerate(columns)}
    coloured = places.get(roles["color"] or roles["label"] or _first_category(columns))
    return Table(columns, coloured, places.get(roles["label"] or ""), places.get(roles["text"] or ""))


def _named_columns(data: Any) -> list[tuple[str, Any]]:
    """(name, values) of whatever has named columns."""
    if data is None:
        return []
    if isinstance(data, Mapping):
        keys: Any = data.keys()
    elif getattr(getattr(data, "dtype", None), "names", None):
        keys = data.dtype.names
    elif hasattr(data, "column_names"):  # Arrow
        keys = data.column_names
    elif hasattr(data, "columns") and hasattr(data, "__getitem__"):
        keys = data.columns
    else:
        raise UnsupportedError(
            f"data must be a mapping of column names to values or a data frame, got {type(data).__name__}"
        )
    keys = list(keys)
    names = [str(key) for key in keys]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"data has several columns called {twice[0]!r}: rename all but one")
    return [(name, data[key]) for name, key in zip(names, keys, strict=True)]


def _role(role: str, value: Any, given: dict[str, Any]) -> str | None:
    """The name of the column that has the role; values that were brought along are put into `given` first."""
    if value is None:
        return None
    if isinstance(value, str):
        if value not in given:
            known = ", ".join(map(repr, given)) or "none: data was not given"
            raise OptionError(f"{role}={value!r} is not a column of data; the columns are {known}")
        return value
    name = role
    while name in given:
        name += "_"
    given[name] = value
    return name


def _first_category(columns: list[Column]) -> str:
    return next((found.name for found in columns if found.kind == "category"), "")
