"""The lines of a captured step: what was called, with what, and what came out, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from cartograd.errors import CaptureError


class Name(str):
    """The name of a tensor, a leaf or a constant in the generated source."""

    __slots__ = ()


class Line:
    """One statement.

    Attributes
    ----------
    kind
        "kernel" for a call of a torch operator; "op" for an op, or a gradient rule, that is called as a whole;
        "python" for everything that is not a computation: storing a gradient, stepping an optimiser.
    function
        What is called: an operator of torch, or the name of a constant.
    outs
        The names of the tensors that come out, in order; `None` for anything else.
    fresh
        Those of them that lie in new memory.
    place
        What the line is there for: the op and the user's line.
    """

    __slots__ = ("args", "fresh", "function", "kind", "kwargs", "metas", "outs", "place", "single")

    def __init__(
        self,
        kind: str,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: list[Name | None],
        place: str,
    ) -> None:
        self.kind = kind
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.outs = outs
        self.place = place
        self.single = True  # whether the result is one tensor, not a sequence
        self.fresh: list[Name] = []
        self.metas: dict[Name, tuple[Any, ...]] = {}  # (size, stride, dtype, device) of what is fresh

    def uses(self) -> Iterator[Name]:
        """The names it reads."""
        yield from names_in(self.args)
        yield from names_in(list(self.kwargs.values()))
        if isinstance(self.function, Name):
            yield self.function


def names_in(value: Any) -> Iterator[Name]:
    """Every name in a structure."""
    if isinstance(value, Name):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from names_in(item)


class Operator:
    """How one operator of torch is called from Python: by its fastest spelling, into given memory where it can."""

    _known: dict[Any, Operator] = {}

    def __init__(self, overload: Any) -> None:
        self.overload = overload
        self.name = overload._schema.name.split("::")[1]
        self.call, self.text = _spelling(overload, self.name)
        self.parameters = {one.name for one in overload._schema.arguments}
        self.reshapes = torch.Tag.inplace_view in overload.tags  # squeeze_ and its kin change the tensor they are given
        self.writes = tuple(
            position
            for position, argument in enumerate(overload._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        self._out: dict[str, tuple[Callable[..., Any], str, str] | None] = {}

    @classmethod
    def of(cls, overload: Any) -> Operator:
        """The operator, made once."""
        if overload not in cls._known:
            cls._known[overload] = cls(overload)
        return cls._known[overload]

    def completed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, where the Python function may have other defaults than the operator: some losses do."""
        if not self.text.startswith("torch._C._nn.") and "reduction" not in self.parameters:
            return args, kwargs
        rest = [one for one in self.overload._schema.arguments[len(args) :] if one.name not in kwargs]
        more = tuple(one.default_value for one in rest if not one.kwarg_only) if not kwargs else ()
        return (*args, *more), {**kwargs, **{one.name: one.default_value for one in rest if one.kwarg_only}}

    def into(self, device: torch.device) -> tuple[Callable[..., Any], str, str] | None:
        """(function, its text, keyword) to have the result written into memory, where the device's kernel does that."""
        if device.type not in self._out:
            self._out[device.type] = self._find_out(device.type.upper())
        return self._out[device.type]

    def _find_out(self, key: str) -> tuple[Callable[..., Any], str, str] | None:
        if self.writes or len(self.overload._schema.returns) != 1:
            return None
        wanted = [(one.name, str(one.type)) for one in self.overload._schema.arguments]
        packet = getattr(torch.ops.aten, self.name, None)
        for overload_name in packet.overloads() if packet is not None else ():
            schema = getattr(packet, overload_name)._schema
            outs = [one for one in schema.arguments if one.is_out]
            rest = [(one.name, str(one.type)) for one in schema.arguments if not one.is_out]
            if len(outs) != 1 or rest != wanted:
                continue
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{self.name}.{overload_name}", key):
                return None
            if not self.text.startswith("torch.ops.") and outs[0].name == "out":
                return self.call, self.text, "out"
            handle = getattr(packet, overload_name)
            return handle._op, f"torch.ops.aten.{self.name}.{overload_name}", outs[0].name
        return None


def _spelling(overload: Any, name: str) -> tuple[Callable[..., Any], str]:
    """The quickest function that reaches the operator: one of torch's own, a method, or its handle."""
    for space, text in (
        (torch._C._VariableFunctions, "torch"),
        (torch._C._nn, "torch._C._nn"),
        (torch.Tensor, "torch.Tensor"),
    ):
        function = getattr(space, name, None)
        if function is not None and overload.namespace == "aten" and not hasattr(function, "__code__"):
            return function, f"{text}.{name}"
    return overload._op, f"torch.ops.{overload.namespace}.{name}.{overload._overloadname}"


class SizeError(CaptureError):
    """The size of a result depends on values: not even calling the op as a whole would help."""


class Whole:
    """An op, or a gradient rule, that a step calls as a whole. Its results come flat, and must have the same sizes."""

    def __init__(self, function: Callable[..., Any], result: Any, what: str) -> None:
        self.function = function
        self.single = isinstance(result, torch.Tensor)
        self.shapes = [one.shape if isinstance(one, torch.Tensor) else None for one in tree_leaves(result)]
        self.what = what

    def __call__(self, *args: Any) -> Any:
        """Run it."""
        result = self.function(*args)
        flat = tree_leaves(result)
        if [one.shape if isinstance(one, torch.Tensor) else None for one in flat] != self.shapes:
            raise CaptureError(f"the size of a result of {self.what}, depends on values: leave it outside the step")
        return result if self.single else flat
