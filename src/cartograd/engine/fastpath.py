"""`apply` and `record` in one straight-line function, written out for each op: the price of a small op is Python's.

`specialise(op)` generates the source from the op's signature (``function.source`` shows it) and compiles it once. A
recorded op then costs about a microsecond beyond its kernel. Whatever is not plain (anomaly mode, in-place, complex
numbers, arguments of other kinds) goes to `apply`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch

from cartograd.engine import modes
from cartograd.engine.apply import apply, autocasts, record_many, wrap
from cartograd.engine.graph import CPU, REAL, Node, calling_place, internal_files, next_number
from cartograd.engine.primitive import Primitive
from cartograd.engine.tensor import Tensor, from_raw

_UNWRAP = """
    if type({name}) is Tensor:
        {name}_value = {name}.data
        {name}_edge = {name}._edge
        if {name}_edge is not None:
            pattern |= {bit}
            if {name}_edge.dtype is not F32 and {name}_edge.dtype not in REAL:
                return general(op, ({arguments},), {{}})
    elif isinstance({name}, Plain):
        {name}_value = {name}
        {name}_edge = None
        if {name}.requires_grad:
            {name}_edge = {name}
            pattern |= {bit}
            foreign = True
            if {name}.dtype is not F32 and {name}.dtype not in REAL:
                return general(op, ({arguments},), {{}})
    elif {name} is None or type({name}) is float or type({name}) is int:
        {name}_value = {name}
        {name}_edge = None
    else:
        return general(op, ({arguments},), {{}})
"""
_RUN = """
    if modes.watchers or not grad_enabled(){converted}{special}:
        return general(op, ({arguments},), {{}})
    if not pattern:
        return wrap(forward({call}){result_only})
    if foreign:  # Parameters go in as they are; torch must not record them as well
        set_grad(False)
        try:
            out{extra} = forward({call})
        finally:
            set_grad(True)
    else:
        out{extra} = forward({call})
{alias}    plan = plans[pattern] or make_plan(pattern)
    edges = {edges_taken}
    version = 0
    if plan.only is not None:
        value = ({values}, out{extra})[plan.only]
        saved = (value,)
        if isinstance(value, Plain):
            version = value._version
        elif type(value) is tuple or type(value) is list:
            version = version_of(value)
    elif plan.saves:
        saved = plan.take(({values}, out{extra}))
        version = version_of(saved)
    else:
        saved = ()
"""
_ALIAS = """    if {test}:
        out = out.detach()  # a tensor of its own, so that an in-place change of one is seen to change the other
"""
_RECORD = """
    dtype = out.dtype
    if dtype is not F32 and dtype not in REAL:  # not run twice: it may have drawn at random
        return general(op, ({arguments},), {{}}) if dtype.is_complex else from_raw(out)
    node = Node()
    node.plan = plan
    node.parents = edges
    node.saved = saved
    node.version = version
    node.number = next_number()
    shape = out.shape
    first = edges[0]
    node.shape = first.shape if type(first) is Node and first.shape == shape else shape
    node.dtype = dtype
    node.device = CPU if out.is_cpu else out.device
    frame = get_frame({depth})
    code = frame.f_code
    if code is user_code:  # called from the same function as the last time
        node.code = code
        node.instruction = frame.f_lasti
    elif known_file(code.co_filename, True):
        node.code, node.instruction = calling_place(frame)
    else:
        node.code = user_code = code
        node.instruction = frame.f_lasti
    node.watchers = None
    made = new(Tensor)
    made.data = out
    made._edge = node
    return made
