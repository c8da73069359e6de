import importlib
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import click
import pytest
import torch

from cartograd.cli import bench, main, methods
from cartograd.errors import KernelError

COMMANDS = list(main.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example(run, name):
    said = run(name, "--help").stdout
    examples = said[said.index("Examples:") : said.index("Options:")]
    assert re.search(rf"cartograd {name}\b", examples)
    assert "\b" not in said


def test_the_commands_in_order(run):
    said = run("--help").stdout
    assert COMMANDS == ["map", "transform", "score", "view", "explain", "info", "bench", "completion"]
    assert re.findall(r"^  (\w+)  ", said[said.index("Commands:") :], re.MULTILINE) == COMMANDS
    assert run("--version").stdout == f"cartograd {metadata.version('cartograd')}\n"


def test_every_option_of_the_help_is_explained():
    for command in main.commands.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (command.name, parameter.name)


def test_every_method_can_be_made():
    for name, class_name in methods.METHODS.items():
        assert methods.estimator_class(name).__name__ == class_name
        assert type(methods.make_estimator(name, {}, [], random_state=0, device="auto")).__name__ == class_name


def test_info(run, run_json):
    told = run_json("info")
    assert told["cartograd"] == metadata.version("cartograd")
    assert told["packages"]["torch"] == metadata.version("torch")
    assert told["threads"] == torch.get_num_threads()
    assert told["devices"][0]["device"] == "cpu"
    assert 0 < told["memory"]["free"] <= told["memory"]["total"]
    kernels = {f"{one['module']}.{name}" for one in told["kernels"]["modules"] for name in one["kernels"]}
    assert set(told["cached_kernels"]) <= kernels
    said = run("info").stdout
    assert f"torch         {metadata.version('torch')}" in said
    assert f" of {len(kernels)} compiled, in " in said


def test_info_compiles_every_module_and_says_how_long_it_took(run, run_json, monkeypatch):
    asked = []
    monkeypatch.setattr("cartograd.kernels.cpu.names", lambda: ["first", "second"])
    monkeypatch.setattr("cartograd.kernels.cpu.kernels_of", lambda module: [f"{module}_move", f"{module}_draw"])
    monkeypatch.setattr("cartograd.kernels.cpu.load", asked.append)
    told = run_json("info", "--compile")
    assert asked == ["first", "second"]
    assert [one["seconds"] >= 0 for one in told["kernels"]["modules"]] == [True, True]
    said = run("info", "--compile").stdout
    assert "0 of 4 compiled, in" in said
    assert re.search(r"^  first   first_move \(not yet\), first_draw \(not yet\): 0\.0 s$", said, re.MULTILINE)


def test_info_compile_fails_where_kernels_cannot_be_compiled(run, monkeypatch):
    def broken(name):
        raise KernelError("the kernels 'first' cannot be compiled here (ImportError: no numba); mend numba")

    monkeypatch.setattr("cartograd.kernels.cpu.names", lambda: ["first"])
    monkeypatch.setattr("cartograd.kernels.cpu.load", broken)
    assert "cannot be compiled here (ImportError: no numba)" in run("info", "--compile", status=1).stderr


def test_explain_says_that_it_comes_later(run):
    result = run("explain", "map.cartograd", "a.csv", "--rows", "0,1", status=1)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: maps cannot be explained in this version of cartograd")


@pytest.fixture
def checkout(here, monkeypatch):
    """A checkout of two benchmarks, in the working folder."""
    (here / "src" / "cartograd").mkdir(parents=True)
    (here / "benchmarks").mkdir()
    (here / "benchmarks" / "fast.py").write_text('"""A fast one.\n\nMore."""\nimport sys\nprint(sys.argv[1:])\n')
    (here / "benchmarks" / "bad.py").write_text('"""A bad one."""\nraise SystemExit(7)\n')
    monkeypatch.setattr(bench, "__file__", str(here / "src" / "cartograd" / "cli" / "bench.py"))
    return here


def test_bench_lists(run, run_json, checkout):
    assert run("bench").stdout == "bad   A bad one.\nfast  A fast one.\n"
    assert run_json("bench")["benchmarks"] == {"bad": "A bad one.", "fast": "A fast one."}


def test_bench_runs(run, run_json, checkout):
    told = run_json("bench", "fast", "one", status=0)
    assert (told["status"], told["output"]) == (0, "['one']\n")
    assert run("bench", "bad", "-q", status=1).stdout == ""
    assert "there is no benchmark 'fats'\nHint: did you mean fast?" in run("bench", "fats", status=2).stderr


def test_bench_outside_a_checkout(run, here, monkeypatch):
    monkeypatch.setattr(bench, "__file__", str(here / "lib" / "cartograd" / "cli" / "bench.py"))
    assert "there are no benchmarks beside this installation" in run("bench", status=1).stderr


def test_bench_finds_the_scripts_of_this_repository(run_json):
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks").is_dir():
        pytest.skip("no benchmarks beside the tests")
    assert set(run_json("bench")["benchmarks"]) == {script.stem for script in (root / "benchmarks").glob("[a-z]*.py")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run, shell):
    script = run("completion", shell).stdout
    assert f"_CARTOGRAD_COMPLETE={shell}_complete" in script
    assert "cartograd" in script


def test_completion_script_is_valid_bash(run):
    script = run("completion", "bash").stdout
    try:
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no bash here")
    assert done.returncode == 0, done.stderr


def test_methods_are_completed():
    context = click.Context(main.commands["map"])
    found = methods.Method().shell_complete(context, main.commands["map"].params[0], "ts")
    assert [item.value for item in found] == ["tsne", "tsnekhorn"]


def test_the_script_is_the_program():
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    module, _, name = tomllib.loads(project.read_text())["project"]["scripts"]["cartograd"].partition(":")
    assert getattr(importlib.import_module(module), name) is main
