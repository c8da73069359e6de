"""Progress where there is no terminal: a line in the log every half minute."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

INTERVAL = 30.0
"""Seconds between two lines."""


@dataclass
class Activity:
    """What a command does now.

    Parameters
    ----------
    text : str, default=""
        What is being done; nothing is said where that is empty.
    detail : callable or None, default=None
        Returns how far that has come, or an empty text.
    began : float
        When it began, by `time.monotonic`.
    """

    text: str = ""
    detail: Callable[[], str] | None = None
    began: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """Return the line for the log.

        Examples
        --------
        >>> Activity("Mapping 60 rows", lambda: "step 350 of 500", time.monotonic() - 90).line()
        'Mapping 60 rows: 90 s, step 350 of 500'
        """
        detail = self.detail() if self.detail else ""
        return f"{self.text}: {time.monotonic() - self.began:.0f} s{', ' if detail else ''}{detail}"


@contextlib.contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call a function every `INTERVAL` seconds, from a thread that ends with the block."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(INTERVAL):
            tick()

    thread = threading.Thread(target=run, name="cartograd-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def steps_taken(model: object) -> str:
    """Return how far the layout of an estimator has come; an empty text before the layout, and where there is none."""
    taken, most = getattr(model, "n_iter_", None), getattr(model, "max_iter", None)
    return f"step {taken:,} of {most:,}" if isinstance(taken, int) and isinstance(most, int) else ""
