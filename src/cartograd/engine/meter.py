"""Measuring memory: the bytes under all tensors that are made in a block, as long as they live."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):
    """Counts the memory of every tensor that any torch operation makes inside the block, until it is freed.

    Memory counts once, however many views it has, and whoever holds it: saved values, results, gradients, temporaries
    of our own ops. What one kernel uses inside is not seen. `peak` is the most at any one time, `live` what there is.

    Examples
    --------
    >>> with PeakBytes() as meter:
    ...     a = torch.ones(1000) + 1
    ...     b = a.exp().sum()
    >>> meter.peak, meter.live
    (8004, 4004)
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._known: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count what it made."""
        result = func(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if _has_memory(one)}
        for one in tree_leaves(result):
            if _has_memory(one):
                storage = one.untyped_storage()
                if storage._cdata not in given:
                    self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        with self._lock:
            if key in self._known:
                return
            self._known[key] = weakref.ref(storage, lambda _: self._forget(key, size))
            self.live += size
            self.peak = max(self.peak, self.live)

    def _forget(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self.live -= size


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
