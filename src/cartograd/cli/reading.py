"""Reading what a command was given: a table of rows, or a map that was made before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cartograd.cli.console import Console
from cartograd.cli.options import READ
from cartograd.errors import InputError, OptionError

if TYPE_CHECKING:
    from cartograd.io import Table

AXES = ("x", "y", "z")
DIMENSION = "dim_"
"""Coordinates of maps of more than three dimensions are called dim_0, dim_1, ..."""
MODEL_SUFFIX = ".cartograd"
DROPPED = "a value is missing"


def read_input(console: Console, source: str, options: dict[str, Any], learned: Any = None) -> Table:
    """Read the table that a command was given, and say how many rows were dropped.

    Parameters
    ----------
    console : Console
        Where it is said.
    source : str
        The table.
    options : dict
        The options of `READ`, among others.
    learned : cartograd.io.learned.Learned, default=None
        What the rows of a map taught; None for a table that is to be mapped.
    """
    from cartograd import io
    from cartograd.cli.wording import counted

    console.step(f"Reading {'standard input' if source == '-' else source}")
    chosen = {name: options[name] for name in READ if options.get(name) is not None}
    table = io.read(source, verbose=console.progress, learned=learned, **chosen)
    if table.dropped:
        were = "was" if table.dropped == 1 else "were"
        console.note(f"{counted(table.dropped, 'row')} of {table.source} {were} dropped: {DROPPED}")
    return table


def rows_of(table: Table) -> dict[str, Any]:
    """Return how many rows were read, used and dropped, and why."""
    why = DROPPED if table.dropped else ""
    return {"read": len(table) + table.dropped, "used": len(table), "dropped": table.dropped, "why": why}


@dataclass(frozen=True)
class Map:
    """A map that was made before.

    Parameters
    ----------
    Z : numpy.ndarray
        (n, c): the places of its rows.
    columns : dict of str to array
        The other columns of its file.
    model : object, default=None
        The model, where the map is that of one.
    """

    Z: Any
    columns: dict[str, Any]
    model: Any = None


def coordinate_names(count: int) -> list[str]:
    """What the columns of a map's places are called.

    Examples
    --------
    >>> coordinate_names(2), coordinate_names(4)
    (['x', 'y'], ['dim_0', 'dim_1', 'dim_2', 'dim_3'])
    """
    return list(AXES[:count]) if count <= len(AXES) else [f"{DIMENSION}{place}" for place in range(count)]


def read_map(path: str) -> Map:
    """The places in a table that `cartograd map` wrote, in any array of numbers, or in a model."""
    if path.endswith(MODEL_SUFFIX):
        return _of_model(path)
    from cartograd import io

    for first in (AXES[0], f"{DIMENSION}0"):
        try:
            table = io.read(path, columns=[first])
        except OptionError:
            continue
        return _of_table(table, first)
    table = io.read(path)  # an array that names no columns, or a table of other origin
    if not 1 <= table.X.shape[1] <= len(AXES):
        raise InputError(
            f"{path}: this is no map: it has no columns x and y, and {table.X.shape[1]} columns of numbers; give a "
            "table that `cartograd map` or `cartograd transform` wrote, or an array (n, 2)"
        )
    return Map(table.X, dict(table.columns))


def _of_table(table: Table, first: str) -> Map:
    import numpy

    others = dict(table.columns)
    names = AXES[1:] if first == AXES[0] else [f"{DIMENSION}{place}" for place in range(1, len(others) + 1)]
    found = [table.X[:, 0]]
    for name in names:
        if name not in others or others[name].dtype.kind not in "iuf":
            break
        found.append(others.pop(name))
    return Map(numpy.column_stack(found), others)


def _of_model(path: str) -> Map:
    from cartograd import io
    from cartograd.viewer.points import plain_array

    model = io.load_model(path)
    if not hasattr(model, "embedding_"):
        raise InputError(f"{path}: the {type(model).__name__} in it has no map: it was not fitted; fit it first")
    return Map(plain_array(model.embedding_), {}, model)
