"""The time of a recording: what watches torch while a function runs, and how what it did is undone.

Below torch's own dispatch every operator is seen; above it, what is no operator: the ``.grad`` of Parameters, steps of
optimisers, modules, and whatever turns a tensor into Python numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cartograd.engine import modes
from cartograd.engine.capture_lines import Line
from cartograd.engine.capture_record import Recorder
from cartograd.engine.graph import Leaf, Node
from cartograd.engine.surroundings import RandomState
from cartograd.engine.tensor import Tensor
from cartograd.errors import CaptureError

_READS = {"numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__"}
_NO_LINE = {"profiler"}


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record what the block does, and undo it."""
    random = RandomState()
    before = modes.watch.capture
    hooks = Hooks(recorder)
    with ExitStack() as stack:
        stack.callback(_end, recorder, random)
        for handle in (
            register_module_forward_pre_hook(hooks.entered),
            register_optimizer_step_pre_hook(hooks.steps),
            register_optimizer_step_post_hook(hooks.stepped),
        ):
            stack.callback(handle.remove)
        stack.enter_context(_Functions(recorder))
        stack.enter_context(_Operators(recorder))
        modes.watch.capture = recorder
        modes.add_watchers(1)
        try:
            yield
        finally:
            modes.watch.capture = before
            modes.add_watchers(-1)


def _end(recorder: Recorder, random: RandomState) -> None:
    drawn = random.drawn_from()
    if drawn is not None:
        drawn.set()
    put_back(recorder)


def put_back(recorder: Recorder) -> None:
    """Undo what the function, or a replay of it, has changed."""
    for storage, copy in recorder.before.values():
        storage.copy_(copy)
    for leaf, gradient in recorder.gradients.values():
        leaf.grad = gradient
    for optimizer, state in reversed(recorder.states):
        optimizer.state.clear()
        optimizer.state.update({key: dict(value) for key, value in state.items()})


class Hooks:
    """What modules and optimisers are told to call. They call it on every thread; only ours counts."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.thread = threading.get_ident()

    def entered(self, module: Any, args: Any) -> None:
        """A module runs: a recording holds as long as it stays as it is."""
        if threading.get_ident() == self.thread:
            self.recorder.modules.enter(module)

    def steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimiser begins a step: it is called as it is, what it does is no part of the source."""
        if threading.get_ident() != self.thread:
            return
        if len(args) > 1 or kwargs:
            raise CaptureError("an optimiser that is given a closure cannot be captured: leave its step outside")
        self.recorder.states.append((optimizer, {key: dict(value) for key, value in optimizer.state.items()}))
        self.recorder.silent += 1

    def stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """It has ended its step."""
        if threading.get_ident() == self.thread:
            self.recorder.silent -= 1
            place = self.recorder.at().removeprefix(", at ")
            self.recorder.lines.append(Line("python", "step", (self.recorder.constant(optimizer),), {}, [], place))


class _Operators(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in _NO_LINE:
            return func(*args, **(kwargs or {}))
        return self.recorder.operator(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recorder, name = self.recorder, getattr(func, "__name__", "")
        if recorder.silent:
            return func(*args, **(kwargs or {}))
        if getattr(func, "__self__", None) is torch.Tensor.grad:
            if name == "__get__":
                recorder.look(args[0])
            else:
                recorder.put(args[0], args[1] if len(args) > 1 else None)
        elif name in _READS and recorder.where is None:
            raise recorder.refuse(f"calls .{name}() on a tensor")
        return func(*args, **(kwargs or {}))


def leaf_of(value: Any) -> Leaf | None:
    """Where the gradient of an input goes, if it is a leaf."""
    edge = value._edge if isinstance(value, Tensor) else None
    if isinstance(edge, Node):
        raise CaptureError(
            f"an input of a captured step must not be part of a graph; this one was made by {edge.name} at "
            f"{edge.where()}. Pass .detach(), or compute it inside."
        )
    return edge if isinstance(edge, Leaf) else None
