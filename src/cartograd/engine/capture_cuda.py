"""A captured step on a CUDA device: its kernels as one CUDA graph, launched at once.

A graph reads from and writes to fixed memory. The arguments are copied in, what leaves the step is copied out. The
lines that are not kernels (gradients being stored, optimisers) stay Python: those before the kernels run first, those
after them last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine.capture_lines import Line, Name
from cartograd.engine.capture_record import Recorder
from cartograd.engine.capture_source import Source
from cartograd.errors import CaptureError


def graphed(
    recorder: Recorder, names: list[Name], outputs: list[Name], given: list[Any]
) -> Callable[..., tuple[Any, ...]]:
    """A function of the step's arguments that replays its first run of kernels as a CUDA graph."""
    start, end = _kernels(recorder.lines)
    head, body, tail = recorder.lines[:start], recorder.lines[start:end], recorder.lines[end:]
    made = {one for line in body for one in line.outs if one is not None}
    later = {name for line in tail for name in line.uses()} | set(outputs)
    leaving = sorted(made & later)
    _require_cuda(recorder, body)
    first = Source(recorder, head, names, []).compile()[0]
    source = Source(recorder, body, names, leaving)
    kernels = source.compile()[0]
    last = Source(recorder, tail, [*names, *leaving], outputs).compile()[0]
    static = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    graph = torch.cuda.CUDAGraph()
    first(*given)
    with torch.cuda.graph(graph):
        results = kernels(*static)

    def replay(*arguments: Any, buffers: Any = source.bound) -> tuple[Any, ...]:  # the graph writes to these buffers
        first(*arguments)
        for fixed, argument in zip(static, arguments, strict=True):
            if isinstance(argument, torch.Tensor):
                fixed.copy_(argument)
        graph.replay()
        return last(*arguments, *[one.clone() for one in results])

    return replay


def _kernels(lines: list[Line]) -> tuple[int, int]:
    start = next((number for number, line in enumerate(lines) if line.kind == "kernel"), len(lines))
    end = next((number for number in range(start, len(lines)) if lines[number].kind != "kernel"), len(lines))
    if start == end:
        raise CaptureError("the step has no kernels")
    return start, end


def _require_cuda(recorder: Recorder, lines: list[Line]) -> None:
    """Everything in a graph must be on the device: what the CPU computes would be computed once, and never again."""
    devices = {meta[3].type for line in lines for meta in line.metas.values()}
    used = {name for line in lines for name in line.uses()}
    for name in used & recorder.constants.keys():
        value = recorder.constants[name]
        if isinstance(value, torch.Tensor):
            devices.add(value.device.type)
    if devices - {"cuda"}:
        raise CaptureError(f"parts of the step are on {sorted(devices - {'cuda'})}")
