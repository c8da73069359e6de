"""Launches recorded once and replayed as one: a CUDA graph, without the pauses in which Python makes the next launch."""

from __future__ import annotations

from collections.abc import Callable

import torch


def recorded(work: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """What `work` launches, ready to be replayed; it is not run here.

    Kernels must have been run before (they are compiled and loaded then), and `work` must neither allocate nor wait.
    Replays read and write the same memory as `work` would.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph
