"""Many small pieces of work on all cores.

torch's own threads split each single operation and wait for each other after it; for tiles of a few hundred rows, and
whenever a core is busy with something else, they mostly wait. During a search they are therefore off, and whole pieces
go to different threads instead, each of which computes on its own. How a piece is computed then depends neither on
the number of threads nor on what other threads do, so a search gives the same bits with any number of them.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_pool: contextvars.ContextVar[ThreadPoolExecutor | None] = contextvars.ContextVar("cartograd_pool", default=None)
_limit: contextvars.ContextVar[int | None] = contextvars.ContextVar("cartograd_threads", default=None)
_lock = threading.Lock()
_searches = 0
_workers: set[int] = set()
"""Threads of pools, by the numbers that the system gives them."""
MOST_REMEMBERED = 256
LONGEST_END = 1.0
"""Seconds that a fork waits for the ends of threads."""
_threads = 1
_forked = False
"""Whether this process is the child of a fork: torch's own threads are then those of the parent, and never answer."""
_limits_libraries = False
"""Whether the other libraries' threads are still to be limited in the child of a fork."""


@contextlib.contextmanager
def all_cores(device: torch.device) -> Iterator[None]:
    """Let `spread` use as many threads as torch was told to use; nothing on a GPU."""
    global _searches, _threads
    _limit_libraries()
    if device.type != "cpu" or _pool.get() is not None:
        yield
        return
    with _lock:  # a search that begins in another thread meanwhile would read the 1 set below
        if _searches == 0:
            _threads = torch.get_num_threads()
        _searches += 1
        threads = _threads
    size = _limit.get() or threads
    pool = ThreadPoolExecutor(size, "cartograd-neighbors", initializer=_begin_worker)
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


def _begin_worker() -> None:
    """Let a thread of a pool compute by itself, and remember it for the next fork."""
    torch.set_num_threads(1)
    if len(_workers) > MOST_REMEMBERED:
        _workers.difference_update([worker for worker in tuple(_workers) if not _is_alive(worker)])
    _workers.add(threading.get_native_id())


def _is_alive(worker: int) -> bool:
    """Return whether the system still has this thread; False where it cannot be asked."""
    return os.path.exists(f"/proc/self/task/{worker}")


def _wait_for_ended_workers() -> None:
    """Wait, before a fork, until the system has ended the threads of pools that were shut down.

    Python joins a thread a moment before the thread frees the memory of MKL. A fork in this moment would leave MKL's
    list of buffers half changed in the child, which then searches it forever.
    """
    if _searches == 0:
        last = time.monotonic() + LONGEST_END
        while any(map(_is_alive, tuple(_workers))) and time.monotonic() < last:
            time.sleep(0.001)
        _workers.clear()


@contextlib.contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Use so many threads on a CPU: None for as many as torch uses, -1 for all cores, -2 for all but one."""
    _limit_libraries()
    if n_jobs is None or _pool.get() is not None:
        yield
        return
    wanted = n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    before, token = torch.get_num_threads(), _limit.set(wanted)
    torch.set_num_threads(1 if _forked else wanted)
    try:
        yield
    finally:
        _limit.reset(token)
        torch.set_num_threads(before)


def thread_count() -> int:
    """Return how many threads `spread` uses inside `all_cores`."""
    with _lock:
        return _limit.get() or (_threads if _searches else torch.get_num_threads())


def spread(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
    """``map(function, items)``, inside `all_cores` on all of them; results in the order of the items."""
    pool = _pool.get()
    if pool is None or (isinstance(items, Sized) and len(items) == 1):  # another thread would only be waited for
        return map(function, items)
    return pool.map(function, items)


def _start_alone() -> None:
    """Compute on one thread in the child of a fork, where the threads of the parent do not exist.

    torch's OpenMP runtime remembers its threads, and a loop that is divided among them would wait forever.
    """
    global _lock, _searches, _threads, _forked, _limits_libraries
    _lock, _searches, _threads, _forked, _limits_libraries = threading.Lock(), 0, 1, True, True
    _pool.set(None)
    torch.set_num_threads(1)


def _limit_libraries() -> None:
    """Limit faiss, scikit-learn and scipy to one thread, once in the child of a fork: they would wait forever, too."""
    global _limits_libraries
    if _limits_libraries:
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)
        _limits_libraries = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_ended_workers, after_in_child=_start_alone)
