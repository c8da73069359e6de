"""How much memory a fit will need, and whether the machine has it."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from cartograd.errors import MemoryBudgetError
from cartograd.kernels import cpu
from cartograd.neighbors import screened
from cartograd.neighbors.free_memory import GIB as GIB
from cartograd.neighbors.free_memory import free_bytes as free_bytes
from cartograd.neighbors.searching import EXACT_UP_TO
from cartograd.neighbors.tiles import TILE_ROWS
from cartograd.neighbors.workers import thread_count

if TYPE_CHECKING:
    from cartograd.embedding.base import AffinityMatcher
    from cartograd.embedding.source import Source
    from cartograd.neighbors.rows import Rows

BLOCKS = 20_000
"""Rows in all the blocks of data that are held at once."""
WORTH_RETURNING = 1 << 25
"""Bytes of data from which on freed memory is returned between the parts of a fit."""


def return_freed(rows: Rows) -> None:
    """Give memory that was freed back to the system, after a part of a fit that took much of it.

    The C library of Linux keeps it, in pieces that the next part cannot use, so peaks would add up. Elsewhere, on GPUs
    and for small data nothing is done.
    """
    trim = _trim()
    if trim is not None and rows.device.type == "cpu" and rows.count * rows.width * 4 >= WORTH_RETURNING:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def graph_bytes(n: int, k: int, d: int, size: int, sampled: int = 0) -> float:
    """The most a fit holds beside the data themselves, by figures seen.

    Per neighbour the two directions of an edge as they are sorted (int64 keys, order, weights in float64), per row
    the keys and places, the blocks of data that a search works on or, at the end, the copy that the map keeps, and the
    pairs sampled at a step.

    Parameters
    ----------
    n, k, d : int
        Rows, neighbours of each, columns.
    size : int
        Bytes of a number.
    sampled : int, default=0
        Points drawn for each row at a step.
    """
    threads = thread_count()  # each works on a tile of its own
    search = _exact_search(n, d) * threads if n <= EXACT_UP_TO else 60e6 + 10e6 * threads
    copies = d * size * max(3.4 * min(n, BLOCKS), 1.1 * n)
    return 10e6 + search + copies + n * (600.0 + 120.0 * k + 28.0 * sampled)


def _exact_search(n: int, d: int) -> float:
    """What a thread of an exact search takes: a tile of distances, or of their lower bounds, which is smaller."""
    bounds = n >= screened.LEAST_ROWS and n * d <= screened.MOST and cpu.usable()
    return 10.0 * screened.TILE if bounds else 10.0 * min(n, TILE_ROWS) ** 2


def refuse_if_too_large(model: AffinityMatcher, source: Source) -> None:
    """Refuse a fit that would not end for want of memory, with the figures and what to change."""
    needed, advice = model._memory(source.n, source.rows.width, 8 if source.rows.dtype == torch.float64 else 4)
    free = free_bytes(source.rows.device)
    if model._bounds is not None:  # own rows, and the places and keys of all
        needed = needed / model._sharers() + 40.0 * source.n
    if model._ranks is not None and source.rows.device.type == "cpu":
        free /= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # others on this machine need as much
    model.report_["memory_estimate"] = needed
    if needed > free:
        raise MemoryBudgetError(
            f"{type(model).__name__} of {source.n} rows would need about {needed / GIB:.1f} GiB, and "
            f"{free / GIB:.1f} GiB are free; {advice}"
        )
