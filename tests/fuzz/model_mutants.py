"""Mutants of model files: damaged as a disk damages them, or changed and signed anew as an attacker would."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import struct
from pathlib import Path
from typing import Any

import numpy

FOLDER = Path(__file__).resolve().parents[1] / "data" / "0.1"
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
KINDS = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64, "I32": numpy.int32}
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 1000, 2**31, 2**63, 10**9, 10**30, 10**300, -(10**30), 1e308, -1e308,
    1e-308, 0.5, -0.5, 1e38, 1e20, "", "x", "auto", "mlp", "gru", "cosine", "precomputed", "cuda", "cuda:99",
    "meta", "F64", "t1", "normal", "a\nb", "é" * 400, [], [1], [[[]]], [None], ["a"], {}, {"$": "tensor"},
    {"$": "tensor", "name": "t0"}, {"$": "array", "name": "t1"}, {"$": "Tensor", "name": "t0"},
    {"$": "scalar", "name": "t0"}, {"$": "float", "value": "nan"}, {"$": "float", "value": "inf"},
    {"$": "tuple", "items": []}, {"$": "tuple", "items": [3]}, {"$": "tuple", "items": [10**9]},
    {"$": "dict", "items": []}, {"$": "dict", "items": [["a", 1]]}, {"$": "dict", "items": [[[], 1]]},
    {"$": "dtype", "value": "float16"}, {"$": "dtype", "value": "int64"}, {"$": "device", "value": "cpu"},
    {"$": "device", "value": "meta"}, {"$": "device", "value": "cpu:7"},
    {"$": "object", "class": "PCA", "parameters": {}, "state": {}},
    {"$": "object", "class": "FaissConfig", "parameters": {"efConstruction": 10**9}, "state": {}},
    {"$": "object", "class": "GaussianAffinity", "parameters": {"sigma": {"$": "float", "value": "nan"}}, "state": {}},
    {"$": "object", "class": "Graph", "parameters": {}, "state": {}},
]  # fmt: skip
NUMBERS = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1.0, 1e-45, 1e-30, 1e9, 1e20, 3e38, -3e38, 1e300]
WHOLE = [-1, 0, 1, 139, 140, 141, 2**31, 2**62, -(2**63), 2**63 - 1]
NAMES = [
    "x",
    "_ranks",
    "_made",
    "transform",
    "embedding_",
    "class",
    "$",
    "shape",
    "_sklearn_output_config",
    "feature_names_in_",
    "_register",
]


class File:
    """A model file taken apart: the header and the bytes of each tensor."""

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        outer, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        self.header = json.loads(outer.pop("__metadata__")["cartograd"].partition(" ")[2])
        self.tensors = {name: bytearray(body[slice(*one["data_offsets"])]) for name, one in outer.items()}

    def signed(self) -> bytes:
        """The bytes of a file with these contents, all checksums right."""
        outer: dict[str, Any] = {}
        listed = self.header.get("tensors")
        described = listed if isinstance(listed, dict) else {}
        place = 0
        for name, data in self.tensors.items():
            one = described.get(name)
            one = one if isinstance(one, dict) else {}
            one["sha256"] = hashlib.sha256(data).hexdigest()
            offsets = [place, place + len(data)]
            outer[name] = {"dtype": one.get("dtype"), "shape": one.get("shape"), "data_offsets": offsets}
            place += len(data)
        text = json.dumps(self.header)
        outer["__metadata__"] = {"cartograd": f"{hashlib.sha256(text.encode()).hexdigest()} {text}"}
        head = json.dumps(outer).encode()
        return struct.pack("<Q", len(head)) + head + b"".join(map(bytes, self.tensors.values()))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some flipped, cut or put in."""
    place, length = rng.randrange(len(data)), rng.randrange(1, 40)
    run = bytes(rng.randrange(256) for _ in range(length))
    way = rng.randrange(5)
    if way == 0:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if way == 1:
        return data[:place]
    if way == 2:
        return data[:place] + run + data[place:]
    if way == 3:
        return data[:place] + data[place + length :]
    return data[:place] + rng.choice((run, bytes(length), b"\xff" * length)) + data[place + length :]


def changed(file: File, rng: random.Random) -> bytes:
    """A file with one or two changes of its content, signed anew."""
    for _ in range(rng.choice((1, 1, 1, 2))):
        if file.tensors and rng.random() < 0.4:
            _change_tensor(file, rng)
        else:
            _change_tree(file.header["model"], rng)
    if rng.random() < 0.01:
        _change_tree(file.header, rng)
    return file.signed()


def _change_tensor(file: File, rng: random.Random) -> None:
    name = rng.choice(list(file.tensors))
    one = file.header["tensors"][name]
    way, data = rng.randrange(6), file.tensors[name]
    if way <= 2 and one["dtype"] in KINDS and data:
        numbers = numpy.frombuffer(data, KINDS[one["dtype"]])
        values = NUMBERS if one["dtype"].startswith("F") else WHOLE
        with numpy.errstate(all="ignore"):
            for _ in range(rng.choice((1, 1, 5, len(numbers)))):
                numbers[rng.randrange(len(numbers))] = numpy.array(rng.choice(values)).astype(numbers.dtype)
    elif way == 3 and data:
        for _ in range(rng.choice((1, 8, 64))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif way == 4:
        _reshape(one, data, rng)
    else:
        same = [other for other in SIZES if len(data) % SIZES[other] == 0]
        one["dtype"] = rng.choice(same)
        one["shape"] = [len(data) // SIZES[one["dtype"]]]


def _reshape(one: dict[str, Any], data: bytearray, rng: random.Random) -> None:
    shape, size = one["shape"], SIZES[one["dtype"]]
    if shape and rng.random() < 0.5:  # rows cut off or added
        count = rng.choice((0, 1, shape[0] - 1, shape[0] + 1))
        row = size * math.prod(shape[1:])
        one["shape"] = [max(count, 0), *shape[1:]]
        length = row * one["shape"][0]
        data[:] = (data + data[:row])[:length]
        one["shape"][0] = len(data) // row if row else one["shape"][0]
    else:
        one["shape"] = rng.choice(([math.prod(shape)], shape[::-1], [1, *shape], [*shape, 1]))


def _change_tree(tree: Any, rng: random.Random) -> None:
    while isinstance(tree, (dict, list)) and tree:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = rng.choice(keys)
        below = tree[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.85:
            tree = below
            continue
        way = rng.randrange(6)
        if way == 0:
            del tree[key]
        elif way == 1 and isinstance(tree, dict):
            tree[rng.choice(NAMES)] = tree.pop(key)
        elif way == 2 and type(below) in (int, float):
            tree[key] = (
                below * rng.choice((-1, 0, 2, 1e9, 1e300)) if type(below) is float else below + rng.choice((-1, 1, 100))
            )
        elif way == 3 and isinstance(tree, list):
            tree.insert(key, copy.deepcopy(below))
        else:
            tree[key] = copy.deepcopy(rng.choice(VALUES))
        return
