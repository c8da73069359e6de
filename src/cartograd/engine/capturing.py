"""Asking whether a step is being recorded, from places that the recorder itself is built on."""

from __future__ import annotations

from typing import Any


def recorder() -> Any:
    """The recording of a step that is being made, if one is."""
    from cartograd.engine import modes

    return modes.watch.capture if modes.watchers else None


def refuse_to_read(name: str) -> None:
    """Python must not see the values of a step that is being recorded."""
    recording = recorder()
    if recording is not None and not recording.silent and recording.where is None:
        raise recording.refuse(f"calls .{name}() on a tensor")
