"""Many small pieces of work on all cores.

torch's own threads split each single operation and wait for each other after it; for tiles of a few hundred rows, and
whenever a core is busy with something else, they mostly wait. During a search they are therefore off, and whole pieces
go to different threads instead, each of which computes on its own. How a piece is computed then depends neither on
the number of threads nor on what other threads do, so a search gives the same bits with any number of them.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_pool: contextvars.ContextVar[ThreadPoolExecutor | None] = contextvars.ContextVar("cartograd_neighbors", default=None)
_lock = threading.Lock()
_searches = 0
_threads = 1


@contextlib.contextmanager
def all_cores(device: torch.device) -> Iterator[None]:
    """Let `spread` use as many threads as torch was told to use; nothing on a GPU."""
    global _searches, _threads
    if device.type != "cpu" or _pool.get() is not None:
        yield
        return
    with _lock:  # a search that begins in another thread meanwhile would read the 1 set below
        if _searches == 0:
            _threads = torch.get_num_threads()
        _searches += 1
        threads = _threads
    pool = ThreadPoolExecutor(threads, "cartograd-neighbors", initializer=torch.set_num_threads, initargs=(1,))
    token = _pool.set(pool)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        _pool.reset(token)
        with _lock:
            _searches -= 1
            torch.set_num_threads(threads)


def thread_count() -> int:
    """How many threads `spread` uses inside `all_cores`."""
    with _lock:
        return _threads if _searches else torch.get_num_threads()


def spread(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
    """``map(function, items)``, inside `all_cores` on all of them; results in the order of the items."""
    pool = _pool.get()
    if pool is None or (isinstance(items, Sized) and len(items) == 1):  # another thread would only be waited for
        return map(function, items)
    return pool.map(function, items)
