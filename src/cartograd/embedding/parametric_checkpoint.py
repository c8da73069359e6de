"""A training in a file: weights, the optimiser's state, how far it has come. Whole or absent, and no code in it."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import torch

from cartograd.errors import DataFileError, FileAbsentError, FileAccessError, InputError

KEY = "cartograd training"


def write_checkpoint(path: Any, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write facts (JSON) and tensors: to a temporary file in the same folder, flushed, then renamed over `path`."""
    from safetensors.torch import save

    target = Path(path)
    check_folder(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    data = save({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, {KEY: json.dumps(facts)})
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise FileAccessError(f"could not write the checkpoint {target}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(path: Any) -> None:
    """Refuse a checkpoint in a folder that is not there, before any work."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileAbsentError(f"checkpoint={os.fspath(path)!r}: the folder {folder} does not exist; make it first")


def read_checkpoint(path: Any, device: torch.device) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """What `write_checkpoint` wrote; None where there is no such file."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).exists():
        return None
    try:
        with safe_open(os.fspath(path), framework="pt", device=str(device)) as file:
            facts = json.loads((file.metadata() or {})[KEY])
            return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise DataFileError(
            f"{os.fspath(path)} is not a whole checkpoint of a training: {error}; remove it, or use resume=False"
        ) from error


def check_same(found: dict[str, Any], expected: dict[str, Any], path: Any) -> None:
    """Refuse to go on with a training of something else; names the first difference."""
    for name, value in expected.items():
        if found.get(name) != value:
            raise InputError(
                f"{os.fspath(path)} is the checkpoint of another training: {name} was {found.get(name)!r}, and is "
                f"{value!r} now; use resume=False, or another file"
            )


def flat_state(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The state of an optimiser as numbers and tensors by names like "3.exp_avg"."""
    numbers: dict[str, Any] = {}
    tensors: dict[str, torch.Tensor] = {}
    for number, entries in optimiser.state_dict()["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, torch.Tensor) else numbers)[f"{number}.{name}"] = value
    return numbers, tensors


def restore_state(optimiser: torch.optim.Optimizer, numbers: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Give an optimiser of the same parameters the state that `flat_state` took."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**numbers, **tensors}.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
