"""The file a model lies in: a safetensors file whose metadata hold a JSON header after its SHA-256.

Layout, little-endian: 8 bytes with the length of the outer header; the outer header, JSON, with the dtype, shape and
place of every tensor and ``__metadata__ = {"cartograd": "<SHA-256 of the header> <header>"}``; the tensors, without
gaps. The header has the SHA-256 of every tensor, so each byte that matters is covered. There is one entry of metadata
and not two because the library writes several in any order, and the same model should give the same file.

Files are written and read here. The safetensors library writes to a temporary file of its own, which a process that is
killed leaves behind. Through `readinto` a file that another process cuts short is an error and not a bus error as with
a memory map; every tensor is held once, and hashed where it lies.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import IO, Any

import torch

from cartograd.core.checks import shorten, show
from cartograd.core.filenames import show_name, special_kind
from cartograd.errors import FileAbsentError, FileAccessError, ModelFileError
from cartograd.io.atomic import open_atomic
from cartograd.io.storage import DTYPES, NAMES
from cartograd.neighbors.free_memory import free_bytes

KEY = "cartograd"
KEY_OF_METADATA = "__metadata__"
LARGEST_HEADER = 64 * 2**20
"""Bytes of JSON at most: parsed JSON takes many times its length. Numbers and texts lie in tensors, not here."""
MOST_VALUES = 2**20
"""Values in the header at most: an empty list takes thirty times its two letters."""
MOST_AXES = 34
"""Axes of a tensor at most, and two."""
LARGEST_COUNT = 2**62


def write_container(path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write `header` and `tensors` (dense, on the CPU, none sharing memory) to `path`, wholly or not at all."""
    text = json.dumps(header | {"tensors": {name: _described(one) for name, one in tensors.items()}}, allow_nan=False)
    if len(text) > LARGEST_HEADER // 2:  # it is escaped once more, inside the outer header
        raise ModelFileError(f"the model has {len(text):,} bytes of parameters beside its arrays: too many for a file")
    _check_values(text, "the header")
    outer: dict[str, Any] = {KEY_OF_METADATA: {KEY: f"{hashlib.sha256(text.encode()).hexdigest()} {text}"}}
    # the order of the safetensors library, in which every tensor lies at a multiple of its item's size
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    place = 0
    for name in order:
        size = tensors[name].numel() * tensors[name].element_size()
        outer[name] = {
            "dtype": NAMES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [place, place + size],
        }
        place += size
    head = json.dumps(outer, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open_atomic(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in order:
            file.write(_bytes(tensors[name]))


def read_container(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The header and the tensors of a file, every byte checked."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            size = _checked_size(file)
            outer, start = _outer_header(file, size)
            header = _inner_header(outer)
            places = _checked_places(outer, header, size - start)
            return header, {name: _tensor(file, start + place, header, name) for name, place in places.items()}
    except FileNotFoundError as error:
        raise FileAbsentError(f"there is no file {show_name(str(Path(path).absolute()))}") from error
    except OSError as error:
        raise FileAccessError(f"cannot read {show_name(os.fspath(path))}: {error.strerror or error}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _checked_size(file: IO[bytes]) -> int:
    """Return the size of a plain file that fits into the memory."""
    status = os.fstat(file.fileno())
    kind = special_kind(status.st_mode)
    if kind is not None:
        raise ModelFileError(f"it is {kind}, not a plain file")
    free = free_bytes(torch.device("cpu"))
    if status.st_size > free:
        raise ModelFileError(f"it has {status.st_size:,} bytes, and {free:,.0f} bytes of memory are free")
    return status.st_size


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
    outer = _json(_ascii(file.read(length), "the outer header", 2), "the outer header")
    if not isinstance(outer.get(KEY_OF_METADATA), dict):
        raise ModelFileError("it is no model file of cartograd: it has no metadata")
    return outer, 8 + length


def _inner_header(outer: dict[str, Any]) -> dict[str, Any]:
    entry = outer.pop(KEY_OF_METADATA).get(KEY)
    if not isinstance(entry, str):
        raise ModelFileError("it is a safetensors file, but no model file of cartograd")
    digest, _, text = entry.partition(" ")
    del entry
    if not text.isascii() or hashlib.sha256(text.encode()).hexdigest() != digest:
        raise ModelFileError("its header is damaged: the checksum does not fit")
    _check_values(text, "the header")
    return _json(text, "the header")


def _ascii(raw: bytes, what: str, factor: int = 1) -> str:
    """Return the text of a header, which is written in ASCII; refuse more values than any model has."""
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        raise ModelFileError(f"{what} is no JSON in ASCII") from None
    if "\\u" in text.replace("\\\\", ""):  # of letters that ASCII does not have, of which each takes four bytes
        raise ModelFileError(f"{what} is no JSON in ASCII")
    _check_values(text, what, factor)
    return text


def _check_values(text: str, what: str, factor: int = 1) -> None:
    """Refuse JSON whose values would take many times its length in memory, before it is parsed."""
    count = sum(text.count(sign) for sign in ",[{")
    if count > factor * MOST_VALUES:
        raise ModelFileError(f"{what} has about {count:,} values, more than {factor * MOST_VALUES:,}")


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{what} is no JSON: {shorten(str(error))}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is no JSON object")
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _checked_places(outer: dict[str, Any], header: dict[str, Any], available: int) -> dict[str, int]:
    """Where each tensor begins, after it is sure that they fill the rest of the file without gap or overlap."""
    described = header.get("tensors")
    if not isinstance(described, dict) or set(described) != set(outer):
        raise ModelFileError("the tensors in it are not those its header lists")
    spans = sorted((*_span(name, outer[name], described[name]), name) for name in outer)
    reached = 0
    for begin, end, name in spans:
        if begin != reached:
            raise ModelFileError(f"tensor {show(name)} begins at byte {begin} and not at {reached}")
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
        raise ModelFileError(f"the description of tensor {show(name)} is malformed: {shorten(repr(error))}") from None
    whole = len(counts) <= MOST_AXES and all(type(count) is int and 0 <= count < LARGEST_COUNT for count in counts)
    if not same or not whole or end - begin != itemsize * math.prod(described["shape"]):
        raise ModelFileError(f"the dtype, shape and place of tensor {show(name)} do not fit together")
    if math.prod(max(count, 1) for count in described["shape"]) >= LARGEST_COUNT:
        raise ModelFileError(f"the shape of tensor {show(name)} is too large")
    return begin, end


def _tensor(file: IO[bytes], place: int, header: dict[str, Any], name: str) -> torch.Tensor:
    described = header["tensors"][name]
    dtype, shape = DTYPES[described["dtype"]], described["shape"]
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    buffer = bytearray(dtype.itemsize * math.prod(shape))
    file.seek(place)
    if file.readinto(buffer) != len(buffer):  # type: ignore[attr-defined]
        raise ModelFileError(f"it was cut while it was read, in tensor {show(name)}")
    if hashlib.sha256(buffer).hexdigest() != described.get("sha256"):
        raise ModelFileError(f"tensor {show(name)} is damaged: the checksum does not fit")
    if dtype == torch.bool and max(buffer) > 1:
        raise ModelFileError(f"tensor {show(name)} has truth values that are neither 0 nor 1")
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)
