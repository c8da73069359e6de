"""`cartograd map`: from a table to a map, its page, its picture, its scores and its model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cartograd.cli.alike import remember
from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.failures import FAILED, INTERRUPTED
from cartograd.cli.methods import METHODS, PARAMETERS, Method, make_estimator
from cartograd.cli.names import FileName
from cartograd.cli.options import COMPUTING, FEATURES, INPUT, LOOKS, READING, SCORED, SEED, check_computing
from cartograd.cli.outputs import planned
from cartograd.cli.processes import (
    PROCESSES,
    check_environment,
    handed_over,
    have_met,
    is_first,
    one_of_many,
    status_of,
    was_restarted,
)
from cartograd.cli.progress import steps_taken
from cartograd.cli.reading import read_input, rows_of
from cartograd.cli.scoring import score_lines, scores_of
from cartograd.cli.timing import Clock, threads
from cartograd.cli.wording import counted, help_text, program, table_lines
from cartograd.cli.writing import write_files
from cartograd.errors import CartogradError

if TYPE_CHECKING:
    from cartograd.io import Table

NOT_SHOWN = ("input", "learned", "seconds", "method")
"""Entries of a model's report that the JSON object holds elsewhere, or not at all."""
HELP = help_text(
    """Makes a map. Reads INPUT, places its rows, scores the result and writes, side by side: the page map.html, the
    table map.parquet (x, y and the input's columns), the picture map.png and the model map.cartograd.""",
    [
        ("cartograd map digits", "a set that comes along; also iris and wine"),
        ("cartograd map cells.parquet --label cell_type -o cells.html", "classes that name the map"),
        ("cartograd map sales.csv --columns price,size --missing mean", "these features; gaps filled"),
        ("cartograd map photos/ --method tsne --perplexity 20", "a folder of images, by t-SNE"),
        ("cartograd map data.h5ad --key X_pca --color batch", "AnnData"),
        ("head -1000 big.csv | cartograd map - --set spread=2", "standard input; any parameter"),
    ],
    f"""INPUT is a file (.csv, .tsv, .jsonl, also gzipped; .parquet, .arrow, .feather; .npy, .npz; .h5ad), a folder of
    images, - for standard input, or digits, iris or wine.

    Methods: {", ".join(METHODS)}. Their parameters are those of the classes in Python; what is not given has the same
    default as there.

    Files that are there are replaced, each in one step: a reader sees the old file or the new one. Ctrl-C during the
    layout writes the map as far as it came.""",
)


@command("map", HELP)
@INPUT
@click.option(
    "-o",
    "--output",
    type=FileName(),
    default="map.html",
    show_default=True,
    metavar="FILE",
    help="The page; the other files are called alike.",
)
@click.option("--method", type=Method(), default="umap", show_default=True, help="How the map is made.")
@FEATURES
@LOOKS
@SEED
@PARAMETERS
@READING
@COMPUTING
@SCORED
@PROCESSES
@click.option("--title", metavar="TEXT", help="What stands above the map.")
def map_command(console: Console, source: str, output: str, method: str, seed: int, **options: Any) -> None:
    """Read, fit, score, write, and say what was done; of several processes the first one speaks and writes."""
    check_environment()
    check_computing(options)
    given = {"random_state": seed, "device": options["device"], "verbose": console.progress and is_first()}
    model = make_estimator(method, options, options["assignments"], **given)
    status = handed_over(options["processes"], source, getattr(model, "checkpoint_dir", None))
    if status is not None:
        raise click.exceptions.Exit(status)
    if was_restarted() and getattr(model, "checkpoint_dir", None) is not None:
        model.set_params(resume=True)
    if not is_first():
        help_first(console, model, source, options)
        return
    clock = Clock()
    with threads(options["threads"]):
        with one_of_many():
            files = planned(console, output, source, model.n_components)
            with clock.phase("read"):
                table = read_input(console, source, options)
            with clock.phase("fit"):
                Z = fit(console, model, table)
        clock.divide("fit", getattr(model, "report_", {}).get("seconds", {}))
        interrupted = bool(getattr(model, "report_", {}).get("interrupted"))
        with clock.phase("score"):
            scores = {} if interrupted else score_fit(console, model, table, Z, options["score_rows"], seed)
    remember(model, table, options)
    title = options["title"] or f"{Path(source).stem if source != '-' else 'Map'} · {type(model).__name__}"
    with clock.phase("write"):
        written = write_files(console, files, table, Z, model, title)
    tell(console, table, model, scores, written, clock)
    console.result(described(table, model, seed, scores, written, clock, console.notes, interrupted))
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def help_first(console: Console, model: Any, source: str, options: dict[str, Any]) -> None:
    """Take part in the fit of the first process, without a word: what goes wrong here it is told, and tells."""
    console.quiet = True
    try:
        with threads(options["threads"]), one_of_many():
            model.fit(read_input(console, source, options).X)
    except CartogradError as error:
        if not have_met():
            raise
        raise click.exceptions.Exit(status_of(error, FAILED)) from None


