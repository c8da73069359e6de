"""Comparisons and logic: truth values, outside the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cartograd.engine.apply import wrap
from cartograd.engine.fallback import run_torch
from cartograd.engine.primitive import composite, spellings
from cartograd.engine.tensor import Tensor

NAMES = """
    gt ge lt le eq ne greater greater_equal less less_equal not_equal
    __gt__ __ge__ __lt__ __le__ __eq__ __ne__
    logical_and logical_or logical_xor logical_not __and__ __or__ __xor__ __invert__
    isnan isinf isfinite isposinf isneginf signbit
"""


def plainly(function: Any) -> Callable[..., Any]:
    """`function` of plain values: there is no derivative to ask for, so nothing to prepare."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            return run_torch(function, args, kwargs)
        return wrap(function(*[value.data if type(value) is Tensor else value for value in args]))

    call.__name__ = function.__name__
    return call


for name in NAMES.split():
    for function in spellings(name):
        composite(function)(plainly(function))
