"""Models in files: bit-equal when they come back, refused by name when they are not what they should be."""

import hashlib
import json
import os
import pickle
import re
import struct
from pathlib import Path

import numpy
import pytest
import safetensors
import safetensors.torch
import torch
from sklearn.base import BaseEstimator
from toymodel import ToyHooked, ToyMap, ToyPart, fitted, same

from cartograd.errors import FileAbsentError, FileAccessError, ModelFileError, OptionError
from cartograd.io import container, load_model, model, register, registry, save_model

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "toy.cartograd"
    save_model(fitted(), path)
    return path


def test_a_round_trip_is_bit_equal(saved):
    again = load_model(saved)
    wanted = fitted()
    assert list(vars(again)) == list(vars(wanted))
    for name, value in vars(wanted).items():
        assert same(getattr(again, name), value), name
    X = numpy.random.default_rng(0).normal(size=(50, 4))
    assert again.transform(X).tobytes() == wanted.transform(X).tobytes()


def test_the_comparison_sees_a_difference():
    for name, value in {
        "loss_": [0.5, float("nan"), float("-inf"), 0.0],
        "components_": fitted().components_.copy("C"),
    }.items():
        assert not same(value, getattr(fitted(), name)), name


def test_saving_twice_gives_the_same_bytes(saved, tmp_path):
    save_model(load_model(saved), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_the_file_of_this_format_version_loads():
    again = load_model(DATA / f"model-format-{model.FORMAT_VERSION}.cartograd")
    for name, value in vars(fitted()).items():
        assert same(getattr(again, name), value), name


def test_every_older_format_has_its_file():
    assert {path.name for path in DATA.glob("model-format-*.cartograd")} == {
        f"model-format-{version}.cartograd" for version in range(1, model.FORMAT_VERSION + 1)
    }


def test_the_file_is_one_that_safetensors_reads(saved):
    with safetensors.safe_open(saved, "pt") as file:
        digest, _, text = file.metadata()["cartograd"].partition(" ")
        assert hashlib.sha256(text.encode()).hexdigest() == digest
        header = json.loads(text)
        assert header["format_version"] == 1
        assert header["model"]["class"] == "ToyMap"
        place = header["model"]["state"]["embedding_"]["name"]
        assert torch.equal(file.get_tensor(place), fitted().embedding_)
        for name, described in header["tensors"].items():
            raw = file.get_tensor(name).reshape(-1).view(torch.uint8).numpy().tobytes()
            assert hashlib.sha256(raw).hexdigest() == described["sha256"]


def test_permissions_are_the_usual_ones(saved, tmp_path):
    (tmp_path / "plain").touch()
    assert saved.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_tensor_met_twice_is_stored_and_restored_as_one(tmp_path):
    one = ToyMap()
    one.a_ = one.b_ = torch.arange(1000.0)
    one.view_ = one.a_[:10]
    save_model(one, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.a_ is again.b_
    assert torch.equal(again.view_, one.view_)
    assert os.path.getsize(tmp_path / "m") < 2 * 4000


def test_hooks(tmp_path):
    one = ToyHooked(width=2)
    one._weights = torch.eye(2)
    save_model(one, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.width == 2
    assert torch.equal(again._weights, torch.eye(2))


def test_attributes_that_a_class_leaves_out(tmp_path, monkeypatch):
    one = ToyMap()
    one.optimizer_, one.loss_ = torch.optim.SGD([torch.zeros(1)]), [1.0]
    with pytest.raises(ModelFileError, match=r"ToyMap\.optimizer_ is a torch\.optim\.sgd\.SGD"):
        save_model(one, tmp_path / "m")
    monkeypatch.setattr(ToyMap, "_not_in_file", ("optimizer_",), raising=False)
    save_model(one, tmp_path / "m")
    assert vars(load_model(tmp_path / "m")).keys() == {*one.get_params(), "loss_"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_of_a_gpu_come_back_to_it(tmp_path):
    one = ToyMap()
    one.a_ = torch.arange(6.0, device="cuda").reshape(2, 3).T
    save_model(one, tmp_path / "m")
    again = load_model(tmp_path / "m").a_
    assert again.device == one.a_.device
    assert same(again.cpu(), one.a_.cpu())


def test_devices_that_are_not_here_become_the_cpu(tmp_path, monkeypatch, saved):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    one = ToyMap(init=torch.device("cuda", 1), metric=torch.device("cpu"))
    save_model(one, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.init == again.metric == torch.device("cpu")
    rewritten(saved, lambda header, outer: put(header, ["model", "state", "embedding_", "device"], "cuda:0"))
    assert same(load_model(saved).embedding_, fitted().embedding_)


def test_an_estimator_within_an_estimator(tmp_path):
    save_model(ToyMap(init=fitted()), tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert isinstance(again.init, ToyMap)
    assert same(vars(again.init), vars(fitted()))


@pytest.mark.parametrize(
    ("parameter", "what"),
    [
        (lambda x: x, r"builtins\.function"),
        (torch.nn.Linear(1, 1), r"torch\.nn\.modules\.linear\.Linear"),
        (numpy.random.default_rng(0), r"Generator"),
        (torch.optim.Adam, r"builtins\.type"),
        ([1, {"deep": {1, 2}}], r"init\[1\]\['deep'\] is a builtins\.set"),
        (numpy.array([1, print], dtype=object), "one of them a int"),
        (numpy.ma.masked_array([1.0], [True]), "masked array"),
        (numpy.array([1j]), "array of complex128"),
        (torch.eye(2).to_sparse(), r"layout torch\.sparse_coo"),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, str) else one,
)
def test_what_is_no_data_is_refused_by_name(tmp_path, parameter, what):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    with pytest.raises(ModelFileError, match=rf"(?s)ToyMap\.init.*{what}|{what}"):
        save_model(ToyMap(init=parameter), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


def test_circular_values_are_refused(tmp_path):
    loop = []
    loop.append(loop)
    with pytest.raises(ModelFileError, match="nested more than"):
        save_model(ToyMap(init=loop), tmp_path / "m")


def test_foreign_classes_are_refused(tmp_path):
    class Stranger(BaseEstimator):
        pass

    with pytest.raises(ModelFileError, match="a Stranger cannot be saved"):
        save_model(Stranger(), tmp_path / "m")
    with pytest.raises(OptionError, match="another class called 'Graph'"):
        register(type("Graph", (), {}))


def rewritten(path, change):
    """The same file with another header, its checksum mended: what an attacker could make."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    outer = json.loads(raw[8 : 8 + length])
    header = json.loads(outer["__metadata__"]["cartograd"].partition(" ")[2])
    header = change(header, outer) or header
    text = json.dumps(header)
    outer["__metadata__"] = {"cartograd": f"{hashlib.sha256(text.encode()).hexdigest()} {text}"}
    new = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(new)) + new + raw[8 + length :])
    return path


def put(header, path, value):
    *way, last = path
    for step in way:
        header = header[step]
    header[last] = value


@pytest.mark.parametrize(
    ("way", "value", "message"),
    [
        (
            ["format_version"],
            2,
            r"cartograd [0-9]\S* in format version 2, and cartograd .* reads versions up to 1; upgrade",
        ),
        (["format_version"], "1", "format version is '1'"),
        (["model", "class"], "os.system", "'os.system', which is none of this version's classes"),
        (["model", "class"], "BaseEstimator", "none of this version's classes"),
        (["model", "parameters", "later"], 1, "the parameter 'later', which this version does not know"),
        (["model", "state", "__class__"], 1, "'__class__', which is no fitted attribute"),
        (["model", "state", "transform"], 1, "'transform', which is no fitted attribute"),
        (["model", "state", "loss_"], {"$": "pickle", "data": "gASV"}, "unknown kind 'pickle'"),
        (["model", "state", "loss_"], {"$": "dtype", "value": "load"}, "unknown kind 'dtype'"),
        (["model", "state", "loss_"], {"$": "tensor", "name": "absent"}, "malformed"),
        (["model", "state", "loss_"], {"no": "kind"}, "malformed"),
        (["model", "state", "turned_", "order"], [0, 0, 1], "do not fit a tensor of 3 axes"),
        (["model", "state", "sparse_", "shape"], [2, 2], "malformed"),
        (["model", "state", "classes_", "shape"], [2, 5], "malformed"),
        (["model", "state", "graph_", "parameters", "indptr"], {"$": "tensor", "name": "t0"}, "indptr"),
        (["model"], [], "names no model"),
        (["tensors", "t0", "dtype"], "F32", "do not fit together"),
        (["tensors", "t0", "sha256"], "0" * 64, "tensor 't0' is damaged"),
        (["tensors"], {}, "not those its header lists"),
    ],
)
def test_headers_that_lie_are_refused(saved, way, value, message):
    rewritten(saved, lambda header, outer: put(header, way, value))
    with pytest.raises(ModelFileError, match=rf"cannot load .*toy\.cartograd: .*{message}"):
        load_model(saved)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F64", "shape": [10**15], "data_offsets": [0, 8 * 10**15]}, "begins at byte"),
        ({"dtype": "F64", "shape": [3, 2], "data_offsets": [8, 56]}, "begins at byte"),
        ({"dtype": "F64", "shape": [-3, -2], "data_offsets": [0, 48]}, "do not fit together"),
        ({"dtype": "F64", "shape": [3.0, 2.0], "data_offsets": [0, 48]}, "do not fit together"),
        ([], "malformed"),
    ],
)
def test_places_that_lie_are_refused_before_allocation(saved, entry, message):
    def change(header, outer):
        outer["t0"] = entry
        if isinstance(entry, dict):
            header["tensors"]["t0"] |= {"dtype": entry["dtype"], "shape": entry["shape"]}

    with pytest.raises(ModelFileError, match=message):
        load_model(rewritten(saved, change))


def test_files_that_are_no_models(tmp_path, saved):
    path = tmp_path / "other"
    for content, message in [
        (b"", "0 bytes long: too short"),
        (b"abc", "3 bytes long: too short"),
        (pickle.dumps(fitted().report_), "no model file, or it was cut"),
        (b"\x02\0\0\0\0\0\0\0{}", "no metadata"),
        (b"\x02\0\0\0\0\0\0\0[]", "no JSON object"),
        (b"\xff" * 100, "no model file, or it was cut"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, "no JSON"),
        (safetensors.torch.save({"a": torch.ones(2)}, {"format": "pt"}), "a safetensors file, but no model"),
        (saved.read_bytes()[:-1], "it was cut or added to"),
        (saved.read_bytes() + b"\0", "it was cut or added to"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=f"cannot load {re.escape(str(path))}: .*{message}"):
            load_model(path)
    with pytest.raises(FileAbsentError, match="there is no file"):
        load_model(tmp_path / "absent")
    with pytest.raises(FileAccessError, match="cannot read"):
        load_model(tmp_path)


def test_a_header_beyond_the_limit_is_neither_written_nor_read(tmp_path, monkeypatch, saved):
    monkeypatch.setattr(container, "LARGEST_HEADER", 1000)
    with pytest.raises(ModelFileError, match="too many for a file"):
        save_model(fitted(), tmp_path / "m")
    with pytest.raises(ModelFileError, match="ask for a header"):
        load_model(saved)


def test_a_pickle_in_a_file_is_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    (tmp_path / "m").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "m")
    assert not (tmp_path / "sprung").exists()


def test_the_classes_a_file_may_hold_are_all_there():
    for name in registry.MODULES:
        assert registry.find(name).__name__ == name
    assert registry.find("ToyPart") is ToyPart
    assert registry.find("subprocess.Popen") is None
