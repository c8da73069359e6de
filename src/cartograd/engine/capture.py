"""`capture`: record a step once, then replay it as straight-line source, without building a graph.

What is replayed is every operator that torch ran: the forward, the backward pass, and what the function does with the
gradients. Steps of optimisers are called as they are. Before it is used, a recording is checked: its replay must give
the bits that the function gave.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from cartograd.engine import modes
from cartograd.engine.apply import autocasts
from cartograd.engine.capture_program import Program
from cartograd.engine.graph import CPU
from cartograd.engine.hooks import hook_keys
from cartograd.engine.tensor import Tensor
from cartograd.errors import OptionError


def capture(fn: Callable[..., Any], *examples: Any, cache: int = 8) -> Captured:
    """Record ``fn(*examples)`` and return a function that does the same, faster: it replays what was recorded.

    `fn` may compute, call ``backward()``, change tensors in place, step an optimiser, return tensors. A replay gives
    the bits that `fn` would give. Arguments of other shapes, dtypes or devices, other Python numbers, a module switched
    to ``eval()`` or with another attribute (``dropout.p``), a Parameter, buffer or submodule that was replaced or
    frozen, a hook that was added or removed: each is recorded when it is first met. Recording changes nothing: what
    `fn` did is undone.

    What Python decides from the values of tensors (``if loss > 1``, ``.item()``, ``.numpy()``, sizes that depend on
    values) is refused, with the line. What else Python does (printing, counting, stepping a schedule) happens when the
    step is recorded, and not when it is replayed. On a CUDA device the kernels are replayed as a CUDA graph.

    Parameters
    ----------
    fn : callable
        A function of tensors and numbers.
    *examples
        Arguments like those it will be called with.
    cache : int, default=8
        How many recordings to keep; the one not used for longest is dropped.

    Returns
    -------
    Captured
        Call it as `fn`; ``.source`` is the text of the latest recording.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> def fn(y):
    ...     loss = (x * y).sum()
    ...     loss.backward()
    ...     return loss
    >>> step = cartograd.capture(fn, cartograd.tensor([3.0, 4.0]))
    >>> step(cartograd.tensor([5.0, 6.0])).item(), x.grad
    (17.0, Tensor([5., 6.]))
    """
    return Captured(fn, examples, cache)


class Captured:
    """A captured step. Made by `capture`."""

    def __init__(self, fn: Callable[..., Any], examples: tuple[Any, ...], cache: int) -> None:
        if not isinstance(cache, int) or isinstance(cache, bool) or cache < 1:
            raise OptionError(f"cache must be a whole number of at least 1, got {cache!r}")
        self.fn = fn
        self._size = cache
        self._programs: OrderedDict[Any, list[Program]] = OrderedDict()
        self._newest_key: Any = None  # the signature of `_latest`
        self._lock = threading.RLock()
        self._latest = self._program(examples)

    @property
    def source(self) -> str:
        """The source of the recording made or used last."""
        return self._latest.listing

    @property
    def recordings(self) -> int:
        """How many recordings there are."""
        return sum(map(len, self._programs.values()))

    def __call__(self, *args: Any) -> Any:
        """Do what the function does."""
        watch = modes.watch
        watched = modes.watchers and (watch.capture is not None or watch.depth or watch.savers)
        if watched or torch.is_anomaly_enabled():
            return self.fn(*args)  # every op and every gradient must be seen
        with self._lock:
            program = self._latest = self._program(args)
            return program.run(args)

    def _program(self, args: tuple[Any, ...]) -> Program:
        key = signature(args)
        if key == self._newest_key:  # the usual case: comparing is faster than hashing
            if self._latest.still_holds():
                return self._latest
        for program in self._programs.get(key, ()):
            if program.still_holds():
                self._programs.move_to_end(key)
                self._newest_key = key
                return program
        made = Program(self.fn, args)
        self._programs.setdefault(key, []).insert(0, made)
        self._programs.move_to_end(key)
        self._newest_key = key
        self._shrink()
        return made

    def _shrink(self) -> None:
        while self.recordings > self._size:
            oldest = next(iter(self._programs))
            self._programs[oldest].pop()
            if not self._programs[oldest]:
                del self._programs[oldest]


def signature(args: tuple[Any, ...]) -> Any:
    """What a recording depends on: kinds, sizes and layouts of tensors, other values themselves, and torch's modes."""
    parts: list[Any] = [torch.is_grad_enabled(), autocasts(), torch.get_default_dtype()]
    for value in args:
        if type(value) is Tensor:
            data = value.data
            edge = value._edge
            hooks = None if edge is None or edge.watchers is None else hook_keys(edge) or None
            device = CPU if data.is_cpu else data.device
            parts.append((1, data.shape, data.stride(), data.dtype, device, edge is not None, hooks))
        elif isinstance(value, torch.Tensor):
            parts.append((2, value.shape, value.stride(), value.dtype, value.device, value.requires_grad))
        elif value is None or type(value) in (int, float, bool, str):
            parts.append((type(value), value))
        else:
            flat, structure = tree_flatten(value)
            single = len(flat) == 1 and flat[0] is value
            parts.append((type(value), id(value)) if single else (str(structure), signature(tuple(flat))))
    return tuple(parts)


def flattened(args: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """The arguments flat, and how to put them together again."""
    flat, structure = tree_flatten(args)
    return flat, lambda values: tree_unflatten(values, structure)
