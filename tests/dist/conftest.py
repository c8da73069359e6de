"""Processes on this machine, started by torch's own launcher, each launch with a time limit.

Starting a process takes seconds, so that one launch makes many comparisons: scripts in `workers` write what they found
to a folder, as JSON by rank, and tests look at that.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WORKERS = Path(__file__).parent / "workers"
SOURCES = Path(__file__).parents[2] / "src"


@dataclass
class Launch:
    """A script that several processes run.

    Parameters
    ----------
    script : str
        Its name in `workers`.
    processes : int
        How many.
    folder : Path
        Where it writes.
    arguments : tuple
        Further ones of the script.
    restarts : int
        How often all are started again after one of them died.
    environment : dict
        Further variables.
    """

    script: str
    processes: int
    folder: Path
    arguments: tuple = ()
    restarts: int = 0
    environment: dict = field(default_factory=dict)

    def start(self):
        """Begin, without waiting."""
        command = [sys.executable]
        if self.processes > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}"]
            command += [f"--max-restarts={self.restarts}", "--monitor-interval=0.1"]
        command += [str(WORKERS / self.script), str(self.folder), *map(str, self.arguments)]
        self.folder.mkdir(parents=True, exist_ok=True)
        variables = environment(**self.environment)
        with open(self.folder / "output.txt", "w") as output:
            self.process = subprocess.Popen(
                command, env=variables, stdout=output, stderr=output, start_new_session=True
            )
        return self

    def wait(self, limit):
        """Wait for the end, at most `limit` seconds; the exit status."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            pytest.fail(f"{self.script}: {self.processes} processes did not end within {limit} s:\n{self.said()}")

    def end(self):
        """End the launcher, which ends its processes; and those that do not listen."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                for path in self.folder.glob("*.pid"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(path.read_text()), signal.SIGKILL)
                self.process.kill()
                self.process.wait(15)

    def said(self):
        """The end of all that was printed."""
        return (self.folder / "output.txt").read_text()[-4000:]

    def told(self):
        """What each process wrote, by rank."""
        return [json.loads((self.folder / f"{rank}.json").read_text()) for rank in range(self.processes)]


def environment(**more):
    """One thread a process, this checkout, and no group that is already there."""
    left_out = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    paths = [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
    usual = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "CARTOGRAD_DIST_TIMEOUT": "60"}
    return {**kept, **usual, "PYTHONPATH": os.pathsep.join(paths), **{name: str(one) for name, one in more.items()}}


@pytest.fixture
def launch():
    """A function that starts a `Launch` and, unless told otherwise, waits for its good end."""
    begun = []

    def launched(script, processes, folder, *arguments, limit=240, status=0, restarts=0, **variables):
        one = Launch(script, processes, folder, arguments, restarts, variables).start()
        begun.append(one)
        if limit is None:
            return one
        found = one.wait(limit)
        if status is not None:
            assert found == status, f"exit status {found}:\n{one.said()}"
        return one

    yield launched
    for one in begun:
        one.end()


@pytest.fixture
def variables():
    """The environment of processes that are not started by `launch`."""
    return environment()
