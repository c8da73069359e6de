"""`cartograd explain`: which features hold each row where it is. Not there yet, and says so."""

from __future__ import annotations

import click

from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.options import INPUT, MODEL
from cartograd.cli.wording import help_text
from cartograd.errors import UnsupportedError

HELP = help_text(
    "Tells which features hold each row where it is. (Not in this version.)",
    [("cartograd explain map.cartograd cells.parquet --rows 0,17", "why two rows lie where they do")],
)


@command("explain", HELP)
@MODEL
@INPUT
@click.option("--rows", help="The rows to explain, counted from 0: numbers with commas. All, if left out.")
def explain(console: Console, model: str, source: str, rows: str | None) -> None:
    """Refuse, without looking at the arguments."""
    raise UnsupportedError(
        "maps cannot be explained in this version of cartograd, explanations come in a later one; colour the page of "
        "the map by a feature to see where it is high and low: cartograd map INPUT --color FEATURE"
    )
