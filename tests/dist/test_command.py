"""`cartograd map --processes`: the same files as with one process, and what is said where something goes wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

import cartograd

pytestmark = pytest.mark.dist

LIMIT = 240


def called(here, variables, *arguments):
    """The command, begun."""
    return subprocess.Popen(
        [sys.executable, "-m", "cartograd", "map", *map(str, arguments)],
        env=variables,
        cwd=here,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process):
    """What it printed; its end is waited for."""
    try:
        return process.communicate(timeout=LIMIT)
    finally:
        if process.poll() is None:
            process.terminate()


def children(process):
    """The processes that it started."""
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    return [int(one) for one in Path(path).read_text().split()]


@pytest.fixture
def here(tmp_path):
    random = numpy.random.RandomState(0)
    numpy.save(tmp_path / "rows.npy", (random.randn(400, 6) + 4 * (numpy.arange(400) % 3)[:, None]).astype("float32"))
    return tmp_path


def test_two_processes_make_the_same_files(here, variables):
    process = called(here, variables, "rows.npy", "--processes", 2, "--max-iter", 40, "--json")
    out, err = ended(process)
    assert process.returncode == 0, err
    assert err == ""
    told = json.loads(out)  # one object: the first process alone speaks
    assert told["n_iter"] == 40
    names = {path.name for path in here.iterdir()}
    assert {"map.html", "map.parquet", "map.png", "map.cartograd"} <= names
    expected = cartograd.UMAP(max_iter=40, random_state=told["seed"]).fit_transform(numpy.load(here / "rows.npy"))
    numpy.testing.assert_array_equal(cartograd.load(here / "map.cartograd").embedding_, expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.npy"], "absent.npy: there is no such file or folder, nor a built-in set (digits, iris, wine)"),
        (
            ["rows.npy", "-o", "absent/map.html", "--set", "checkpoint_dir=kept"],
            "cannot write absent/map.html: there is no folder absent",
        ),
    ],
)
def test_what_is_wrong_is_said_once(here, variables, arguments, said):
    """By the first process, and nothing is started again for it."""
    process = called(here, variables, *arguments, "--processes", 2)
    _, err = ended(process)
    assert process.returncode == 1, err
    assert err.splitlines()[0] == f"Error: {said}"
    assert len([line for line in err.splitlines() if not line.startswith("Hint")]) == 1, err


def kill_one(process, here):
    """SIGKILL to one of two processes, once a checkpoint is there."""
    until = time.monotonic() + LIMIT
    while not any((here / "kept").glob("step-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(random.choice(children(process)), signal.SIGKILL)


def test_a_killed_process_without_checkpoints_is_named(here, variables):
    process = called(here, variables, "rows.npy", "--processes", 2, "--max-iter", 10**7)
    until = time.monotonic() + LIMIT
    while len(children(process)) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(children(process)[1], signal.SIGKILL)
    _, err = ended(process)
    assert process.returncode == 1
    assert "process 1 was ended by SIGKILL" in err
    assert "--set checkpoint_dir=FOLDER" in err


def test_a_killed_process_is_started_again(here, variables):
    options = ["--max-iter", 800, "--set", "checkpoint_dir=kept", "--set", "checkpoint_every=100"]
    process = called(here, variables, "rows.npy", "--processes", 2, *options, "--json")
    kill_one(process, here)
    out, err = ended(process)
    assert process.returncode == 0, err
    assert json.loads(out)["n_iter"] == 800
    expected = cartograd.UMAP(max_iter=800, random_state=json.loads(out)["seed"])
    expected.fit(numpy.load(here / "rows.npy"))
    numpy.testing.assert_array_equal(cartograd.load(here / "map.cartograd").embedding_, expected.embedding_)


@pytest.mark.slow
def test_ctrl_c_writes_the_map_so_far(here, variables):
    options = ["--max-iter", 2000000, "--set", "checkpoint_dir=kept", "--set", "checkpoint_every=50"]
    process = called(here, variables, "rows.npy", "--processes", 2, *options)
    until = time.monotonic() + LIMIT
    while not (here / "kept").exists() or not any((here / "kept").glob("step-*")):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert process.returncode == 130, err
    assert "interrupted after" in err
    assert (here / "map.parquet").exists()
