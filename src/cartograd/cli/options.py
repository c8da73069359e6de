"""Arguments and options that several commands share; each option is called as the Python parameter is."""

from __future__ import annotations

import os
from typing import Any

import click

from cartograd.cli.command import Decorator, together
from cartograd.cli.names import Count, Delimiter, Encoding, FileName, Names

MISSING = ("error", "mean", "median", "zero", "drop")
READ = (
    "columns",
    "label",
    "color",
    "text",
    "missing",
    "one_hot",
    "key",
    "header",
    "delimiter",
    "encoding",
    "max_bytes",
)
"""The options that say how a table is read."""


MOST_THREADS = max(256, os.cpu_count() or 1)

INPUT = click.argument("source", metavar="INPUT", type=FileName())
MODEL = click.argument("model", metavar="MODEL", type=FileName())
MAP = click.argument("map_file", metavar="MAP", type=FileName())

FEATURES = together(
    click.option(
        "--columns", type=Names(), help="The features, by name; with a minus before each, those to leave out."
    ),
    click.option("--label", metavar="COLUMN", help="The column with the classes; it is no feature then."),
)
LOOKS = together(
    click.option("--color", metavar="COLUMN", help="The column to colour the map by."),
    click.option("--text", metavar="COLUMN", help="The column with the text to show for each row."),
)


def reading(missing: str | None, what: str) -> Decorator:
    """Return the options that say how a table is read.

    Parameters
    ----------
    missing : str or None
        The default of `--missing`.
    what : str
        The help of `--missing`.
    """
    return together(
        click.option("--missing", type=click.Choice(MISSING), default=missing, show_default=True, help=what),
        *HOW_TO_READ,
    )


HOW_TO_READ = (
    click.option("--one-hot", type=Names(), help="Columns of categories to make one feature of each value."),
    click.option("--key", metavar="NAME", help="The array of an .npz file; the obsm, the layer or X of an .h5ad file."),
    click.option("--header/--no-header", default=None, help="Whether the first line of a text file names the columns."),
    click.option("--delimiter", type=Delimiter(), help="What stands between the cells of a text file."),
    click.option("--encoding", type=Encoding(), metavar="NAME", help="The encoding of a text file."),
    click.option(
        "--max-bytes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Refuse tables that take more memory; 8 GiB if not given.",
    ),
)
READING = reading("error", "What to do with missing values of features: refuse, fill, or leave the row out.")
READING_ALIKE = reading(None, "What to do with missing values of features; as for the map, if not given.")
COMPUTING = together(
    click.option(
        "--device", default="auto", show_default=True, metavar="DEVICE", help="Where to compute: cpu, cuda, cuda:1, ..."
    ),
    click.option(
        "--threads",
        type=Count(MOST_THREADS),
        metavar="N",
        help="Threads to use; the map is the same with any number.",
    ),
)
SEED = click.option(
    "--seed",
    "--random-state",
    "seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of all that is random; the same seed gives the same map.",
)
SCORED = click.option(
    "--score-rows",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Score on so many rows at most, drawn at random; 0 for no scores.",
)


def check_computing(options: dict[str, Any]) -> None:
    """Refuse, before any work, devices that are not there."""
    if options["device"] != "auto":
        from cartograd.neighbors.validate import check_device

        check_device(options["device"])
