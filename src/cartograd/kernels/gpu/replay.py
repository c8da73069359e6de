"""Launches recorded once and replayed as one: a CUDA graph, without pauses in which Python makes the next launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def recorded(work: Callable[[], None], device: torch.device, pool: Any = None) -> torch.cuda.CUDAGraph:
    """What `work` launches, ready to be replayed; it is not run here.

    Kernels must have been run before (they are compiled and loaded then), and `work` must not wait for the device.
    Replays read and write the same memory as `work` would; what it allocates and drops comes from `pool`, a handle of
    ``torch.cuda.graph_pool_handle`` that recordings may share whose replays never overlap.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph
