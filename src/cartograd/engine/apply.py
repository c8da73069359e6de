"""Running a primitive: take the plain values out of `Tensor`s, run its forward, record a node.

`apply` is the general way; `fastpath` has the same for the commonest signatures, written out for speed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy
import torch

from cartograd.engine import modes
from cartograd.engine.graph import CPU, REAL, Node, calling_place, internal_files, next_number
from cartograd.engine.plan import Plan
from cartograd.engine.primitive import Primitive, primitive
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import UnsupportedError

_grad_enabled = torch.is_grad_enabled
_set_grad = torch._C._set_grad_enabled
autocasts: Callable[[], bool] = torch._C._is_any_autocast_enabled
_new = object.__new__


def apply(op: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `op`; record it if grad mode is on and an input requires grad."""
    values = op.bind(args, kwargs)
    if values is None:
        return _not_of_this_form(op, args, kwargs)
    if op.inplace_slot is not None and values[op.inplace_slot]:
        from cartograd.engine.inplace import change

        values[op.inplace_slot] = False
        return change(values[0], op.name, lambda tensor: op(tensor, *values[1:]))
    if op.takes_list is not None:
        return _apply_to_list(op, values, args, kwargs)
    for slot in op.option_slots:
        value = values[slot]
        if type(value) is Tensor:
            if op.torch_functions or (value.requires_grad and _grad_enabled()):
                return without_our_rule(op, args, kwargs, op.params[slot])
            values[slot] = value.data
    edges: list[Any] = []
    need = [False] * len(op.inputs)
    for slot in op.tensor_slots:
        value = values[slot]
        if type(value) is Tensor:
            values[slot] = value.data
            edge: Any = value._edge
        elif isinstance(value, torch.Tensor):
            edge = value if value.requires_grad else None
        else:
            if isinstance(value, numpy.ndarray):
                values[slot] = torch.as_tensor(value)
            continue
        if edge is not None:
            place = op.input_slots.get(slot)
            if place is None or edge.dtype not in REAL:
                return without_our_rule(op, args, kwargs, op.params[slot])
            need[place] = True
            edges.append(edge)
    return _run(op, values, edges, tuple(need), args, kwargs)


def _apply_to_list(op: Primitive, values: list[Any], args: Any, kwargs: Any) -> Any:
    assert op.takes_list is not None
    slot = op.places[op.takes_list]
    items, edges, need = [], [], []
    for other, value in enumerate(values):
        if type(value) is Tensor and other != slot:
            if value.requires_grad and _grad_enabled():
                return without_our_rule(op, args, kwargs, op.params[other])
            values[other] = value.data
    for value in values[slot]:
        inner = value.data if type(value) is Tensor else value
        edge = value._edge if type(value) is Tensor else (value if getattr(value, "requires_grad", False) else None)
        if edge is not None and edge.dtype not in REAL:
            return without_our_rule(op, args, kwargs, op.takes_list)
        items.append(inner)
        need.append(edge is not None)
        if edge is not None:
            edges.append(edge)
    values[slot] = items
    return _run(op, values, edges, tuple(need), args, kwargs)


def _run(op: Primitive, values: list[Any], edges: list[Any], need: tuple[bool, ...], args: Any, kwargs: Any) -> Any:
    if autocasts() and not op.torch_functions:
        return _in_full_precision(op, args, kwargs)
    recorded = _grad_enabled()
    if recorded and edges:
        _set_grad(False)  # Parameters go in as they are; torch must not record them as well
        try:
            result = _watched_run(op, values) if modes.watchers else op.run(values)
        finally:
            _set_grad(True)
    elif modes.watchers and modes.watch.capture is not None:
        result = modes.watch.capture.run(op, values)
    else:
        result = op.run(values)
    out, extra = result if op.extra else (result, None)
    if modes.watchers:
        from cartograd.engine.anomaly import check_forward

        check_forward(op.name, values, out)
    if not (recorded and edges):
        return wrap(out)
    if any(out is value for value in values):
        out = out.detach()  # a tensor of its own, so that an in-place change of one is seen to change the other
    if autocasts():  # a kernel may have converted its arguments, unseen by our rules; torch's own know of it
        return without_our_rule(op, args, kwargs)
    plan = op.plan(need)
    values += (out, extra)
    saved = plan.take(values)
    if op.multiple:
        return record_many(plan, tuple(edges), saved, out)
    if out.dtype not in REAL:
        if out.dtype.is_complex:
            return without_our_rule(op, args, kwargs, "input")
        return from_raw(out)
    return record(plan, tuple(edges), saved, out)


def _in_full_precision(op: Primitive, args: Any, kwargs: Any) -> Any:
    """An op that torch does not have, with autocast off: its gradient rules are for the arguments as they are."""
    from cartograd.engine.surroundings import autocast_state, autocasting

    with autocasting(tuple((kind, False, dtype) for kind, _, dtype in autocast_state())):
        return apply(op, args, kwargs)


