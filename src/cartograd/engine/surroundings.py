"""What a computation depends on besides its arguments: random state, autocast, and the other modes of a thread.

A recomputation must find them as the first computation did; a worker thread, as its caller has them.
"""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from cartograd.engine import modes

_DEVICE_TYPES = ("cpu", "cuda")
random_lock = threading.RLock()
"""The generators are those of the whole process: one thread at a time may turn them back."""


class RandomState:
    """The state of every global random generator: torch's (on all devices in use), NumPy's and Python's."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[str, Any] = {
            "torch": torch.default_generator.get_state(),
            "numpy": numpy.random.get_state(legacy=False),
            "python": random.getstate(),
        }
        if torch.cuda.is_initialized():
            self._states["cuda"] = torch.cuda.get_rng_state_all()

    def drawn_from(self) -> RandomState | None:
        """The states of those generators that were used since, or `None` if none was."""
        now = RandomState()._states
        self._states = {kind: state for kind, state in self._states.items() if not _same(kind, state, now.get(kind))}
        return self if self._states else None

    def set(self) -> None:
        """Make the generators go on from this state."""
        for kind, state in self._states.items():
            _SETTERS[kind](state)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Run the block from this state on; afterwards the generators go on from where they were."""
        with random_lock:
            now = RandomState()._states
            self.set()
            try:
                yield
            finally:
                for kind in self._states:
                    _SETTERS[kind](now[kind])


_SETTERS: dict[str, Any] = {
    "torch": torch.default_generator.set_state,
    "numpy": numpy.random.set_state,
    "python": random.setstate,
    "cuda": torch.cuda.set_rng_state_all,
}


def _same(kind: str, one: Any, other: Any) -> bool:
    if kind == "torch":
        return torch.equal(one, other)
    if kind == "cuda":
        return other is not None and all(map(torch.equal, one, other))
    if kind == "python":
        return bool(one == other)
    before, after = one["state"], other["state"]
    return before.get("pos") == after.get("pos") and numpy.array_equal(before["key"], after["key"])


def autocast_state() -> tuple[Any, ...]:
    """Whether and to what torch converts automatically, on each kind of device."""
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICE_TYPES)


@contextmanager
def autocasting(state: tuple[Any, ...]) -> Iterator[None]:
    """Run the block under what `autocast_state` said."""
    with ExitStack() as stack:
        for now, wanted in zip(autocast_state(), state, strict=True):
            if now != wanted and (now[1] or wanted[1]):
                kind, enabled, dtype = wanted
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        yield


class Surroundings:
    """The modes of the calling thread, to be entered by another."""

    def __init__(self) -> None:
        watch = modes.watch
        self._watch = (watch.depth, watch.inf, watch.savers, watch.budget, watch.capture, watch.replaying)
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = autocast_state()
        self._function_modes = _get_current_function_mode_stack()
        self._dispatch_modes = _get_current_dispatch_mode_stack()
        self._context = contextvars.copy_context()
        self._stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None

    def run(self, function: Any, *args: Any) -> Any:
        """Call `function` in a copy of the caller's context, under his modes; this thread's own come back after."""
        return self._context.copy().run(self._run, function, *args)

    def _run(self, function: Any, *args: Any) -> Any:
        watch = modes.watch
        before = (watch.depth, watch.inf, watch.savers, watch.budget, watch.capture, watch.replaying)
        watch.depth, watch.inf, watch.savers, watch.budget, watch.capture, watch.replaying = self._watch
        try:
            with ExitStack() as stack:
                if self._stream is not None:
                    stack.enter_context(torch.cuda.stream(self._stream))
                if self._inference:
                    stack.enter_context(torch.inference_mode())
                stack.enter_context(torch.set_grad_enabled(self._grad))
                stack.enter_context(autocasting(self._autocast))
                for mode in (*self._function_modes, *self._dispatch_modes):
                    stack.enter_context(mode)
                return function(*args)
        finally:
            watch.depth, watch.inf, watch.savers, watch.budget, watch.capture, watch.replaying = before
