"""How much memory a fit will need, and whether the machine has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from cartograd.errors import MemoryBudgetError
from cartograd.neighbors.searching import EXACT_UP_TO
from cartograd.neighbors.tiles import TILE_ROWS

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher
    from cartograd.embedding.source import Source

GIB = float(1 << 30)


def free_bytes(device: torch.device) -> float:
    """Memory that can still be taken on the device; infinity where it cannot be known."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    path = Path("/proc/meminfo")
    if not path.exists():
        return float("inf")
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    return float("inf")


def graph_bytes(n: int, k: int, d: int, size: int, sampled: int = 0) -> float:
    """The most a fit holds beside the data themselves, by figures seen.

    Per neighbour the two directions of an edge as they are sorted (int64 keys, order, weights in float64), per row
    the keys and places, a working copy of the data with tiles of distances, and the pairs sampled at a step.

    Parameters
    ----------
    n, k, d : int
        Rows, neighbours of each, columns.
    size : int
        Bytes of a number.
    sampled : int, default=0
        Points drawn for each row at a step.
    """
    tiles = 36.0 * min(n, TILE_ROWS) ** 2 if n <= EXACT_UP_TO else 0.0  # of the exact search
    return 30e6 + tiles + n * (2000.0 + 150.0 * k + 3.8 * d * size + 28.0 * sampled)


def refuse_if_too_large(model: AffinityMatcher, source: Source) -> None:
    """Refuse a fit that would not end for want of memory, with the figures and what to change."""
    needed, advice = model._memory(source.n, source.rows.width, 8 if source.rows.dtype == torch.float64 else 4)
    free = free_bytes(source.rows.device)
    model.report_["memory_estimate"] = needed
    if needed > free:
        raise MemoryBudgetError(
            f"{type(model).__name__} of {source.n} rows would need about {needed / GIB:.1f} GiB, and "
            f"{free / GIB:.1f} GiB are free; {advice}"
        )
