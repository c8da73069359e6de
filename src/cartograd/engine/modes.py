"""The modes a computation runs under.

There is one grad mode for cartograd and torch: `no_grad` and `enable_grad` are torch's own, so code written for
either stops and starts recording in both. `recording` also records ops whose only differentiable input is an
``nn.Parameter``; `detect_anomaly` names the op that first makes a NaN or an Inf.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from cartograd.engine.tensor import Tensor
from cartograd.engine.transparent import lifted

no_grad = torch.no_grad
enable_grad = torch.enable_grad
set_grad_enabled = torch.set_grad_enabled
is_grad_enabled = torch.is_grad_enabled

_MAKES_NO_GRAPH = {
    "__deepcopy__",
    "__get__",
    "__reduce_ex__",
    "__repr__",
    "__set__",
    "_make_subclass",
    "as_subclass",
    "grad",
    "requires_grad_",
    "detach",
    "detach_",
    "backward",
    "size",
    "dim",
    "numel",
    "stride",
    "is_floating_point",
    "is_complex",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "retain_grad",
    "untyped_storage",
}
_VIEWING = {getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH", "real", "imag")}
"""Attributes that are views of the tensor, so part of the graph."""


class recording(TorchFunctionMode):
    """Record every op that involves a Parameter, even if no `Tensor` does.

    Examples
    --------
    >>> import torch, cartograd
    >>> layer = torch.nn.Embedding(3, 1)
    >>> with cartograd.recording():
    ...     loss = layer(torch.tensor([0, 2])).sum()
    >>> loss.backward()
    >>> layer.weight.grad.flatten().tolist()
    [1.0, 0.0, 1.0]
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if watch.torchs or not torch.is_grad_enabled() or _makes_no_graph(func) or not _has_leaf((args, kwargs)):
            return func(*args, **kwargs)
        from cartograd.engine.inplace import changes_argument

        if not changes_argument(func, args, kwargs):
            args, kwargs = _lifted_inside(args), _lifted_inside(kwargs)
        return Tensor.__torch_function__(func, types, args, kwargs)


def is_recording() -> bool:
    """Return whether the calling thread is inside a `recording` block."""
    return any(isinstance(mode, recording) for mode in _get_current_function_mode_stack())


def _makes_no_graph(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    quiet = name in _MAKES_NO_GRAPH or (name.endswith("_") and not name.endswith("__"))
    return quiet and func not in _VIEWING


def _has_leaf(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return any(map(_has_leaf, value))


def _lifted_inside(value: Any) -> Any:
    """Replace the Parameters in a structure of lists, tuples and dicts, so that views of them are recorded, too."""
    if type(value) in (list, tuple):
        return type(value)(map(_lifted_inside, value))
    if type(value) is dict:
        return {key: _lifted_inside(item) for key, item in value.items()}
    return lifted(value)


class _Watch(threading.local):
    depth = 0
    inf = True
    savers: tuple[Any, ...] = ()  # who keeps saved values, innermost last; see `stored`
    budget: Any = None  # the innermost memory budget
    capture: Any = None  # the recording of a step, while one is made
    torchs = 0  # above 0 while torch's autograd runs a function for us: `recording` must not record inside it
    replaying = False  # whether what runs now has run before, so that its side effects must not happen again


watch = _Watch()
"""This thread's modes. `watchers` counts all threads', so that an op need not look here when it is 0."""
watchers = 0
_lock = threading.Lock()


class LeftToTorch:
    """Run the block with `recording` off: torch's autograd records what happens there."""

    __slots__ = ()

    def __enter__(self) -> None:
        watch.torchs += 1

    def __exit__(self, *exc: object) -> None:
        watch.torchs -= 1


left_to_torch = LeftToTorch()


def add_watchers(count: int) -> None:
    """Tell every op that somebody looks on (or, with -1, that he has left)."""
    global watchers
    with _lock:
        watchers += count


class detect_anomaly:
    """Stop at the first op, forward or backward, that makes a NaN or an Inf, and name it.

    Parameters
    ----------
    inf : bool, default=True
        Whether an Inf counts, too. An Inf that an argument already had never does.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor([0.0, 1.0], requires_grad=True)
    >>> with cartograd.detect_anomaly():
    ...     y = x.log()
    Traceback (most recent call last):
    ...
    cartograd.errors.AnomalyError: log made an Inf...
    """

    def __init__(self, inf: bool = True) -> None:
        self._inf = inf

    def __enter__(self) -> detect_anomaly:
        self._before = watch.inf
        watch.depth += 1
        watch.inf = self._inf
        add_watchers(1)
        return self

    def __exit__(self, *exc: object) -> None:
        watch.depth -= 1
        watch.inf = self._before
        add_watchers(-1)
