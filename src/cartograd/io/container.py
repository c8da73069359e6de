"""The file a model lies in: a safetensors file whose metadata hold a JSON header after its SHA-256.

Layout, little-endian: 8 bytes with the length of the outer header; the outer header, JSON, with the dtype, shape and
place of every tensor and ``__metadata__ = {"cartograd": "<SHA-256 of the header> <header>"}``; the tensors, without
gaps. The header has the SHA-256 of every tensor, so each byte that matters is covered. There is one entry of metadata
and not two because the library writes several in any order, and the same model should give the same file.

Files are written by the safetensors library. They are read here: through `readinto`, a file that another process cuts
short is an error and not a bus error as with a memory map; every tensor is held once, and hashed where it lies.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import IO, Any

import torch

from cartograd.errors import FileAbsentError, FileAccessError, ModelFileError
from cartograd.io.atomic import replacing
from cartograd.io.storage import DTYPES, NAMES

KEY = "cartograd"
LARGEST_HEADER = 64 * 2**20
"""Bytes of JSON at most: parsed JSON takes many times its length. Numbers and texts lie in tensors, not here."""


def write_container(path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write `header` and `tensors` (dense, on the CPU, none sharing memory) to `path`, wholly or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    text = json.dumps(header | {"tensors": {name: _described(one) for name, one in tensors.items()}}, allow_nan=False)
    if len(text) > LARGEST_HEADER // 2:  # it is escaped once more, inside the outer header
        raise ModelFileError(f"the model has {len(text):,} bytes of parameters beside its arrays: too many for a file")
    metadata = {KEY: f"{hashlib.sha256(text.encode()).hexdigest()} {text}"}
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata)  # which writes to a file of its own and renames it to ours
        except SafetensorError as error:
            raise FileAccessError(
                f"could not write {os.fspath(path)}: {error}; what was there before is unchanged"
            ) from error


def read_container(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The header and the tensors of a file, every byte checked."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            outer, start = _outer_header(file, size)
            header = _inner_header(outer)
            places = _checked_places(outer, header, size - start)
            return header, {name: _tensor(file, start + place, header, name) for name, place in places.items()}
    except FileNotFoundError as error:
        raise FileAbsentError(f"there is no file {Path(path).absolute()}") from error
    except OSError as error:
        raise FileAccessError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error


def _described(tensor: torch.Tensor) -> dict[str, Any]:
    digest = hashlib.sha256(_bytes(tensor)).hexdigest()
    return {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "sha256": digest}


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _outer_header(file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    """The outer header, and where the tensors begin."""
    beginning = file.read(8)
    length = int.from_bytes(beginning, "little")
    if len(beginning) < 8:
        raise ModelFileError(f"it is {size} bytes long: too short for a model")
    if length > size - 8 or length > LARGEST_HEADER:
        raise ModelFileError(
            f"it is no model file, or it was cut: its first bytes ask for a header of {length:,} bytes, and "
            f"{size - 8:,} bytes follow"
        )
    outer = _json(file.read(length), "the outer header")
    if not isinstance(outer.get("__metadata__"), dict):
        raise ModelFileError("it is no model file of cartograd: it has no metadata")
    return outer, 8 + length


def _inner_header(outer: dict[str, Any]) -> dict[str, Any]:
    entry = outer.pop("__metadata__").get(KEY)
    if not isinstance(entry, str):
        raise ModelFileError("it is a safetensors file, but no model file of cartograd")
    digest, _, text = entry.partition(" ")
    raw = text.encode("utf-8", "surrogatepass")
    if hashlib.sha256(raw).hexdigest() != digest:
        raise ModelFileError("its header is damaged: the checksum does not fit")
    return _json(raw, "the header")


def _json(raw: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is no JSON object")
    return value


def _checked_places(outer: dict[str, Any], header: dict[str, Any], available: int) -> dict[str, int]:
    """Where each tensor begins, after it is sure that they fill the rest of the file without gap or overlap."""
    described = header.get("tensors")
    if not isinstance(described, dict) or set(described) != set(outer):
        raise ModelFileError("the tensors in it are not those its header lists")
    spans = sorted((*_span(name, outer[name], described[name]), name) for name in outer)
    reached = 0
    for begin, end, name in spans:
        if begin != reached:
            raise ModelFileError(f"tensor {name!r} begins at byte {begin} and not at {reached}")
        reached = end
    if reached != available:
        raise ModelFileError(f"its tensors take {reached:,} bytes, and it has {available:,}: it was cut or added to")
    return {name: begin for begin, _, name in spans}


def _span(name: str, entry: Any, described: Any) -> tuple[int, int]:
    try:
        begin, end = entry["data_offsets"]
        same = entry["dtype"] == described["dtype"] and entry["shape"] == described["shape"]
        counts = [begin, end, *described["shape"]]
        itemsize = DTYPES[described["dtype"]].itemsize
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"the description of tensor {name!r} is malformed: {error!r}") from error
    whole = all(type(count) is int and count >= 0 for count in counts)
    if not same or not whole or end - begin != itemsize * math.prod(described["shape"]):
        raise ModelFileError(f"the dtype, shape and place of tensor {name!r} do not fit together")
    return begin, end


def _tensor(file: IO[bytes], place: int, header: dict[str, Any], name: str) -> torch.Tensor:
    described = header["tensors"][name]
    dtype, shape = DTYPES[described["dtype"]], described["shape"]
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    buffer = bytearray(dtype.itemsize * math.prod(shape))
    file.seek(place)
    if file.readinto(buffer) != len(buffer):  # type: ignore[attr-defined]
        raise ModelFileError(f"it was cut while it was read, in tensor {name!r}")
    if hashlib.sha256(buffer).hexdigest() != described.get("sha256"):
        raise ModelFileError(f"tensor {name!r} is damaged: the checksum does not fit")
    if dtype == torch.bool and max(buffer) > 1:
        raise ModelFileError(f"tensor {name!r} has truth values that are neither 0 nor 1")
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)
