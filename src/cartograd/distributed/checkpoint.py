"""A fit in a folder of checkpoints: each whole or absent, the last two kept, and a flipped byte is seen."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from cartograd.errors import DataFileError, FileAbsentError, FileAccessError, InputError

log = logging.getLogger("cartograd.distributed")

KEY = "cartograd fit"
NAME = re.compile(r"step-(\d{10})\.safetensors")
KEPT = 2
ADDED = {"the parameter precision": "'float32'"}
"""What checkpoints of version 0.1, which do not say it, were made with."""

Facts = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def open_folder(folder: Any) -> Path:
    """The folder, made where it is not there yet; refused where it cannot be written to."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileAccessError(f"checkpoint_dir={os.fspath(folder)!r} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise FileAccessError(f"checkpoint_dir={os.fspath(folder)!r} cannot be written to; choose another folder")
    return path


def write(folder: Path, step: int, facts: Facts, tensors: Tensors) -> Path:
    """Write the checkpoint of a step, then remove all but the last two.

    To a temporary file in the folder, flushed to the disk, renamed, and the folder flushed: whoever kills the process
    meanwhile leaves the older checkpoints as they are.
    """
    from safetensors.torch import save

    plain = {name: one.detach().cpu().contiguous() for name, one in tensors.items()}
    told = {**facts, "step": step, "digests": {name: digest(one) for name, one in plain.items()}}
    text = json.dumps(told, sort_keys=True)
    data = save(plain, {KEY: text, "digest": hashlib.sha256(text.encode()).hexdigest()})
    target = folder / f"step-{step:010d}.safetensors"
    temporary = folder / f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _flush(folder)
    except OSError as error:
        raise FileAccessError(f"could not write the checkpoint {target}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    _tidy(folder)
    return target


def newest(folder: Path) -> tuple[Facts, Tensors] | None:
    """The newest checkpoint that is whole; None where there is none. Those that are damaged are named in the log."""
    files = _steps(folder)
    damaged = []
    for _, path in reversed(files):
        try:
            return read(path)
        except DataFileError as error:
            damaged.append(str(error))
            log.warning("%s; trying the one before", error)
    if damaged:
        raise DataFileError(f"no checkpoint in {folder} is whole: {damaged[0]}; use resume=False to begin anew")
    return None


def read(path: Path) -> tuple[Facts, Tensors]:
    """One checkpoint, every byte of it compared with its digest."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt", device="cpu") as file:
            words = file.metadata() or {}
            facts: Facts = json.loads(words[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except FileNotFoundError as error:
        raise FileAbsentError(f"there is no checkpoint {path}") from error
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise DataFileError(f"{path} is not a whole checkpoint: {error}") from error
    same = hashlib.sha256(words[KEY].encode()).hexdigest() == words.get("digest")
    if not same or facts["digests"] != {name: digest(one) for name, one in tensors.items()}:
        raise DataFileError(f"{path} is damaged: its content is not what was written")
    return facts, tensors


def check_same(found: Facts, expected: Facts, folder: Path) -> None:
    """Refuse to go on with another fit; names the first difference."""
    for name, value in expected.items():
        before = found.get(name, ADDED.get(name))
        if before != value:
            raise InputError(
                f"{folder} holds checkpoints of another fit: {name} was {before!r} and is {value!r} now; use "
                "resume=False, another checkpoint_dir, or what the fit began with"
            )


def digest(values: torch.Tensor) -> str:
    """SHA-256 of the shape, the kind and the bytes of a tensor."""
    plain = values.detach().cpu().contiguous()
    found = hashlib.sha256(f"{tuple(plain.shape)} {plain.dtype}".encode())
    found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return found.hexdigest()


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier fit, which a new one is not to be mixed up with."""
    for _, path in _steps(folder):
        path.unlink(missing_ok=True)


def _steps(folder: Path) -> list[tuple[int, Path]]:
    found = ((NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match.group(1)), path) for match, path in found if match)


def _tidy(folder: Path) -> None:
    """Keep the last two, and none of the temporary files that killed processes left."""
    for _, path in _steps(folder)[:-KEPT]:
        path.unlink(missing_ok=True)
    for path in folder.glob(".step-*.tmp"):
        path.unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    with suppress(OSError):  # not every system lets folders be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