def fit(console: Console, model: Any, table: Table) -> Any:
    """The map of the rows, (n, c)."""
    what = f"Mapping {counted(len(table), 'row')} of {counted(table.X.shape[1], 'feature')}"
    console.step(what, lambda: steps_taken(model))
    return model.fit_transform(table.X)


def score_fit(console: Console, model: Any, table: Table, Z: Any, most: int, seed: int) -> dict[str, Any]:
    """Score the map in the metric it was made with."""
    metric = getattr(model, "metric", "euclidean")
    console.step("Scoring")
    return scores_of(
        console,
        table.X,
        Z,
        table.label,
        metric=metric if isinstance(metric, str) else "euclidean",
        embedding_metric="sqhyperbolic" if type(model).__name__ == "COSNE" else "euclidean",
        most=most,
        seed=seed,
        device=None if getattr(model, "device", "auto") == "auto" else model.device,
    )


def tell(
    console: Console, table: Table, model: Any, scores: dict[str, Any], written: dict[str, str], clock: Clock
) -> None:
    """The summary for people."""
    label = f", label {table.label_name!r}" if table.label_name else ""
    read = f"{counted(len(table), 'row')}, {counted(len(table.feature_names), 'feature')}{label}"
    console.say(f"Read {table.source}: {read}", chosen_line(model), clock.line(), "")
    if scores:
        console.say(*score_lines(scores, len(table)), "")
    console.say("Files:", *table_lines(list(written.items())), "")
    looked_at = written.get("page", written["table"])
    console.say(f"Next: {program()} view {shlex.quote(looked_at)}")


def chosen_line(model: Any) -> str:
    """The method and the parameters that matter most."""
    named = ("n_neighbors", "perplexity", "min_dist", "metric", "n_components", "max_iter")
    parameters = [f"{name}={getattr(model, name)}" for name in named if getattr(model, name, None) is not None]
    parameters += [f"seed={model.random_state}"] if hasattr(model, "random_state") else []
    steps = f", {counted(model.n_iter_, 'step')}" if hasattr(model, "n_iter_") else ""
    return f"{type(model).__name__}({', '.join(parameters)}){steps}"


def described(
    table: Table,
    model: Any,
    seed: int,
    scores: dict[str, Any],
    written: dict[str, str],
    clock: Clock,
    notes: list[str],
    interrupted: bool,
) -> dict[str, Any]:
    """The same as one object for machines."""
    report = {name: value for name, value in model.report_.items() if name not in NOT_SHOWN}
    return {
        "command": "map",
        "input": {
            "source": table.source,
            "rows": len(table),
            "features": len(table.feature_names),
            "columns": list(table.columns),
            "label": table.label_name,
        },
        "rows": rows_of(table),
        "method": type(model).__name__,
        "parameters": model.get_params(deep=False),
        "seed": seed,
        "report": report,
        "n_iter": getattr(model, "n_iter_", None),
        "seconds": clock.all(),
        "scores": scores,
        "files": written,
        "notes": notes,
        "interrupted": interrupted,
    }
