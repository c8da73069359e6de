"""`apply`, `record` and `version_of` in one, for ops of one or two tensors: the price of a small op is Python's.

A recorded ``a + b`` costs about one microsecond beyond the kernel this way, and two through `apply`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.apply import record
from cartograd.engine.graph import CPU, REAL, Node, calling_place, internal_code, next_number
from cartograd.engine.primitive import Primitive
from cartograd.engine.tensor import Tensor, from_raw

_new = object.__new__
_grad_enabled = torch.is_grad_enabled
_frame = sys._getframe
_known_code = internal_code.get


def unary(op: Primitive) -> Callable[..., Any]:
    """`op` as a function of one tensor and its defaults; any other call goes the general way."""
    forward, plan, tail = op.forward, op.plan((True,)), op.defaults[1:]
    slow, take = op.__call__, plan.take

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or type(input) is not Tensor or modes.watchers:
            return slow(input, *args, **kwargs)
        x, edge = input.data, input._edge
        if edge is None or not _grad_enabled():
            return from_raw(forward(x, *tail))
        if edge.dtype not in REAL:
            return slow(input)
        out = forward(x, *tail)
        return record(plan, (edge,), take((x, *tail, out)), out, _frame(1))

    call.__name__ = op.name
    return call


def binary(op: Primitive, kernel: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`op`, whose forward is just `kernel`, as a function of two tensors, or a tensor and a number."""
    both, first, second = op.plan((True, True)), op.plan((True, False)), op.plan((False, True))
    slow = op.__call__
    op.torch_functions = op.torch_functions or [kernel]

    def call(input: Any, other: Any) -> Any:
        kind = type(other)
        if type(input) is not Tensor or modes.watchers:
            return slow(input, other)
        x, left = input.data, input._edge
        if kind is Tensor:
            y, right = other.data, other._edge
        elif kind is float or kind is int:
            y, right = other, None
        else:
            return slow(input, other)
        out = kernel(x, y)
        made = _new(Tensor)
        made.data = out
        if (left is None and right is None) or not _grad_enabled():
            made._edge = None
            return made
        dtype = out.dtype
        if dtype not in REAL:
            return slow(input, other)
        node = _new(Node)
        if right is None:
            node.plan = plan = first
            node.parents = (left,)
        elif left is None:
            node.plan = plan = second
            node.parents = (right,)
        else:
            node.plan = plan = both
            node.parents = (left, right)
        version = 0
        if plan.saves:
            node.saved = saved = plan.take((x, y, out))
            for value in saved:
                if isinstance(value, torch.Tensor):
                    version += value._version
        else:
            node.saved = ()
        node.version = version
        node.number = next_number()
        shape = out.shape
        node.shape = left.shape if left is not None and left.shape == shape else shape
        node.dtype = dtype
        node.device = CPU if out.is_cpu else out.device
        frame = _frame(1)
        code = frame.f_code
        if _known_code(code, True):
            node.code, node.instruction = calling_place(frame)
        else:
            node.code, node.instruction = code, frame.f_lasti
        node.watchers = None
        made._edge = node
        return made

    call.__name__ = op.name
    return call
