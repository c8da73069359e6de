"""The program `cartograd` and its commands."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import click

from cartograd.cli.bench import bench
from cartograd.cli.completion import completion
from cartograd.cli.explain import explain
from cartograd.cli.info import info
from cartograd.cli.map import map_command
from cartograd.cli.score import score
from cartograd.cli.transform import transform
from cartograd.cli.view import view
from cartograd.cli.wording import help_text, one_line

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


class Program(click.Group):
    """The group of all commands: lists them as they were added, and says what is wrong with one in one line."""

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        """Read the words before the command."""
        with saying_one_line():
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Read the words of the command, and run it."""
        with saying_one_line():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self.commands)


@contextlib.contextmanager
def saying_one_line() -> Iterator[None]:
    """Put what is wrong with a command into one line of characters that a terminal can show."""
    try:
        yield
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help, in words of its own
            raise
        raise click.UsageError(one_line(error.format_message()), error.ctx) from error


@click.group(
    "cartograd",
    cls=Program,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="cartograd", message="cartograd %(version)s")
def main() -> None:
    """The program; all that it does is in its commands."""
    if "WORLD_SIZE" in os.environ:  # where the processes do not meet, torch would say so at length, and we in a line
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")


for command in (map_command, transform, score, view, explain, info, bench, completion):
    main.add_command(command)
