"""Processes that are killed, stopped or asked to end in the middle of a fit."""

import json
import os
import random
import signal
import time

import numpy
import pytest

from cartograd.distributed import checkpoint

pytestmark = pytest.mark.dist

STEPS = 150
EVERY = 5
TIMEOUT = 10


def pids(job, attempt, limit=120):
    """The processes of an attempt, once all of them have begun."""
    paths = [job.folder / f"begun-{attempt}-{rank}" for rank in range(job.processes)]
    waited_for(lambda: all(path.exists() for path in paths), job, limit, f"attempt {attempt} did not begin")
    return [int(path.read_text()) for path in paths]


def waited_for(there, job, limit, otherwise):
    until = time.monotonic() + limit
    while not there():
        assert time.monotonic() < until, f"{otherwise} within {limit} s:\n{job.said()}"
        assert job.process.poll() is None, f"{otherwise}; all had ended:\n{job.said()}"
        time.sleep(0.02)


def steps(job, rank=0):
    path = job.folder / f"step-{rank}"
    return int(path.read_text() or 0) if path.exists() else 0


def killed_at_random(launch, folder, times, processes, seed, method="UMAP"):
    """A fit, one process of which is killed again and again, ends with the map of a fit that nobody disturbs."""
    print("seed", seed)
    moments = random.Random(seed)
    job = launch("kept.py", processes, folder, method, STEPS, 0.05, limit=None, restarts=times)
    for attempt in range(times):
        running = pids(job, attempt)
        victim, moment = moments.randrange(processes), moments.uniform(0, 1.2)
        print(f"attempt {attempt}: process {victim} after {moment:.3f} s")
        time.sleep(moment)
        os.kill(running[victim], signal.SIGKILL)
    assert job.wait(240) == 0, job.said()
    for told in job.told():
        assert told == {"steps": STEPS, "attempt": str(times), "apart": 0.0}
    kept = sorted(path.name for path in (folder / "kept").iterdir())
    assert kept == [f"step-{step:010d}.safetensors" for step in (STEPS - EVERY, STEPS)]


def test_killed_five_times(launch, tmp_path):
    killed_at_random(launch, tmp_path, 5, 2, random.randrange(10**6))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("processes", "method"), [(2, "UMAP"), (4, "UMAP"), (2, "TSNE"), (2, "PACMAP")])
def test_killed_twenty_times(launch, tmp_path, processes, method):
    killed_at_random(launch, tmp_path, 20 if method == "UMAP" else 5, processes, random.randrange(10**6), method)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end(launch, tmp_path, number):
    """A checkpoint is written at the step that was reached, the processes leave, and the fit can be taken up."""
    folder = tmp_path
    job = launch("kept.py", 2, folder, "UMAP", STEPS, 0.02, limit=None)
    pids(job, 0)
    waited_for(lambda: steps(job) > 10, job, 120, "no steps were taken")
    job.process.send_signal(number)
    assert job.wait(30) != 0
    reached = [path.name for path in sorted((folder / "kept").iterdir())][-1]
    step = int(reached[5:15])
    assert 10 < step < STEPS
    assert steps(job, 0) == steps(job, 1) == step
    if number == signal.SIGINT:  # Ctrl-C ends the fit with the map so far
        assert {one["steps"] for one in job.told()} == {step}
        kept = checkpoint.read(folder / "kept" / reached)[1]["layout"].numpy()
        numpy.testing.assert_array_equal(numpy.load(folder / "1.npz")["Z"], kept)
    else:
        assert not list(folder.glob("*.npz"))
    for rank in range(2):  # handlers are those of before
        assert json.loads((folder / f"handlers-{rank}").read_text()) == ["default_int_handler", "SIG_DFL"]
    if number == signal.SIGTERM:
        again = launch("kept.py", 4, folder, "UMAP", STEPS, 0)  # another number of processes
        assert {(one["steps"], one["apart"]) for one in again.told()} == {(STEPS, 0.0)}


@pytest.mark.parametrize("method", ["UMAP", "encoder"])
def test_one_that_stands_still(launch, tmp_path, method):
    """The others say so within the time that was set, and a few seconds more."""
    job = launch("kept.py", 2, tmp_path, method, 5000, 0.02, limit=None, CARTOGRAD_DIST_TIMEOUT=TIMEOUT)
    running = pids(job, 0)
    waited_for(lambda: (tmp_path / "kept").exists() and any((tmp_path / "kept").iterdir()), job, 120, "no checkpoint")
    os.kill(running[1], signal.SIGSTOP)
    began = time.monotonic()
    waited_for(lambda: (tmp_path / "0.json").exists(), job, TIMEOUT + 15, "nothing was said")
    assert time.monotonic() - began < TIMEOUT + 8
    waited_for(lambda: (tmp_path / "0.json").read_text().endswith("}"), job, 5, "nothing was said")
    os.kill(running[1], signal.SIGKILL)
    assert job.wait(60) != 0
    assert "did not answer in time" in (tmp_path / "0.json").read_text()


def test_one_that_ends_before_the_fit(launch, tmp_path):
    """A script that fails before it calls fit, such as for want of a file: the launcher ends all."""
    job = launch("absent.py", 2, tmp_path, limit=40, status=None)
    assert job.process.returncode != 0
    assert "FileNotFoundError" in job.said()
