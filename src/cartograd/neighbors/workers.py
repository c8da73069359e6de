"""Many small pieces of work on all cores.

torch's own threads split each single operation and wait for each other after it; for tiles of a few hundred rows, and
whenever a core is busy with something else, they mostly wait. Here whole pieces go to different threads, each of which
computes on its own. How a piece is computed does not depend on how many threads there are, and results come in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
Map = Callable[[Callable[[Item], Result], Iterable[Item]], Iterable[Result]]


@contextlib.contextmanager
def workers(device: torch.device) -> Iterator[Map[Item, Result]]:
    """A function like ``map`` that works on as many threads as torch would use; on a GPU ``map`` itself."""
    if device.type != "cpu":
        yield map
        return
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, "cartograd-neighbors", initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool.map
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(threads)  # the threads above have changed what new ones begin with
