import json
import os

import numpy
import pytest
from click.testing import CliRunner

from cartograd.cli import main

QUICK = ["--n-neighbors", "8", "--max-iter", "15"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here):
    """Runs a command in the empty folder; `status` is what it must end with."""

    def call(*arguments, status=0, input=None):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output or "--debug" in arguments
        return result

    return call


@pytest.fixture
def run_json(run):
    """The JSON object that a command prints, and nothing else may be on standard output."""
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture
def quick():
    """Options of a map that takes no time."""
    return QUICK


@pytest.fixture
def rows():
    """Three clouds of 20 points in 4 dimensions, (60, 4) float64."""
    rng = numpy.random.default_rng(0)
    return numpy.round(rng.normal(size=(60, 4)) + 5.0 * (numpy.arange(60)[:, None] % 3), 4)


@pytest.fixture
def table(here, rows):
    """The clouds as a text table with classes, notes and a column called x."""
    lines = ["x,b,c,d,kind,note"]
    lines += [f"{','.join(map(str, row))},k{place % 3},note {place}" for place, row in enumerate(rows.tolist())]
    (here / "a.csv").write_text("\n".join(lines) + "\n")
    return "a.csv"


@pytest.fixture
def made(run, table, quick):
    """A map of the table: out.html, out.parquet, out.png, out.cartograd."""
    run("map", table, "--label", "kind", "-o", "out.html", *quick)
    return sorted(os.listdir())
