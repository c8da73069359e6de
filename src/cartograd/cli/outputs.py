"""Where a map's files go: one name, four endings. Everything is checked before any work."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import click

from cartograd.cli.console import Console
from cartograd.core.filenames import wrong_name
from cartograd.errors import FileAbsentError, OptionError

PAGE, MODEL, PICTURE = ".html", ".cartograd", ".png"
TABLES = (".parquet", ".csv", ".tsv", ".feather", ".arrow", ".jsonl", ".npz")
PICTURES = (PICTURE, ".svg", ".pdf")
DEFAULT_STEM = "map"


@dataclass(frozen=True)
class Outputs:
    """The files of a map; None for one that is not written."""

    page: Path | None
    table: Path
    picture: Path | None
    model: Path

    def all(self) -> dict[str, Path]:
        """The files by what they are."""
        named = {"page": self.page, "table": self.table, "picture": self.picture, "model": self.model}
        return {name: path for name, path in named.items() if path is not None}


def planned(console: Console, output: str, source: str, dimensions: int) -> Outputs:
    """The files for ``-o output``: it names one of them, and the others are called alike.

    Parameters
    ----------
    console : Console
        Where it is said what is left out, and why.
    output : str
        What the user gave: a page, a table, a picture or a model by its ending, a name without one, or a folder.
    source : str
        What is read, which must not be overwritten.
    dimensions : int
        Dimensions of the map; one of more than three has no page and no picture.
    """
    path = Path(output)
    if path.is_dir() or output.endswith(os.sep):
        path = path / DEFAULT_STEM
    suffix = path.suffix.lower()
    if suffix not in ("", PAGE, MODEL, *TABLES, *PICTURES):
        kinds = ", ".join((PAGE, MODEL, *TABLES, *PICTURES))
        raise click.BadParameter(f"{output}: the name must end in one of {kinds}, or in none.", param_hint="'-o'")
    stem = path.with_suffix("") if suffix else path
    shown = dimensions <= 3
    if not shown:
        console.note(f"a map of {dimensions} dimensions cannot be shown: there is no page and no picture")
    files = Outputs(
        page=_ending(stem, PAGE) if shown else None,
        table=_ending(stem, suffix if suffix in TABLES else _table_suffix(console)),
        picture=_ending(stem, suffix if suffix in PICTURES else PICTURE) if shown and _can_draw(console) else None,
        model=_ending(stem, MODEL),
    )
    check_targets(files.all().values(), source)
    return files


def check_targets(paths: object, source: str) -> None:
    """Refuse, before any work, files that cannot be written or that would destroy what is read."""
    for path in paths:  # type: ignore[attr-defined]
        if (wrong := wrong_name(os.fspath(path))) is not None:
            raise OptionError(f"cannot write {path}: {wrong}; choose a shorter name with -o")
        if not path.parent.is_dir():
            raise FileAbsentError(f"cannot write {path}: there is no folder {path.parent}; make it first")
        if path.is_dir():
            raise OptionError(f"cannot write {path}: it is a folder; choose another name with -o")
        if source != "-" and os.path.realpath(path) == os.path.realpath(source):
            raise OptionError(f"{path} would be written over the input; choose another name with -o")
        if os.path.isdir(source) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(source)):
            raise OptionError(f"{path} lies in the folder that is read; choose another place with -o")


def _ending(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def _table_suffix(console: Console) -> str:
    if importlib.util.find_spec("pyarrow") is not None:
        return ".parquet"
    console.note('the table is written as .csv: .parquet needs pyarrow, pip install "cartograd[tables]"')
    return ".csv"


def _can_draw(console: Console) -> bool:
    if importlib.util.find_spec("matplotlib") is not None:
        return True
    console.note('there is no picture: it needs matplotlib, pip install "cartograd[plot]"')
    return False
