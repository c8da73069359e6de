"""The program `cartograd` and its commands."""

from __future__ import annotations

import click

from cartograd.cli.bench import bench
from cartograd.cli.completion import completion
from cartograd.cli.explain import explain
from cartograd.cli.info import info
from cartograd.cli.map import map_command
from cartograd.cli.score import score
from cartograd.cli.transform import transform
from cartograd.cli.view import view
from cartograd.cli.wording import help_text

HELP = help_text(
    """Draws maps of data: each row of a table, each image of a folder becomes a point, and rows that are alike lie
    close together.""",
    [
        ("cartograd map digits", "a first map, of a set that comes along: map.html"),
        ("cartograd map cells.parquet --label cell_type -o cells.html", "a map of your own table"),
        ("cartograd view cells.html", "look at it"),
        ("cartograd transform cells.cartograd new.parquet -o placed.parquet", "place new rows"),
        ("cartograd COMMAND --help", "what a command takes"),
    ],
    """Results go to standard output, progress and messages to standard error. The exit status is 0 where all went
    well, 1 where the run failed, 2 where the command was wrong, 130 after Ctrl-C.""",
)


class InOrder(click.Group):
    """A group that lists its commands as they were added: the first ones first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self.commands)


@click.group(
    "cartograd",
    cls=InOrder,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="cartograd", message="cartograd %(version)s")
def main() -> None:
    """The program; all that it does is in its commands."""


for command in (map_command, transform, score, view, explain, info, bench, completion):
    main.add_command(command)
