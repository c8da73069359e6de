"""Temporary files of writers that were killed are removed by the next save; those of writers at work are not."""

import os
import signal
import subprocess
import sys
import time

import pytest
from baremodel import Bare

from cartograd.io import leftovers, open_atomic, save_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills and asks for processes")
WRITE = """
import sys, time
from cartograd.io import open_atomic
with open_atomic(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(120)
"""


def start_writing(path):
    process = subprocess.Popen([sys.executable, "-c", WRITE, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    return process


def save(path):
    with open_atomic(path) as file:
        file.write(b"whole")


def test_what_a_killed_writer_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path):
    killed, alive = start_writing(tmp_path / "a.bin"), start_writing(tmp_path / "b.bin")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(os.listdir(tmp_path)) == 2
        save(tmp_path / "c.bin")
        (left,) = [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
        assert left.startswith(".b.bin.")
    finally:
        alive.kill()
        alive.communicate()
    save(tmp_path / "b.bin")
    assert sorted(os.listdir(tmp_path)) == ["b.bin", "c.bin"]


def test_a_model_that_was_being_saved_leaves_nothing_but_such_a_file(tmp_path):
    code = """
import os, signal, sys
from cartograd.io import container
written = container._bytes
container._bytes = lambda tensor: os.kill(os.getpid(), signal.SIGKILL) if container.seen else written(tensor)
container.seen = False
described = container._described
import cartograd, numpy
model = cartograd.PCA().fit(numpy.random.rand(30, 4))
container._check_values = lambda *given: setattr(container, "seen", True)
model.save(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(os.listdir(tmp_path)) == 1
    save_model(Bare(), tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("name", "days", "stays"),
    [
        (".a.bin.0a1b2c3d.tmp", 2, False),
        (".a.bin.0a1b2c3d.tmp", 0, True),
        (".a.bin.00000000-1-0a1b2c3d.tmp", 0, True),
        (".a.bin.00000000-1-0a1b2c3d.tmp", 2, False),
        (".a.bin.tmp", 2, True),
        ("a.bin.0a1b2c3d.tmp", 2, True),
        (".a.bin.0a1b2c3.tmp", 2, True),
    ],
)
def test_files_of_writers_elsewhere_are_removed_after_a_day(tmp_path, name, days, stays):
    path = tmp_path / name
    path.write_bytes(b"x")
    os.utime(path, (time.time() - days * 86_400 - 60,) * 2)
    save(tmp_path / "other")
    assert path.exists() == stays


def test_folders_and_links_of_such_names_stay(tmp_path):
    name = leftovers.temporary_name("a").replace(f"-{os.getpid()}-", "-999999999-")
    (tmp_path / name).mkdir()
    (tmp_path / "kept").write_bytes(b"kept")
    (tmp_path / name.replace(".a.", ".b.")).symlink_to(tmp_path / "kept")
    save(tmp_path / "c")
    assert (tmp_path / "kept").read_bytes() == b"kept"
    assert (tmp_path / name).is_dir()


def test_long_names_fit(tmp_path):
    save(tmp_path / ("é" * 127))
    assert os.listdir(tmp_path) == ["é" * 127]
