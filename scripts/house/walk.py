"""The walk of a row through a fit: which files and functions are called, and which files call each other."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from sklearn.datasets import load_digits

import cartograd
from house.source import SOURCE


@dataclass
class Walk:
    """Calls seen while a function ran: files, functions, and (caller, callee) pairs of files."""

    files: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call; a profile function."""
        if event != "call" or (callee := _file(frame)) is None or frame.f_code.co_name == "<module>":
            return
        name = frame.f_code.co_qualname
        self.files[callee] += 1
        self.functions[f"{callee} {name}"] += 1
        caller = _calling_file(frame)
        passed_in = "<lambda>" in name or "<locals>" in name
        if caller not in (None, callee) and not passed_in:
            self.pairs[caller, callee] += 1  # type: ignore[index]

    def both_ways(self) -> list[tuple[str, str]]:
        """Return the pairs of files of which each calls the other, the engine's left out."""
        return sorted(
            (one, other)
            for one, other in self.pairs
            if one < other and (other, one) in self.pairs and not {one.split("/")[0], other.split("/")[0]} & {"engine"}
        )


def _file(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    return name[len(str(SOURCE)) + 1 :] if name.startswith(f"{SOURCE}/") else None


def _calling_file(frame: FrameType) -> str | None:
    above = frame.f_back
    while above is not None:
        if (found := _file(above)) is not None:
            return found
        above = above.f_back
    return None


def walk_of_umap() -> Walk:
    """Return the walk of the second fit of UMAP to the digits."""
    rows = load_digits().data.astype("float32")
    cartograd.UMAP(random_state=0).fit_transform(rows)
    walk = Walk()
    sys.setprofile(walk.note)
    try:
        cartograd.UMAP(random_state=0).fit_transform(rows)
    finally:
        sys.setprofile(None)
    return walk