def _watched_run(op: Primitive, values: list[Any]) -> Any:
    watch = modes.watch
    if watch.capture is not None:
        return watch.capture.run(op, values)
    return watch.savers[-1].run(op, values) if watch.savers else op.run(values)


def record(
    plan: Plan,
    edges: tuple[Any, ...],
    saved: tuple[Any, ...],
    out: torch.Tensor,
    frame: FrameType | None = None,
) -> Tensor:
    """The result `out` as a `Tensor` with a new node; `frame` is where to begin to look for the user's call."""
    node = _new(Node)
    node.plan = plan
    node.parents = edges
    node.saved = saved
    node.version = version_of(saved) if saved else 0
    node.number = next_number()
    shape = out.shape
    first = edges[0]
    # Nodes of one shape share one object: less memory, and `is` tells the backward pass that nothing was broadcast.
    node.shape = first.shape if type(first) is Node and first.shape == shape else shape
    node.dtype = out.dtype
    node.device = CPU if out.is_cpu else out.device
    if frame is None:
        frame = sys._getframe(3)
    code = frame.f_code
    if internal_files.get(code.co_filename, True):
        node.code, node.instruction = calling_place(frame)
    else:
        node.code, node.instruction = code, frame.f_lasti
    node.watchers = None
    if modes.watchers:
        from cartograd.engine.stored import store_saved

        store_saved(node)
    made = _new(Tensor)
    made.data = out
    made._edge = node
    return made


@primitive(multiple=True)
def pick(input: torch.Tensor, index: int) -> Any:
    """One output of a multi-output op. The backward pass hands its gradient to that op's slot `index`."""
    raise UnsupportedError("pick is a place in the graph, not a function to call")


@pick.vjp("input")
def _(g: Any, index: int) -> Any:
    return g


PICK = pick.plan((True,))
PICK.single = PICK.each = None  # the pass treats it on its own


def record_many(plan: Plan, edges: tuple[Any, ...], saved: tuple[Any, ...], outs: Any) -> Any:
    """The results of a multi-output op: one node for the op, and one `pick` node for each differentiable output."""
    first = next((out for out in outs if isinstance(out, torch.Tensor)), None)
    if first is None:
        return outs
    node = record(plan, edges, saved, first)._edge
    assert node is not None
    node.shape = tuple((out.shape, out.dtype, out.device) if _differentiable(out) else None for out in outs)
    wrapped = [pick_output(node, index, out) if _differentiable(out) else wrap(out) for index, out in enumerate(outs)]
    return _like(outs, wrapped)


def pick_output(node: Any, index: int, out: torch.Tensor) -> Tensor:
    """Output number `index` of the multi-output op `node`, as a `Tensor`."""
    picked = record(PICK, (node,), (index,), out)
    return picked


def _differentiable(out: Any) -> bool:
    return isinstance(out, torch.Tensor) and (out.dtype in REAL or out.dtype.is_complex)


def wrap(out: Any) -> Any:
    """Torch tensors in a result, whatever its structure, as `Tensor`s outside the graph."""
    if isinstance(out, torch.Tensor):
        return from_raw(out.detach() if out.requires_grad else out)
    if isinstance(out, (tuple, list)) and any(isinstance(item, (torch.Tensor, tuple, list)) for item in out):
        return _like(out, [wrap(item) for item in out])
    return out


def _like(original: Any, items: list[Any]) -> Any:
    kind = type(original)
    if kind is list:
        return items
    if kind is tuple:
        return tuple(items)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def version_of(saved: Any) -> int:
    """The sum of the version counters of the tensors in `saved`: changes if any of them is changed in place."""
    version = 0
    for value in saved:
        if isinstance(value, torch.Tensor):
            version += value._version
        elif type(value) is list or type(value) is tuple:
            version += version_of(value)
    return version


_METADATA = frozenset(
    (type(None), bool, int, float, str, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format)
)


def is_metadata(saved: Any) -> bool:
    """Return whether the saved values are sizes, dtypes and the like alone: such a node can be walked any time."""
    for value in saved:
        kind = type(value)
        if kind in _METADATA:
            continue
        if kind is not tuple and kind is not list:
            return False
        if not _METADATA.issuperset(map(type, value)) and not is_metadata(value):
            return False
    return True


def _not_of_this_form(op: Primitive, args: Any, kwargs: Any) -> Any:
    if op.torch_functions:
        from cartograd.engine.fallback import run_torch

        return run_torch(op.torch_functions[0], args, kwargs)
    raise UnsupportedError(f"{op.name} takes ({', '.join(op.params)}), got {len(args)} arguments and {list(kwargs)}")


def without_our_rule(op: Primitive, args: Any, kwargs: Any, name: str = "input") -> Any:
    """Our rules do not cover this input (or complex numbers): torch's derivative does, or we say so."""
    if op.torch_functions:
        from cartograd.engine.fallback import run_torch

        return run_torch(op.forward_only(), args, kwargs)
    raise UnsupportedError(
        f"{op.name} has no gradient rule for its input {name!r}, which requires grad. "
        f"Give it one with @{op.name}.vjp({name!r}), or pass a detached value."
    )
