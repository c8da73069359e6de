"""What can be wrong with the arguments of `double_ssd`, each with its message, checked before any work."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.engine.tensor import Tensor
from cartograd.errors import InputError, OptionError, UnsupportedError

ALGORITHMS = ("recompute", "serial", "minimal")
AXES = {
    "v": "(batch, chunks, steps, ranks, heads, channels)",
    "da": "(batch, chunks, steps, heads)",
    "B": "(batch, chunks, steps, ranks, groups, state channels)",
    "C": "(batch, chunks, steps, ranks, groups, state channels)",
    "initial_state": "(batch, heads, channels, state channels)",
}


def known_algorithm(algorithm: Any) -> str:
    """Refuse an algorithm that is not known by name."""
    if algorithm not in ALGORITHMS:
        raise OptionError(f"double_ssd: unknown algorithm {algorithm!r}: known are {', '.join(ALGORITHMS)}")
    return str(algorithm)


def operands(v: Any, da: Any, B: Any, C: Any, initial_state: Any) -> list[Any]:
    """The five as tensors of ours or of torch's; refused unless their shapes, kinds and devices fit together."""
    given = {"v": v, "da": da, "B": B, "C": C, "initial_state": initial_state}
    found = {name: _floats(value, name) for name, value in given.items()}
    present = {name: value for name, value in found.items() if value is not None}
    for name, value in present.items():
        if len(value.shape) != AXES[name].count(",") + 1:
            raise InputError(f"double_ssd: {name} must have the axes {AXES[name]}, got shape {tuple(value.shape)}")
        if value.device != present["v"].device:
            raise InputError(f"double_ssd: {name} is on {value.device}, but v is on {present['v'].device}")
    _require_shapes(present)
    return list(found.values())


def _floats(value: Any, name: str) -> Any:
    if value is None and name == "initial_state":
        return None
    if not isinstance(value, (Tensor, torch.Tensor)):
        try:
            value = torch.as_tensor(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise UnsupportedError(f"double_ssd: {name} cannot be read as a tensor: {error}") from None
    if not value.dtype.is_floating_point:
        raise InputError(f"double_ssd: {name} must be of floating-point numbers, got {value.dtype}")
    return value


def _require_shapes(given: dict[str, Any]) -> None:
    batch, chunks, steps, ranks, heads, channels = given["v"].shape
    groups, width = given["B"].shape[4:]
    if not steps or not ranks or not heads:
        raise InputError(
            f"double_ssd: a chunk needs at least one step, rank and head, but v has shape {tuple(given['v'].shape)}"
        )
    if groups == 0 or heads % groups:
        raise InputError(f"double_ssd: {groups} groups of B and C do not divide the {heads} heads of v")
    wanted = {
        "da": (batch, chunks, steps, heads),
        "B": (batch, chunks, steps, ranks, groups, width),
        "C": (batch, chunks, steps, max(given["C"].shape[3], 1), groups, width),  # its own number of ranks
        "initial_state": (batch, heads, channels, width),
    }
    for name, shape in wanted.items():
        if name in given and tuple(given[name].shape) != shape:
            raise InputError(
                f"double_ssd: {name} must have shape {shape}, the axes {AXES[name]} of v and B, "
                f"got {tuple(given[name].shape)}"
            )
