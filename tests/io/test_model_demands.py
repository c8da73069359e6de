"""Model files that ask for too much are refused before any work: memory, time, and places in the file."""

import hashlib
import json
import os
import resource
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
from test_model import put, rewritten

import cartograd
from cartograd.errors import ModelFileError, OptionError, UnsupportedError
from cartograd.io import container, load_model

DATA = Path(__file__).resolve().parents[1] / "data" / "0.1"
MEASURE = """
import sys, time
import cartograd
cartograd.UMAP, cartograd.load
cartograd.io
began = time.process_time()
try:
    cartograd.load(sys.argv[1])
except cartograd.errors.ModelFileError as error:
    print(error)
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]  # ru_maxrss would be the parent's
print(int(peak) // 1024, time.process_time() - began)
"""


@pytest.fixture
def umap(tmp_path):
    path = tmp_path / "umap.cartograd"
    path.write_bytes((DATA / "UMAP.cartograd").read_bytes())
    return path


def outer_of(text):
    return b'{"__metadata__":{"cartograd":' + json.dumps(text).encode() + b"}}"


SIZE = 63 * 2**20
BOMBS = {
    "lists": lambda: b"[" + b"[]," * (SIZE // 3) + b"[]]",
    "dictionaries": lambda: b'{"a":[' + b'{"b":0},' * (SIZE // 8) + b"0]}",
    "lists in the text": lambda: outer_of("0" * 64 + " [" + "[]," * (SIZE // 3) + "[]]"),
    "commas written as escapes": lambda: outer_of("x").replace(b"x", b"\\u002c" * (SIZE // 6)),
    "wide letters": lambda: outer_of("x").replace(b"x", b"\\ud83d\\ude00" + b"y" * (SIZE - 100)),
    "letters": lambda: b'{"' + "é".encode() * (SIZE // 2 - 10) + b'":0}',
    "a number": lambda: b"[" + b"9" * SIZE + b"]",
    "nested": lambda: b"[" * SIZE,
    "as many values as are allowed": lambda: outer_of(signed('{"model":[' + '{"a":0},' * (2**19 - 10) + "0]}")),
}


def signed(text):
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", list(BOMBS))
def test_a_header_of_63_megabytes_takes_neither_memory_nor_time(name, tmp_path):
    head = BOMBS[name]()
    path = tmp_path / "bomb"
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    said, measured = done.stdout.splitlines()
    assert said.startswith("cannot load")
    megabytes, seconds = map(float, measured.split())
    assert megabytes < 600
    assert seconds < 10


def test_a_model_with_too_many_values_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MOST_VALUES", 10)
    with pytest.raises(ModelFileError, match="values, more than 10"):
        cartograd.PCA().fit(numpy.eye(4)).save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    caught = []

    def load():
        try:
            load_model(tmp_path / "pipe")
        except ModelFileError as error:
            caught.append(str(error))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(60)
    assert "it is a pipe, not a plain file" in caught[0]


def test_a_file_of_holes_is_refused_before_its_tensors_are_read(umap, monkeypatch):
    monkeypatch.setattr(container, "free_bytes", lambda device: 1000.0)
    with pytest.raises(ModelFileError, match="bytes of memory are free"):
        load_model(umap)


@pytest.mark.parametrize("path", ["a\0b", "", "\ud800", 3, None, b"x"])
def test_names_that_are_none_are_refused(path):
    with pytest.raises((OptionError, UnsupportedError), match="the name of a model file"):
        load_model(path)


def test_an_error_names_the_file_in_one_line(tmp_path):
    path = tmp_path / "a\nb\x1b[31m"
    path.write_bytes(b"")
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("way", "value", "message"),
    [
        (["parameters", "negative_sample_rate"], 10**9, "negative_sample_rate must be at least 0 and at most"),
        (["parameters", "n_neighbors"], "x", "n_neighbors must be a whole number"),
        (["parameters", "lr"], 1e30, "lr must be at least 0 and at most 1e.06 and finite"),
        (
            ["parameters", "backend"],
            {"$": "object", "class": "FaissConfig", "parameters": {"efConstruction": 10**9}, "state": {}},
            "efConstruction must be at least 1 and at most",
        ),
        (
            ["state", "_placement", "parameters", "k"],
            10**9,
            r"UMAP\._placement\.k is 1000000000, and there are 140 rows",
        ),
        (["state", "_placement", "parameters", "scale"], -1.0, r"Placement\.scale must be above 0"),
        (["state", "_placement", "parameters", "places"], {"$": "tensor", "name": "t1"}, "axis 1 of"),
        (["state", "_placement", "parameters", "more"], {"$": "dict", "items": [["a", 1.5]]}, "has no b"),
        (["state", "_placement"], None, r"UMAP\._placement must be a Placement, got None"),
        (["state", "n_features_in_"], 7, "has 6 and not 7|has 7 and not 6"),
        (["state", "_private"], 1, "'_private', which is no fitted attribute"),
        (["state", "is_fitted_"], False, r"UMAP\.is_fitted_ must be one of True"),
        (["state", "_sklearn_output_config"], {"$": "dict", "items": [["transform", "x"]]}, "must be one of 'default'"),
    ],
)
def test_what_cannot_be_is_named(umap, way, value, message):
    rewritten(umap, lambda header, outer: put(header["model"], way, value))
    with pytest.raises(ModelFileError, match=rf"cannot load .*umap\.cartograd: .*({message})"):
        load_model(umap)


def test_a_network_larger_than_its_weights_is_refused_before_it_is_made(tmp_path):
    path = tmp_path / "mlp.cartograd"
    path.write_bytes((DATA / "UMAP-mlp.cartograd").read_bytes())
    sizes = {"$": "tuple", "items": [60_000, 60_000]}
    rewritten(
        path, lambda header, outer: put(header["model"], ["state", "_network", "parameters", "hidden_sizes"], sizes)
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFileError, match="layers of up to 60000 numbers"):
        load_model(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20


def test_what_is_missing_is_named(umap):
    rewritten(umap, lambda header, outer: header["model"]["state"].__delitem__("_placement"))
    with pytest.raises(ModelFileError, match="UMAP has no _placement, and is said to be fitted"):
        load_model(umap)


def test_a_public_attribute_of_the_user_comes_back_and_a_device_that_is_not_here_is_the_cpu(tmp_path):
    model = cartograd.PCA(device="cpu").fit(numpy.eye(4))
    model.note_ = "mine"
    model.save(tmp_path / "m")
    rewritten(tmp_path / "m", lambda header, outer: put(header["model"], ["parameters", "device"], "xpu:7"))
    again = load_model(tmp_path / "m")
    assert again.note_ == "mine"
    assert again.device == "cpu"


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path):
    model = cartograd.PCA().fit(numpy.eye(4))
    model.components_ = model.components_ * numpy.nan
    with pytest.raises(ModelFileError, match=r"PCA\.components_ must hold numbers from"):
        model.save(tmp_path / "m")
    assert os.listdir(tmp_path) == []
