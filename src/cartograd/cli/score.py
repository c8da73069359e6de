"""`cartograd score`: how good a map is, whoever made it."""

from __future__ import annotations

from typing import Any

import click

from cartograd.cli.alike import REFUSE, read_alike
from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.options import COMPUTING, FEATURES, INPUT, MAP, READING_ALIKE, SCORED, SEED, check_computing
from cartograd.cli.reading import read_input, read_map, rows_of
from cartograd.cli.scoring import score_lines, scores_of
from cartograd.cli.timing import Clock, threads
from cartograd.cli.wording import counted, help_text
from cartograd.errors import InputError

HELP = help_text(
    """Scores a map. Compares the neighbours of each row of INPUT with its neighbours on MAP: trustworthiness,
    continuity, recall, triplets, and with labels how well the map tells them.""",
    [
        ("cartograd score digits map.parquet", "a map that `cartograd map digits` made"),
        ("cartograd score cells.csv other.csv --label cell_type", "one that another program made: columns x, y"),
        ("cartograd score X.npy Z.npy --json", "arrays"),
    ],
    """MAP is a table with columns x and y (and z), an array (n, 2), or a model. Row i of MAP is the place of row i of
    INPUT. With a model, INPUT is read as it was for the map: the same features, gaps filled with the map's figures.""",
)


@command("score", HELP)
@INPUT
@MAP
@FEATURES
@click.option(
    "--metric", default="euclidean", show_default=True, metavar="NAME", help="How rows of INPUT are compared."
)
@SEED
@READING_ALIKE
@COMPUTING
@SCORED
def score(console: Console, source: str, map_file: str, metric: str, seed: int, **options: Any) -> None:
    """Read both, compare, print."""
    check_computing(options)
    if options["score_rows"] == 0:
        raise click.UsageError("--score-rows 0 leaves nothing to do; give a number above 2.")
    clock = Clock()
    with clock.phase("read"):
        shown = read_map(map_file)
        if shown.model is None:
            table = read_input(console, source, {**options, "missing": options["missing"] or REFUSE})
        else:
            table = read_alike(console, source, options, shown.model)
        places = shown.Z
    if len(places) != len(table):
        raise InputError(
            f"{source} has {counted(len(table), 'row')} and {map_file} has {counted(len(places), 'row')}: row i of the "
            "map must be the place of row i; give the input that the map was made of, and the same --missing"
        )
    console.step("Scoring")
    with threads(options["threads"]), clock.phase("score"):
        device = None if options["device"] == "auto" else options["device"]
        how = {"metric": metric, "most": options["score_rows"], "seed": seed, "device": device}
        scores = scores_of(console, table.X, places, table.label, **how)
    console.say(*score_lines(scores, len(table)))
    console.result(
        {
            "command": "score",
            "input": {"source": table.source, "rows": len(table), "features": len(table.feature_names)},
            "rows": rows_of(table),
            "map": map_file,
            "label": table.label_name,
            "scores": scores,
            "seconds": clock.all(),
            "notes": console.notes,
        }
    )
