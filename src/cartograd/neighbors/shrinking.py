"""Work in tiles whose size gives way where a GPU's memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")

log = logging.getLogger("cartograd.neighbors")


def shrinking(work: Callable[[int], Result], size: int, least: int, what: str) -> Result:
    """``work(size)``; where memory runs out all of it again with half the size, and so on.

    Parameters
    ----------
    work : callable
        Does all of the work in tiles of the size it is given. What it leaves half done must not matter to the next try.
    size : int
        The size to begin with.
    least : int
        The smallest worth trying. If that is too much as well, torch's own error is raised.
    what : str
        The work's name in the log.
    """
    while True:
        try:
            return work(size)
        except torch.OutOfMemoryError:
            if size <= least:
                raise
        size = max(least, size // 2)  # outside the handler: the error holds on to the buffers of the failed try
        log.info("%s: out of memory, trying again with tiles of size %d", what, size)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
