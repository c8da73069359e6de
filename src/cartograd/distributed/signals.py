"""Ctrl-C and SIGTERM, answered at the end of a step instead of in the middle of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

WATCHED = (signal.SIGINT, signal.SIGTERM)


class Asked:
    """Which signal asked the process to stop, if any; ``number`` is 0 before."""

    def __init__(self) -> None:
        self.number = 0

    def leave(self) -> None:
        """End as the signal would have had it: KeyboardInterrupt for Ctrl-C, exit 143 for SIGTERM."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.number)


@contextlib.contextmanager
def listening() -> Iterator[Asked]:
    """Take note of the first signal; the second of a kind does what it always does.

    One that nobody has answered by the end, because the work was over, is answered then. Signals come to the main
    thread alone: in another one nothing is watched.
    """
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in WATCHED}

    def note(number: int, frame: Any) -> None:
        asked.number = number
        signal.signal(number, before[number] or signal.SIG_DFL)

    for number in WATCHED:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number in WATCHED:
            signal.signal(number, before[number] or signal.SIG_DFL)
    if asked.number:
        asked.leave()
