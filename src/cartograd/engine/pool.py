"""Worker threads that are kept between backward passes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Pool:
    """Threads that wait for jobs. More are started as they are asked for; none is ever waited for."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0  # jobs that were submitted and have not ended

    def submit(self, job: Callable[[], None], most: int) -> None:
        """Have `job` called by a thread, a new one if all are busy and there are fewer than `most`."""
        with self._lock:
            self._busy += 1
            if self._busy > self._threads and self._threads < most:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"cartograd-{self._threads}", daemon=True).start()
        self._jobs.put(job)

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            finally:
                del job  # hold on to nothing while waiting
                with self._lock:
                    self._busy -= 1


pool = Pool()


def _start_afresh() -> None:
    """A forked process has none of its parent's threads."""
    global pool
    pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
