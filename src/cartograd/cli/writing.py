"""A map into its files: the page, the table, the picture and the model, each written wholly or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cartograd.cli.console import Console
from cartograd.cli.outputs import Outputs
from cartograd.cli.reading import AXES, coordinate_names
from cartograd.errors import ModelFileError

if TYPE_CHECKING:
    from cartograd.io import Table

MOST_WRITTEN = 1000
"""Tables of more features are written without them: they are in the input, and a file of so many columns is slow."""
MOST_SHOWN = 50
"""Pages of tables of more features are without them."""


def write_files(console: Console, files: Outputs, table: Table, Z: Any, model: Any, title: str) -> dict[str, str]:
    """Write everything; returns the files that were written, by what they are."""
    from cartograd import io

    if files.page is not None:
        console.step(f"Writing {files.page}")
        write_the_page(files.page, table, Z, title)
    io.write_table(files.table, table_columns(console, table, Z))
    if files.picture is not None:
        draw(files.picture, table, Z, title)
    written = {name: str(path) for name, path in files.all().items()}
    try:
        io.save_model(model, files.model)
    except ModelFileError as error:
        console.note(f"the model was not written: {error}")
        written.pop("model")
    return written


def table_columns(console: Console, table: Table, Z: Any) -> dict[str, Any]:
    """Places, then the input's columns. One of them that is called as a coordinate is ``input_x`` here."""
    places = {name: Z[:, axis] for axis, name in enumerate(coordinate_names(Z.shape[1]))}
    kept = dict(table.columns) if len(table.feature_names) > MOST_WRITTEN else table.all_columns()
    if len(kept) < len(table.feature_names):
        console.note(f"the table holds no features: there are more than {MOST_WRITTEN:,}")
    taken = {*places, *AXES}
    columns = places | {_free(name, taken, kept) if name in taken else name: column for name, column in kept.items()}
    return columns | _row_names(table, columns)


def _free(name: str, taken: set[str], others: dict[str, Any]) -> str:
    name = f"input_{name}"
    while name in taken or name in others:
        name = f"input_{name}"
    return name


def _row_names(table: Table, columns: dict[str, Any]) -> dict[str, Any]:
    """What the rows are called, unless a column says so already, and their place in the input if some were dropped."""
    import numpy

    named: dict[str, Any] = {}
    if table.ids.dtype == object and not any(numpy.array_equal(table.ids, column) for column in table.columns.values()):
        named["id"] = table.ids
    if not numpy.array_equal(table.rows, numpy.arange(len(table))):
        named["row"] = table.rows
    return {name: values for name, values in named.items() if name not in columns}


def write_the_page(path: Path, table: Table, Z: Any, title: str) -> None:
    """The interactive page, with the columns that a reader may want to see, and pictures where there are any."""
    from cartograd.viewer import write_page

    shown = dict(table.columns) | _row_names(table, table.columns)
    if len(table.feature_names) <= MOST_SHOWN and table.thumbnails is None:
        shown |= {name: table.column(name) for name in table.feature_names if name not in shown}
    for name in (table.label_name, table.color_name, table.text_name):
        if name is not None:
            shown[name] = table.column(name)
    write_page(
        path,
        Z,
        data=shown,
        color=table.color_name,
        label=table.label_name,
        text=table.text_name,
        images=table.thumbnails,
        title=title,
    )


def draw(path: Path, table: Table, Z: Any, title: str) -> None:
    """The picture, coloured as the page is at first."""
    import matplotlib

    matplotlib.use("agg")  # no window is opened, and no screen is needed
    from matplotlib import pyplot

    from cartograd.viewer import plot

    name = table.color_name or table.label_name
    axes = plot(Z, None if name is None else table.column(name), title=title, save=path)
    pyplot.close(axes.figure)  # type: ignore[arg-type]
