"""What a fit did: sizes, choices, seconds by phase; kept as ``report_`` and logged."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

log = logging.getLogger("cartograd.embedding")


class Report(dict[str, Any]):
    """A dictionary with the seconds of each phase under "seconds"."""

    def __init__(self, **entries: Any) -> None:
        super().__init__(entries, seconds={})

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase of the fit."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = self["seconds"]
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
            log.info("%s: %s took %.2f s", self.get("method", "fit"), name, seconds[name])
