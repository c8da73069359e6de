"""Which device a fit computes on where that is left to us, and what is said when its memory does not suffice."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from cartograd.embedding.memory import GIB, free_bytes
from cartograd.errors import MemoryBudgetError
from cartograd.neighbors.default_device import device_or_default
from cartograd.neighbors.intake import Given
from cartograd.neighbors.rows import TensorRows

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher

log = logging.getLogger("cartograd.embedding")

ROWS = 20_000
"""Above this many rows a GPU gains more than the way there and back costs."""


def moved(model: AffinityMatcher, given: Given) -> Given:
    """The data, on a GPU where ``device="auto"``, there is one, and they are many rows in the memory of the CPU."""
    rows = given.rows
    if not (model.device == "auto" and isinstance(rows, TensorRows) and rows.device.type == "cpu"):
        return given
    named = device_or_default(model.device) is not None
    if named or rows.count <= ROWS or model._ranks is not None or not torch.cuda.is_available():
        return given
    device = _here()
    if free_bytes(device) < 2.0 * rows.data.nbytes:
        log.info("auto: %d rows stay on the CPU, the GPU has too little free memory", rows.count)
        return given
    log.info("auto: %d rows go to the GPU, %s; device='cpu' keeps them here", rows.count, device)
    return replace(given, rows=TensorRows(rows.data.to(device)))


def _here() -> torch.device:
    """The GPU that is in use, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


@contextlib.contextmanager
def memory_told(model: AffinityMatcher) -> Iterator[None]:
    """Say what a fit would have needed where the GPU's memory ran out on the way."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        device = _here()
        needed = getattr(model, "report_", {}).get("memory_estimate", float("nan"))
        message = (
            f"{type(model).__name__} ran out of memory on {device}: about {needed / GIB:.1f} GiB were expected, "
            f"{free_bytes(device) / GIB:.1f} GiB are free now; use fewer neighbours, float32 data, fewer rows, "
            "or device='cpu'"
        )
        raise MemoryBudgetError(message) from error
