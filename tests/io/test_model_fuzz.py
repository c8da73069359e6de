"""10,000 damaged model files: refused with our error, or loaded bit-equal; never more memory than twice the file."""

import collections
import hashlib
import json
import struct
import subprocess
import sys
import tracemalloc

import mutation
import numpy
import pytest
from baremodel import Bare
from toymodel import ToyMap, fitted, same

from cartograd.errors import ModelFileError
from cartograd.io import load_model, save_model

WAYS = [mutation.flip, mutation.overwrite, mutation.cut, mutation.splice, mutation.edit_header]
SLACK = 2**18
"""Bytes that Python itself may take while it reads the header of a small file."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "whole"
    save_model(fitted(), path)
    return path.read_bytes()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_damaged_files(whole, way, scratch):
    seed = WAYS.index(way)
    print("seed", seed)
    draw = numpy.random.default_rng(seed)
    path = scratch / "damaged"
    wanted = vars(fitted())
    outcomes = collections.Counter()
    for number in range(2000):
        data = way(whole, draw)
        path.write_bytes(data)
        try:
            again = load_model(path)
        except ModelFileError:
            outcomes["refused"] += 1
        else:
            assert same(vars(again), wanted), f"file {number} came back with other values"
            outcomes["equal"] += 1
    print(outcomes)
    assert outcomes["refused"] > 1500


def test_damaged_files_take_little_memory(whole, scratch):
    print("seed 100")
    draw = numpy.random.default_rng(100)
    path = scratch / "damaged"
    tracemalloc.start()
    try:
        for number in range(500):
            data = WAYS[number % len(WAYS)](whole, draw)
            path.write_bytes(data)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                load_model(path)
            except ModelFileError:
                pass
            assert tracemalloc.get_traced_memory()[1] - before < 2 * len(data) + SLACK
    finally:
        tracemalloc.stop()


def test_headers_edited_by_somebody_who_mends_the_checksum(whole, scratch):
    """No checksum helps against that: a value may come back changed, but nothing else may happen."""
    print("seed 200")
    draw = numpy.random.default_rng(200)
    length = struct.unpack("<Q", whole[:8])[0]
    outer = json.loads(whole[8 : 8 + length])
    header = outer["__metadata__"]["cartograd"].partition(" ")[2]
    path = scratch / "edited"
    outcomes = collections.Counter()
    for _ in range(2000):
        text = json.dumps(mutation.edited(json.loads(header), draw))
        outer["__metadata__"] = {"cartograd": f"{hashlib.sha256(text.encode()).hexdigest()} {text}"}
        new = json.dumps(outer).encode()
        path.write_bytes(struct.pack("<Q", len(new)) + new + whole[8 + length :])
        try:
            assert type(load_model(path)) is ToyMap
            outcomes["loaded"] += 1
        except ModelFileError:
            outcomes["refused"] += 1
    print(outcomes)
    assert min(outcomes["loaded"], outcomes["refused"]) > 200


MEASURE = """
import sys, baremodel
from cartograd.io import load_model

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024

def attempt(path):
    before = peak()
    try:
        load_model(path)
    except ValueError:
        return "refused", peak() - before
    return "loaded", peak() - before

attempt(sys.argv[1])
for path in sys.argv[2:]:
    print(*attempt(path))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_file_takes_its_size_once(tmp_path):
    """First a damaged file of 16 MB, then a whole one of 32 MB: each raises the peak by its own size, not by twice."""
    small, damaged, large = (tmp_path / name for name in ("small", "damaged", "large"))
    model = Bare()
    save_model(model, small)
    model.a_ = numpy.random.default_rng(0).normal(size=2_000_000)
    save_model(model, damaged)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xaa")
    model.b_ = -model.a_
    save_model(model, large)
    environment = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURE, small, damaged, large]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (first, grown), (second, further) = (line.split() for line in done.stdout.splitlines())
    assert (first, second) == ("refused", "loaded")
    assert 0.9 * 16e6 < int(grown) < 1.25 * 16e6
    assert int(grown) + int(further) < 1.25 * 32e6