"""


def source_of(op: Primitive, arithmetic: bool, depth: int = 1) -> str:
    """The straight-line function for `op`, as text."""
    tensors = [op.params[slot] for slot in op.tensor_slots]
    inputs = [name for name in op.inputs if name in tensors]
    signature = [name if slot < op.required else f"{name}=defaults[{slot}]" for slot, name in enumerate(op.params)]
    arguments = ", ".join(op.params)
    values = ", ".join(f"{name}_value" if name in tensors else name for name in op.params)
    special = "".join(f" or {name}_edge is not None" for name in tensors if name not in inputs)
    special += "".join(f" or type({name}) is Tensor" for name in op.params if name not in tensors)
    special += f" or {op.params[op.inplace_slot]}" if op.inplace_slot is not None else ""
    every = [f"{name}_edge" for name in inputs]
    taken = f"({every[0]},)"
    if len(inputs) == 2:
        taken = f"({every[0]}, {every[1]}) if pattern == 3 else (({every[0]},) if pattern == 1 else ({every[1]},))"
    elif len(inputs) > 2:
        taken = f"tuple([edge for edge in ({', '.join(every)}) if edge is not None])"
    filled = {
        "arguments": arguments,
        "values": values,
        "call": ", ".join(
            f"{name}={value}" if slot >= op.positional else value
            for slot, (name, value) in enumerate(zip(op.params, values.split(", "), strict=True))
        ),
        "special": special,
        "alias": "" if arithmetic else _ALIAS.format(test=" or ".join(f"out is {name}_value" for name in tensors)),
        "converted": "" if arithmetic else " or autocasts()",
        "edges_taken": taken,
        "extra": ", extra" if op.extra else "",
        "result_only": "[0]" if op.extra else "",
        "depth": depth,
    }
    text = f"def {op.name}({', '.join(signature)}):\n    global user_code\n    pattern = 0\n    foreign = False\n"
    for name in tensors:
        bit = 1 << inputs.index(name) if name in inputs else 0
        text += _UNWRAP.format(name=name, arguments=arguments, bit=bit).removeprefix("\n")
    text += _RUN.format(**filled).removeprefix("\n")
    if op.multiple:
        return text + "    return record_many(plan, edges, saved, out)\n"
    return text + _RECORD.format(**filled).removeprefix("\n")


def can_specialise(op: Primitive) -> bool:
    """Whether every argument of `op` is one tensor or one option."""
    inputs = [name for name in op.inputs if op.places[name] in op.tensor_slots]
    return not op.variadic and op.takes_list is None and bool(inputs)


def specialise(
    op: Primitive, kernel: Callable[..., Any] | None = None, arithmetic: bool = False, depth: int = 1
) -> Callable[..., Any]:
    """`op` as one compiled function.

    `kernel` is run in place of the forward where that is just a call of it. `arithmetic` promises that the kernel never
    returns its own argument and that autocast does not convert what goes into it. `depth` is 2 for a function that is
    always called by one of ours: the search for the user's line begins above that.
    """
    from cartograd.engine.apply import version_of

    source = source_of(op, arithmetic, depth)
    count = len(op.inputs)
    plans: list[Any] = [None] * (1 << count)

    def make_plan(pattern: int) -> Any:
        plans[pattern] = op.plan(tuple(bool(pattern >> bit & 1) for bit in range(count)))
        return plans[pattern]

    names = {
        "CPU": CPU,
        "F32": torch.float32,
        "Node": Node,
        "Plain": torch.Tensor,
        "REAL": REAL,
        "Tensor": Tensor,
        "autocasts": autocasts,
        "calling_place": calling_place,
        "defaults": op.defaults,
        "forward": kernel or op.forward,
        "from_raw": from_raw,
        "general": apply,
        "get_frame": sys._getframe,
        "grad_enabled": torch.is_grad_enabled,
        "known_file": internal_files.get,
        "make_plan": make_plan,
        "modes": modes,
        "new": object.__new__,
        "next_number": next_number,
        "numpy": numpy,
        "op": op,
        "plans": plans,
        "record_many": record_many,
        "set_grad": torch._C._set_grad_enabled,
        "user_code": None,
        "version_of": version_of,
        "wrap": wrap,
    }
    # The file name makes the function count as ours when the user's line is looked for.
    exec(compile(source, f"{__file__}:{op.name}", "exec"), names)
    function: Any = names[op.name]
    function.source = source
    function.__doc__ = op.__doc__
    return function


def unary(op: Primitive) -> Callable[..., Any]:
    """`op`, which works element by element, as a fast function of one tensor."""
    op.elementwise = True
    return specialise(op)


def binary(
    op: Primitive, kernel: Callable[[Any, Any], Any], arithmetic: bool = False, depth: int = 1
) -> Callable[..., Any]:
    """`op`, whose forward is just `kernel`, as a fast function of two tensors, or a tensor and a number."""
    op.torch_functions = op.torch_functions or [kernel]
    op.elementwise = arithmetic
    return specialise(op, kernel, arithmetic, depth)
