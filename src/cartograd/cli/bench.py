"""`cartograd bench`: the scripts of benchmarks/, which come with the source."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from pathlib import Path

import click

from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.wording import help_text, table_lines
from cartograd.errors import FileAbsentError, OptionError

HELP = help_text(
    "Runs a benchmark against the peers that are installed; without NAME, lists them.",
    [
        ("cartograd bench", "what there is"),
        ("cartograd bench knn", "run one"),
        ("cartograd bench engine -- --repeats 60", "with arguments of its own"),
    ],
    "Benchmarks come with the source, not with the installed package: clone the repository and install it from there.",
)


@command("bench", HELP)
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(console: Console, name: str | None, arguments: tuple[str, ...]) -> None:
    """List, or run one in a process of its own; its exit status is ours."""
    scripts = _scripts()
    if not scripts:
        raise FileAbsentError(
            "there are no benchmarks beside this installation; clone the repository, and in it: pip install -e ."
        )
    if name is None:
        found = {script.stem: _first_line(script) for script in scripts}
        console.say(*table_lines(list(found.items()), indent=""))
        console.result({"command": "bench", "benchmarks": found})
        return
    script = next((script for script in scripts if script.stem == name.removesuffix(".py")), None)
    if script is None:
        names = [script.stem for script in scripts]
        near = difflib.get_close_matches(name, names, 1)
        raise OptionError(
            f"there is no benchmark {name!r}; "
            + (f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}")
        )
    _run(console, script, arguments)


def _run(console: Console, script: Path, arguments: tuple[str, ...]) -> None:
    call = [sys.executable, str(script), *arguments]
    done = subprocess.run(
        call, check=False, stdout=subprocess.PIPE if console.json or console.quiet else None, text=True
    )
    console.result({"command": "bench", "name": script.stem, "status": done.returncode, "output": done.stdout})
    if done.returncode:
        raise click.exceptions.Exit(1)


def _scripts() -> list[Path]:
    """The scripts of the checkout this package is installed from, or that is the working folder."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "src" / "cartograd").is_dir() and (root / "benchmarks").is_dir():
            return sorted((root / "benchmarks").glob("[a-z]*.py"))
    return []


def _first_line(script: Path) -> str:
    documented = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return documented.partition("\n")[0]
