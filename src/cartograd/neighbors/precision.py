"""Full float32 products, whatever the process asked of its matrix multiplications.

``torch.set_float32_matmul_precision("high")`` makes products on the tensor cores (or in bfloat16 on some CPUs) that
keep 10 or fewer bits. Neighbours ranked by such products are wrong long before an embedding would notice, so a search
switches them off while it runs and puts the setting back when the last search in the process is done.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

_lock = threading.Lock()
_searches = 0
_before = "highest"


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 matrices in float32 inside this block; searches in other threads may overlap."""
    global _searches, _before
    with _lock:
        if _searches == 0:
            _before = torch.get_float32_matmul_precision()
            if _before != "highest":
                torch.set_float32_matmul_precision("highest")
        _searches += 1
    try:
        yield
    finally:
        with _lock:
            _searches -= 1
            if _searches == 0 and _before != "highest":
                torch.set_float32_matmul_precision(_before)


def _start_alone() -> None:
    """Forget the searches of the parent's threads in the child of a fork, and their lock."""
    global _lock, _searches
    _lock = threading.Lock()
    if _searches:
        _searches = 0
        torch.set_float32_matmul_precision(_before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_alone)
