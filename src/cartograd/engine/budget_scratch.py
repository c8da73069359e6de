"""What an op takes for a moment, beside its results, while it runs: copies of strided inputs, weights of attention.

Nobody says beforehand, so it is measured the first time an op (or its gradient) meets arguments of these shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from cartograd.engine.graph import Node
from cartograd.engine.meter import PeakBytes
from cartograd.engine.stored import tensors_in

Result = TypeVar("Result")
Key = tuple[Any, ...]

_MOST = 10_000
_known: dict[Key, tuple[int, int]] = {}
"""Key -> (bytes of the results, bytes beside them), for all budgets."""


def key_of(name: str, values: Any) -> Key:
    """What the memory of an op depends on: the shapes and layouts of what it is given."""
    return (name, *[(one.shape, _strides(one), one.dtype, one.device) for one in tensors_in(values)])


def key_of_gradient(node: Node, saved: Any) -> Key:
    """The same for the gradient rules of a node."""
    return (*key_of(node.name, saved), node.plan.need)


def _strides(tensor: torch.Tensor) -> Any:
    return tensor.stride() if tensor.layout is torch.strided else None


def known(key: Key) -> tuple[int, int] | None:
    """(bytes of the results, bytes beside them), if it was measured."""
    return _known.get(key)


def measured(key: Key, call: Callable[[], Result]) -> Result:
    """The result of `call`; what it takes is known from the first time on."""
    if key in _known:
        return call()
    with PeakBytes() as meter:
        result = call()
    if len(_known) >= _MOST:
        _known.clear()
    _known[key] = (meter.live, meter.peak - meter.live)
    return result
