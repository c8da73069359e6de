"""`cartograd transform`: new rows placed in a map that was made before."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cartograd.cli.alike import read_alike
from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.names import FileName
from cartograd.cli.options import COMPUTING, FEATURES, INPUT, MODEL, READING_ALIKE, check_computing
from cartograd.cli.outputs import TABLES, check_targets
from cartograd.cli.reading import rows_of
from cartograd.cli.timing import Clock, threads
from cartograd.cli.wording import counted, help_text, program
from cartograd.cli.writing import table_columns
from cartograd.errors import UnsupportedError

if TYPE_CHECKING:
    from cartograd.io import Table

HELP = help_text(
    """Places new rows in a map. The map stays as it is, and each row's place depends on that row alone. Writes a table
    of x, y and the columns of INPUT.""",
    [
        ("cartograd transform map.cartograd new.csv -o placed.parquet", "rows of a table"),
        ("cartograd transform map.cartograd - -o - < new.csv", "from a pipe, as CSV into another"),
        ("cartograd view placed.parquet", "look at them"),
    ],
    """MODEL is a file that `cartograd map` or model.save() wrote. The features are found in INPUT by the names they had
    when the map was made; --columns names others, in the same order. Gaps are filled as they were for the map, with
    the map's means or medians, and categories become the map's features.""",
)


@command("transform", HELP)
@MODEL
@INPUT
@click.option(
    "-o",
    "--output",
    type=FileName(),
    default="placed.parquet",
    show_default=True,
    metavar="FILE",
    help="The table; - to print it as CSV.",
)
@FEATURES
@READING_ALIKE
@COMPUTING
def transform(console: Console, model: str, source: str, output: str, **options: Any) -> None:
    """Load, read alike, place, write."""
    check_computing(options)
    _check_output(console, output, source)
    clock = Clock()
    with clock.phase("load"):
        estimator = _loaded(model, options["device"])
    with clock.phase("read"):
        table = read_alike(console, source, options, estimator)
    with threads(options["threads"]), clock.phase("place"):
        console.step(f"Placing {counted(len(table), 'row')}")
        Z = estimator.transform(table.X)
    with clock.phase("write"):
        _write(console, output, table, Z)
    if output != "-":
        what = f"{counted(len(table), 'row')} of {table.source}"
        console.say(f"Placed {what} in the map of {model} ({type(estimator).__name__})", clock.line(), "")
        console.say(f"Table: {output}", f"Next: {program()} view {shlex.quote(output)}")
    console.result(
        {
            "command": "transform",
            "model": model,
            "method": type(estimator).__name__,
            "input": {"source": table.source, "rows": len(table), "features": len(table.feature_names)},
            "rows": rows_of(table),
            "seconds": clock.all(),
            "files": {"table": output},
            "notes": console.notes,
        }
    )


def _check_output(console: Console, output: str, source: str) -> None:
    if output == "-":
        if console.json:
            raise click.UsageError("-o - and --json both print on standard output; use one of them.")
        return
    if Path(output).suffix.lower() not in (*TABLES, ".npy"):
        kinds = ", ".join((*TABLES, ".npy"))
        raise click.BadParameter(f"{output}: the name must end in one of {kinds}.", param_hint="'-o'")
    check_targets([Path(output)], source)


def _loaded(path: str, device: str) -> Any:
    from cartograd import io

    model = io.load_model(path)
    if not hasattr(model, "transform"):
        raise UnsupportedError(f"{path}: {type(model).__name__} has no place for new rows; map all rows together")
    if hasattr(model, "device"):
        model.set_params(device=device)  # not where it was fitted: that may have been another machine
    return model


def _write(console: Console, output: str, table: Table, Z: Any) -> None:
    from cartograd import io

    columns = table_columns(console, table, Z)
    if output != "-":
        if output.lower().endswith(".npy"):
            columns = {name: columns[name] for name in list(columns)[: Z.shape[1]]}
        io.write_table(output, columns)
        return
    with tempfile.TemporaryDirectory(prefix="cartograd-") as folder:
        path = Path(folder, "placed.csv")
        io.write_table(path, columns)
        sys.stdout.flush()
        with open(path, encoding="utf-8", newline="") as file:
            shutil.copyfileobj(file, sys.stdout)
