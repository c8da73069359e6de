"""A full disk and a killed process leave the old file readable."""

import json
import os
import subprocess
import sys

import numpy
import pytest
from baremodel import Bare

from cartograd.io import load_model, read, save_model, write_table

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits and signals of POSIX")

NAMES = ["a.cartograd", "a.parquet", "a.feather", "a.csv", "a.jsonl", "a.npz", "a.npy"]

FULL = """
import json, resource, sys, numpy
from baremodel import Bare
from cartograd.errors import FileAccessError
from cartograd.io import save_model, write_table
large = Bare()
large.a_ = numpy.random.default_rng(0).normal(size=300_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
said = {}
for path in sys.argv[1:]:
    try:
        save_model(large, path) if path.endswith(".cartograd") else write_table(path, {"a": large.a_})
    except FileAccessError as error:
        said[path] = str(error)
print(json.dumps(said))
"""

KILLED = """
import os, random, signal, sys, time, numpy
from baremodel import Bare
from cartograd.io import load_model, save_model

def save_for_ever(path, pipe):
    model, step = Bare(), 0
    while True:
        model.a_ = numpy.full(500_000, float(step))
        save_model(model, path)
        os.write(pipe, b"%d\\n" % step)
        step += 1

draw = random.Random(0)
for _ in range(10):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(sys.argv[1], theirs)
    os.close(theirs)
    first = os.read(ours, 100)
    time.sleep(draw.uniform(0, 0.2))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    last = int((first + os.read(ours, 100_000)).split()[-1])
    os.close(ours)
    loaded = load_model(sys.argv[1]).a_
    assert loaded.shape == (500_000,), loaded.shape
    assert (loaded == loaded[0]).all() and loaded[0] in (last, last + 1), (loaded[0], last)
    print("whole", flush=True)
"""


def run(code, *arguments):
    environment = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk(tmp_path):
    small = Bare()
    small.a_ = numpy.arange(10.0)
    paths = [tmp_path / name for name in NAMES]
    for path in paths:
        save_model(small, path) if path.suffix == ".cartograd" else write_table(path, {"a": small.a_})
    old = [path.read_bytes() for path in paths]
    said = json.loads(run(FULL, *paths))
    for path in paths:
        assert said[str(path)].startswith(f"could not write {path}"), "it failed, with our error"
        assert "what was there before is unchanged" in said[str(path)]
        values = load_model(path).a_ if path.suffix == ".cartograd" else read(path).X[:, 0]
        assert values.tolist() == small.a_.tolist()
    assert [path.read_bytes() for path in paths] == old
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES), "no half-written file stays behind"


def test_a_process_killed_while_it_saves(tmp_path):
    """Killed ten times while it saves over and over: the file is whole, and the last one or the one being saved."""
    assert run(KILLED, tmp_path / "m").split() == ["whole"] * 10
    assert len(os.listdir(tmp_path)) <= 21, "at most our temporary file and the library's of each killed process"
