"""The modes a computation runs under.

There is one grad mode for cartograd and torch: `no_grad` and `enable_grad` are torch's own, so code written for
either stops and starts recording in both. `recording` also records ops whose only differentiable input is an
``nn.Parameter``; `detect_anomaly` names the op that first makes a NaN or an Inf.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cartograd.engine.tensor import Tensor

no_grad = torch.no_grad
enable_grad = torch.enable_grad
set_grad_enabled = torch.set_grad_enabled
is_grad_enabled = torch.is_grad_enabled

_MAKES_NO_GRAPH = {
    "__get__",
    "__set__",
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
        name = getattr(func, "__name__", "")
        quiet = name in _MAKES_NO_GRAPH or (name.endswith("_") and not name.endswith("__"))
        if quiet or not torch.is_grad_enabled() or not _has_leaf(args, kwargs):
            return func(*args, **kwargs)
        return Tensor.__torch_function__(func, types, args, kwargs)


def _has_leaf(args: Any, kwargs: dict[str, Any]) -> bool:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return True
        if isinstance(value, (list, tuple)) and _has_leaf(value, {}):
            return True
    return False


class _Watch(threading.local):
    depth = 0
    inf = True
    savers: tuple[Any, ...] = ()  # who keeps saved values, innermost last; see `stored`
    budget: Any = None  # the innermost memory budget
    capture: Any = None  # the recording of a step, while one is made
    replaying = False  # whether what runs now has run before, so that its side effects must not happen again


watch = _Watch()
"""This thread's modes. `watchers` counts all threads', so that an op need not look here when it is 0."""
watchers = 0
_lock = threading.Lock()


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
