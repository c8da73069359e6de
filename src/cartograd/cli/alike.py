"""New rows read like the rows of a map: the same columns, gaps filled with the map's figures, the map's categories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cartograd.cli.console import Console
from cartograd.cli.reading import read_input
from cartograd.errors import CartogradError, InputError

if TYPE_CHECKING:
    from cartograd.io import Table

REFUSE = "error"


def remember(model: Any, table: Table, options: dict[str, Any]) -> None:
    """Keep in the model what was read and how, so that later rows can be read alike."""
    from cartograd.io.learned import learn

    if hasattr(model, "verbose"):
        model.verbose = False  # it was the terminal's
    read = {"source": table.source, "columns": list(table.feature_names), "one_hot": options["one_hot"] or []}
    learned = {"missing": options["missing"], **learn(table).plain()}
    model.report_ = {**getattr(model, "report_", {}), "input": read, "learned": learned}


def read_alike(console: Console, source: str, options: dict[str, Any], model: Any) -> Table:
    """Read new rows with the features that a model was fitted on, where it knows their names."""
    report = getattr(model, "report_", {})
    fitted, one_hot = _names_in(report, "columns"), _names_in(report, "one_hot")
    if not fitted or "learned" not in report:
        return _read_by_name(console, source, options, fitted, one_hot)
    from cartograd.io.learned import restore

    learned = restore(fitted, report["learned"])
    missing = options["missing"] or report["learned"].get("missing", REFUSE)
    chosen = {"columns": options["columns"], "one_hot": options["one_hot"] or one_hot or None, "missing": missing}
    if chosen["columns"] is None:
        chosen["columns"] = list(learned.names) or None
    elif len(chosen["columns"]) == len(learned.names):
        learned = learned.renamed(chosen["columns"])
    return _read(console, source, {**options, **chosen}, learned)


def _names_in(report: Any, key: str) -> list[str]:
    read = report.get("input") if isinstance(report, dict) else None
    names = read.get(key) if isinstance(read, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _read(console: Console, source: str, options: dict[str, Any], learned: Any = None) -> Table:
    try:
        return read_input(console, source, options, learned)
    except CartogradError as error:
        if "there is no column" not in str(error):
            raise
        raise InputError(
            f"{str(error).partition(';')[0]}, and the map was made with it; name the features of this input with "
            "--columns, in the order of the map's"
        ) from error


def _read_by_name(
    console: Console, source: str, options: dict[str, Any], fitted: list[str], one_hot: list[str]
) -> Table:
    """Read for a model that knows names of columns alone, as version 0.1 wrote them, or not even those."""
    options = {**options, "missing": options["missing"] or REFUSE}
    if options["missing"] in ("mean", "median"):
        console.note(f"the model does not hold the {options['missing']}s of its rows: gaps take those of the new rows")
    if options["columns"] is not None or not fitted:
        return read_input(console, source, options)
    made = [name for name in fitted if any(name.startswith(f"{origin}=") for origin in one_hot)]
    alike = {"columns": [name for name in fitted if name not in made] or None, "one_hot": one_hot or None}
    return _ordered(
        _read(console, source, {**options, **{name: options[name] or alike[name] for name in alike}}), fitted, made
    )


def _ordered(table: Table, fitted: list[str], made: list[str]) -> Table:
    """Features in the model's order; a category that does not occur here is a column of zeros."""
    from dataclasses import replace

    import numpy

    new = [name for name in table.feature_names if name not in fitted]
    if new:
        raise InputError(
            f"{table.source}: {new[0]!r} is a category that the map was made without; leave such rows out, or make the "
            "map anew with all rows"
        )
    there = {name: table.X[:, place] for place, name in enumerate(table.feature_names)}
    zeros = numpy.zeros(len(table), dtype=table.X.dtype)
    X = numpy.column_stack([there.get(name, zeros) if name in made else there[name] for name in fitted])
    return replace(table, X=X, feature_names=tuple(fitted))
