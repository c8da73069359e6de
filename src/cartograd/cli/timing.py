"""Seconds by phase, and the threads a command may use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Clock:
    """How long each phase of a command took."""

    seconds: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase; one that happens again adds to what it took before."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def divide(self, name: str, parts: dict[str, float]) -> None:
        """Put the parts of a phase, where they are known, in its place."""
        if parts:
            self.seconds = {
                key: value
                for phase, taken in self.seconds.items()
                for key, value in (parts.items() if phase == name else [(phase, taken)])
            }

    def all(self) -> dict[str, float]:
        """The phases, and the time since the clock was made."""
        return {name: round(value, 4) for name, value in self.seconds.items()} | {
            "total": round(time.perf_counter() - self.began, 4)
        }

    def line(self) -> str:
        """The phases for people; those of less than 5 ms are left out."""
        phases = [f"{name} {value:.2f}" for name, value in self.seconds.items() if value >= 0.005]
        return f"Seconds: {', '.join(phases)}; {time.perf_counter() - self.began:.1f} in all"


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads; None for as many as torch chose."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
