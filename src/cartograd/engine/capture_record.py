"""Recording a step: everything torch is asked to do while a function runs once, with names for all tensors.

The function runs as it always does, on real values. Below torch's own dispatch every operator it calls, in its forward,
in the backward pass and in hooks, becomes a line. Above it, what is no operator is watched for: the ``.grad`` of
Parameters, steps of optimisers, and whatever turns a tensor into Python numbers, which is refused. Afterwards
everything that the function has changed is put back: recording is not a step.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from cartograd.engine.capture_conditions import Modules
from cartograd.engine.capture_lines import Line, Name, Operator, SizeError, Whole
from cartograd.engine.fallback import TorchCall
from cartograd.engine.graph import Node, calling_place, describe_place, next_number
from cartograd.engine.tensor import Tensor
from cartograd.errors import CaptureError


class Recorder:
    """What is known of a step while it is recorded."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.lines: list[Line] = []
        self.constants: dict[Name, Any] = {}  # Parameters, buffers, leaves, functions: the same object every time
        self.roots: dict[Name, Name] = {}  # a view -> the name of what it is a view of
        self.had_gradient: dict[int, tuple[Any, bool]] = {}  # leaves whose .grad was looked at first, and if it was
        self.parameters: dict[int, torch.Tensor] = {}
        self._had: dict[
            int, tuple[Any, int | None]
        ] = {}  # the gradients of Parameters when they were met, unseen by Python
        self.gradients: dict[int, Any] = {}  # leaf -> its .grad before, for those that were touched
        self.emptied: set[int] = set()  # leaves whose .grad is known to be None at this point
        self.states: list[tuple[Any, dict[Any, Any]]] = []
        self.silent = 0
        self.where: str | None = None  # the op whose forward or gradient is running
        self.leaves: dict[int, Name] = {}  # of inputs that are leaves: they differ from call to call
        self.start = next_number()
        self._names: dict[int, dict[Any, Name]] = {}  # storage -> layout -> name
        self._storages: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._young: set[int] = set()
        self.before: dict[int, tuple[Any, Any]] = {}  # memory that was there and was changed, and a copy of it
        self._constants: dict[int, Name] = {}
        self._journal: list[tuple[int, Any]] = []  # what was named, in order
        self._count = {"t": 0, "c": 0, "i": 0, "e": 0}

    # Names

    def new_name(self, kind: str) -> Name:
        """The next name of its kind: t for what is computed, c for constants, i for inputs, e for their leaves."""
        self._count[kind] += 1
        return Name(f"{kind}{self._count[kind] - 1}")

    def constant(self, value: Any) -> Name:
        """A name for an object that is the same at every replay."""
        known = self.leaves.get(id(value)) or self._constants.get(id(value))
        if known is None:
            known = self._constants[id(value)] = self.new_name("c")
            self.constants[known] = value
        return known

    def name_of(self, tensor: torch.Tensor) -> Name:
        """The name of a tensor; one that nothing has made yet is a constant."""
        if isinstance(tensor, torch.nn.Parameter):
            self._meet(tensor)
        storage, layout = self._place(tensor)
        known = self._names.get(storage, {}).get(layout)
        if known is not None:
            return known
        if storage in self._young:
            raise CaptureError(
                f"a tensor of shape {tuple(tensor.shape)} was made in a way that cannot be replayed{self.at()}"
            )
        name = self.constant(tensor)
        self._remember(tensor, name, self._root_in(storage) or name)
        return name

    def _meet(self, parameter: torch.nn.Parameter) -> None:
        """A Parameter is used: remember what gradient it has."""
        if id(parameter) not in self.parameters:
            self.parameters[id(parameter)] = parameter
            with self.silence():
                gradient = parameter.grad
                self._had[id(parameter)] = (gradient, None if gradient is None else gradient._version)

    def refuse_torchs_graph(self) -> None:
        """Raise if torch's own autograd has stored a gradient: it does so unseen."""
        for key, parameter in self.parameters.items():
            if key in self.gradients:
                continue
            with self.silence():
                now, (before, version) = parameter.grad, self._had[key]
                if now is not before or (now is not None and now._version != version):
                    parameter.grad = before
                    raise CaptureError(
                        f"torch's own autograd has stored a gradient in a Parameter of shape {tuple(parameter.shape)}, "
                        "which a replay would not do: give the function cartograd.tensor(...) to compute with"
                    )

    def refuse_replaced(self) -> None:
        """Raise if the step has read a tensor of a module and put another in its place: a replay would not."""
        read = {self._place(one)[0] for one in self.constants.values() if isinstance(one, torch.Tensor)}
        for name, tensor in self.modules.replaced():
            if self._place(tensor)[0] in read:
                raise CaptureError(
                    f"the captured function reads {name} and then sets it to another tensor, which a replay would not "
                    "do: change it in place, for example with .copy_()"
                )

    def _root_in(self, storage: int) -> Name | None:
        for name in self._names.get(storage, {}).values():
            return self.roots[name]
        return None

    def give(self, tensor: torch.Tensor, name: Name) -> None:
        """Call a tensor by this name from now on."""
        storage, _ = self._place(tensor)
        self._remember(tensor, name, self._root_in(storage) or name)

    def _remember(self, tensor: torch.Tensor, name: Name, root: Name) -> None:
        storage, layout = self._place(tensor)
        if storage not in self._names:
            self._names[storage] = {}
            if tensor.layout is torch.strided:
                held = tensor.untyped_storage()
                self._storages[storage] = weakref.ref(held, lambda _: self._forget(storage))
            else:
                self._kept.append(tensor)
        self._names[storage][layout] = name
        self._journal.append((storage, layout))
        self.roots[name] = root

    def _forget(self, storage: int) -> None:
        self._names.pop(storage, None)
        self._storages.pop(storage, None)
        self._young.discard(storage)

    @staticmethod
    def _place(tensor: torch.Tensor) -> tuple[int, Any]:
        if tensor.layout is not torch.strided:
            return id(tensor), "whole"
        layout = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        return tensor.untyped_storage()._cdata, layout

    # Lines

    def at(self) -> str:
        """Where the user is, for messages and for the comments of the source."""
        return f", at {describe_place(*calling_place(sys._getframe(1)))}"

    def refuse(self, what: str) -> CaptureError:
        """The error for something that depends on values."""
        return CaptureError(
            f"the captured function {what}{self.at()}: what it does then may depend on the values it computes, and a "
            "replay would not notice. Compute with tensors instead (torch.where), or leave that part outside."
        )

    def operator(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator of torch, and write a line for it."""
        if overload is torch.ops.aten.lift_fresh.default:
            return self._made_by_python(args[0])
        operator = Operator.of(overload)
        if not self.silent:
            self._refuse_dynamic(overload, args)
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        self._snapshot(operator, args, kwargs, given)
        full = operator.completed(args, kwargs)
        named = None if self.silent else (self._named(full[0]), {key: self._named(one) for key, one in full[1].items()})
        result = overload(*args, **kwargs)
        made = list(result) if isinstance(result, (tuple, list)) else [result]
        flat = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
        memory = {self._place(one)[0] for one in given}
        self._young |= {
            place for place in (self._place(one)[0] for one in flat) if place not in memory | self._names.keys()
        }
        if named is not None:
            self._write(operator, named, result, made, memory)
        return result

    def _write(self, operator: Operator, named: Any, result: Any, made: list[Any], memory: set[int]) -> None:
        place = self.where or self.at().removeprefix(", at ")
        line = Line("kernel", operator, named[0], named[1], [], place)
        line.single = not isinstance(result, (tuple, list))
        changed, before = bool(operator.writes), len(self._journal)
        for one in made:
            line.outs.append(self._out(one, line, memory) if isinstance(one, torch.Tensor) else None)
        if changed or len(self._journal) > before or not made:  # a view that is known already needs no line
            self.lines.append(line)

    def _made_by_python(self, tensor: torch.Tensor) -> torch.Tensor:
        """``torch.tensor(numbers)``: a copy of it at every replay, for it may be changed in place."""
        self._young.add(self._place(tensor)[0])
        if not self.silent:
            constant = self.constant(tensor.clone())
            self.roots[constant] = constant
            line = Line("kernel", Operator.of(torch.ops.aten.clone.default), (constant,), {}, [], self.at()[5:])
            line.outs.append(self._out(tensor, line, set()))
            self.lines.append(line)
        return tensor

    def _out(self, tensor: torch.Tensor, line: Line, memory: set[int]) -> Name:
        storage, layout = self._place(tensor)
        known = self._names.get(storage, {}).get(layout)
        if known is not None:
            return known
        name = self.new_name("t")
        self.give(tensor, name)
        if storage not in memory:
            line.fresh.append(name)
            line.metas[name] = (tensor.size(), tensor.stride(), tensor.dtype, tensor.device)
        return name

    def _named(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.name_of(value)
        if isinstance(value, (tuple, list)):
            return (
                type(value)(map(self._named, value)) if type(value) in (tuple, list) else list(map(self._named, value))
            )
        if value is None or type(value) in (bool, int, str) or (type(value) is float and value - value == 0):
            return value
        return self.constant(value)

    def _refuse_dynamic(self, overload: Any, args: tuple[Any, ...]) -> None:
        tags = overload.tags
        if torch.Tag.data_dependent_output in tags:
            raise self.refuse("reads a value of a tensor")
        if torch.Tag.dynamic_output_shape in tags:
            indices = tree_leaves(args[1]) if overload is torch.ops.aten.index.Tensor else None
            if indices is None or any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices):
                name = overload._schema.name.split("::")[1]
                raise SizeError(*self.refuse(f"calls {name}, whose result's size depends on values").args)

    def _snapshot(self, operator: Operator, args: Any, kwargs: dict[str, Any], given: list[torch.Tensor]) -> None:
        """Copy memory that was there before, before it is changed."""
        written = list(given) if "batch_norm" in operator.name else []  # these write running statistics unannounced
        names = [argument.name for argument in operator.overload._schema.arguments]
        for position in operator.writes:
            value = args[position] if position < len(args) else kwargs.get(names[position])
            written += [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
        for one in written:
            if one.layout is torch.strided:
                storage = one.untyped_storage()
                if storage._cdata not in self._young and storage._cdata not in self.before:
                    self.before[storage._cdata] = (storage, storage.clone())

    # Whole ops, where what they do inside cannot be followed

    def whole(self, function: Callable[..., Any], args: tuple[Any, ...], what: str) -> Any:
        """Run an op or a gradient rule; as one line, if it leaves torch inside."""
        before, self.where = self.where, what
        start, named, constants = len(self.lines), len(self._journal), len(self.constants)
        try:
            result = function(*args)
            if not self.silent and not self._followed(args, result, constants):
                raise CaptureError(f"{what} computes outside torch in a way that cannot be replayed")
        except SizeError:
            raise
        except CaptureError:
            if self.silent or any(isinstance(one, TorchCall) for one in tree_leaves(args)):
                raise
            del self.lines[start:]
            for storage, layout in self._journal[named:]:
                self._names.get(storage, {}).pop(layout, None)
            result = self._as_one_line(function, args, what)
        finally:
            self.where = before
        return result

    def _followed(self, args: Any, result: Any, constants: int) -> bool:
        """Whether all that went into the result is known: no tensor came from anywhere but torch and the arguments."""
        memory = {self._place(one)[0] for one in tree_leaves(args) if isinstance(one, torch.Tensor)}
        appeared = [one for one in list(self.constants.values())[constants:] if isinstance(one, torch.Tensor)]
        made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        return all(self._place(one)[0] in memory for one in appeared) and all(map(self._is_known, made))

    def _is_known(self, tensor: torch.Tensor) -> bool:
        storage, layout = self._place(tensor)
        return layout in self._names.get(storage, {})

    def _as_one_line(self, function: Callable[..., Any], args: tuple[Any, ...], what: str) -> Any:
        named = self._named(args)
        with self.silence():
            result = function(*args)
        line = Line("op", self.constant(Whole(function, result, what)), named, {}, [], what)
        line.single = isinstance(result, torch.Tensor)
        memory = {self._place(one)[0] for one in tree_leaves(args) if isinstance(one, torch.Tensor)}
        for one in [result] if line.single else tree_leaves(result):
            line.outs.append(self._out(one, line, memory) if isinstance(one, torch.Tensor) else None)
        self.lines.append(line)
        return result

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Nothing in the block becomes a line; what it changes is put back all the same."""
        self.silent += 1
        try:
            yield
        finally:
            self.silent -= 1

    # Gradients

    def touch(self, leaf: Any) -> None:
        """Remember the gradient a leaf had before."""
        if id(leaf) not in self.gradients:
            with self.silence():
                self.gradients[id(leaf)] = (leaf, leaf.grad)

    def look(self, leaf: Any) -> None:
        """Python has looked at ``leaf.grad``: whether there is one decides what it does next."""
        if id(leaf) not in self.gradients and id(leaf) not in self.had_gradient:
            with self.silence():
                self.had_gradient[id(leaf)] = (leaf, leaf.grad is not None)
        with self.silence():
            found = leaf.grad
        data = found.data if isinstance(found, Tensor) else found
        if data is not None and not self._is_known(data):
            name = self.new_name("t")
            self.give(data, name)
            self.lines.append(Line("python", "get", (self.constant(leaf),), {}, [name], self.at()[5:]))

    def put(self, leaf: Any, value: Any) -> None:
        """``leaf.grad = value`` was written."""
        self.touch(leaf)
        data = value.data if isinstance(value, Tensor) else value
        named = None if data is None else self.name_of(data)
        self.lines.append(Line("python", "put", (self.constant(leaf), named), {}, [], self.at()[5:]))
        (self.emptied.add if value is None else self.emptied.discard)(id(leaf))

    def accumulate(self, leaf: Any, total: torch.Tensor, add: Callable[[], None]) -> None:
        """The backward pass adds `total` to the gradient of a leaf; `add` does it."""
        self.touch(leaf)
        if isinstance(leaf, torch.nn.Parameter):
            self._meet(leaf)
        named = self.name_of(total)
        with self.silence():
            add()
            gradient = leaf.grad.data if isinstance(leaf.grad, Tensor) else leaf.grad
        stolen = gradient.layout is torch.strided and self._place(gradient)[0] == self._place(total)[0]
        if id(leaf) in self.emptied and stolen:
            self.lines.append(Line("python", "put", (self.constant(leaf), named), {}, [], "backward"))
        else:
            name = self.new_name("t")
            self.lines.append(Line("python", "add", (self.constant(leaf), named), {}, [name], "backward"))
            self.give(gradient, name)
        self.emptied.discard(id(leaf))

    # What the engine calls

    def run(self, op: Any, values: list[Any]) -> Any:
        """The forward of one of our ops."""
        return self.whole(op.run, (values,), f"{op.name}{self.at()}")

    def rules(self, node: Node, total: Any, saved: tuple[Any, ...]) -> list[Any]:
        """The gradients of one node."""
        if node.number < self.start:
            raise CaptureError(
                f"the captured function differentiates {node.name} (called at {node.where()}), which ran before it was "
                "called: compute it inside, or pass in a detached value"
            )
        what = f"backward of {node.name}, at {node.where()}"
        return list(self.whole(node.plan.gradients, (total, saved), what))
