"""From the lines of a recorded step to source: straight on, without a graph, into memory that is used again.

A tensor that nobody can see afterwards is written into a buffer. A buffer is free again after the last line that reads
it, or a view of it; the next tensor of the same size and layout takes it. So a replay allocates only what leaves it.
"""

from __future__ import annotations

import itertools
import keyword
import linecache
from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine.accumulate import accumulate
from cartograd.engine.capture_lines import Line, Name, Operator, names_in
from cartograd.engine.capture_record import Recorder
from cartograd.engine.graph import Leaf
from cartograd.engine.tensor import from_raw

_next_file: Callable[[], int] = itertools.count(1).__next__


def add_gradient(leaf: Any, total: torch.Tensor, alone: bool) -> torch.Tensor:
    """Add to a leaf's gradient; `alone` says that nobody else will read `total`. The gradient it has now."""
    accumulate(leaf, total, alone, create_graph=False)
    gradient = leaf.grad
    return gradient.data if type(leaf) is Leaf else gradient


class Buffers:
    """Which results are written into which buffer."""

    def __init__(
        self, lines: list[Line], roots: dict[Name, Name], escaping: set[Name], avoided: frozenset[Operator]
    ) -> None:
        self.lines = lines
        self.avoided = avoided  # operators whose kernels want memory of another size than their result has
        self.roots = roots
        self.last: dict[Name, int] = {}  # the last line that reads a piece of memory
        for number, line in enumerate(lines):
            for name in line.uses():
                self.last[roots.get(name, name)] = number
        self.escaping = escaping
        self.made: list[tuple[Any, ...]] = []  # (size, stride, dtype, device) of each buffer
        self.of: dict[Name, Name] = {}  # result -> buffer
        self._assign()

    def _assign(self) -> None:
        free: dict[tuple[Any, ...], list[Name]] = {}
        ends: dict[int, list[Name]] = {}
        for number, line in enumerate(self.lines):
            name = self._can_take(line)
            if name is not None:
                meta = line.metas[name]
                waiting = free.setdefault(meta, [])
                if waiting:
                    buffer = waiting.pop()
                else:
                    buffer = Name(f"b{len(self.made)}")
                    self.made.append(meta)
                self.of[name] = buffer
                ends.setdefault(self.last.get(name, number), []).append(name)
            for name in ends.pop(number, ()):
                free[self.made[int(self.of[name][1:])]].append(self.of[name])

    def _can_take(self, line: Line) -> Name | None:
        if line.kind != "kernel" or not line.single or len(line.fresh) != 1 or line.fresh[0] in self.escaping:
            return None
        device = line.metas[line.fresh[0]][3]
        can = line.function not in self.avoided and line.function.into(device) is not None
        return line.fresh[0] if can else None


class Source:
    """The text of a program, and what its names stand for."""

    def __init__(
        self,
        recorder: Recorder,
        lines: list[Line],
        inputs: list[Name],
        outputs: list[Name],
        exact: bool = False,
        avoided: frozenset[Operator] = frozenset(),
    ) -> None:
        self.recorder = recorder
        self.lines = lines
        self.exact = exact  # every operator by its own handle, and no buffers
        self.at: dict[int, Line] = {}  # by the number of the line in the file
        self.bound: dict[str, Any] = {str(name): value for name, value in recorder.constants.items()}
        self.bound |= {"below_autograd": torch._C._AutoDispatchBelowAutograd, "wrapped": from_raw}
        self.bound["add_gradient"] = add_gradient
        roots = recorder.roots
        self.returned = {roots.get(name, name) for name in outputs}
        self.readers: dict[Name, list[Line]] = {}  # of each piece of memory, who keeps it beyond the step
        for line in self.lines:
            kept = line.kind != "kernel" or line.function.reshapes  # a buffer must keep its shape
            for name in names_in(line.args) if kept else ():
                self.readers.setdefault(roots.get(name, name), []).append(line)
        escaping = self.returned | self.readers.keys()
        self.buffers = Buffers([] if exact else self.lines, roots, escaping, avoided)
        for number, (size, stride, dtype, device) in enumerate(self.buffers.made):
            self.bound[f"b{number}"] = torch.empty_strided(size, stride, dtype=dtype, device=device)
        self._functions: dict[int, str] = {}
        self.signature = inputs
        self.defined = {*self.signature, *recorder.constants}
        self.text = self._text(outputs)

    def _text(self, outputs: list[Name]) -> str:
        body: list[str] = []
        inside = False
        dying = self._dying(set(outputs))
        for number, line in enumerate(self.lines):
            steps = line.kind == "python" and line.function == "step"
            if inside == steps:
                inside = not steps
                if inside:
                    body.append("    with below_autograd():")
            indent = "        " if inside else "    "
            statement = self._statement(line)
            body.append(f"{indent}{statement}  # {line.place}")
            self.at[len(body) + 2] = line  # `make` and `step` stand before
            if dying.get(number):
                body.append(f"{indent}del {', '.join(dying[number])}")
        result = "".join(f"{self._named(name)}, " for name in outputs)
        return "\n".join([f"def step({', '.join(self.signature)}):", *body, f"    return ({result})", ""])

    def _dying(self, outputs: set[Name]) -> dict[int, list[str]]:
        """After which lines which variables are not needed any more."""
        last: dict[Name, int] = {}
        made: set[Name] = set()
        for number, line in enumerate(self.lines):
            for name in [*line.uses(), *(one for one in line.outs if one is not None)]:
                last[name] = number
            made |= {one for one in line.outs if one is not None}
        found: dict[int, list[str]] = {}
        for name, number in last.items():
            if name in made - outputs - self.defined and name not in self.buffers.of:
                found.setdefault(number, []).append(name)
        return found

    def _statement(self, line: Line) -> str:
        if line.kind == "python":
            return self._python(line)
        if line.kind == "op":
            call = f"{line.function}({', '.join(map(self._named, line.args))})"
            return self._assigned(line, call)
        operator: Operator = line.function
        arguments = [self._named(one) for one in line.args]
        arguments += [f"{key}={self._named(one)}" for key, one in line.kwargs.items()]
        target = self.buffers.of.get(line.fresh[0]) if line.fresh else None
        if target is not None:
            into = operator.into(line.metas[line.fresh[0]][3])
            assert into is not None
            self.defined.add(line.fresh[0])
            return f"{self._function(into[0], operator.name)}({', '.join(arguments)}, {into[2]}={target})"
        function = operator.overload._op if self.exact else operator.call
        return self._assigned(line, f"{self._function(function, operator.name)}({', '.join(arguments)})")

    def _assigned(self, line: Line, call: str) -> str:
        targets = []
        for one in line.outs:
            targets.append("_" if one is None or one in self.defined else one)
            if one is not None:
                self.defined.add(one)
        if all(target == "_" for target in targets):
            return call
        return f"{', '.join(targets)}{',' if not line.single and len(targets) == 1 else ''} = {call}"

    def _python(self, line: Line) -> str:
        leaf = line.args[0]
        ours = leaf in self.recorder.leaves.values() or isinstance(self.bound.get(leaf), Leaf)
        if line.function == "step":
            return f"{leaf}.step()"
        if line.function == "put":
            value = self._named(line.args[1])
            return f"{leaf}.grad = wrapped({value})" if ours and value != "None" else f"{leaf}.grad = {value}"
        call = f"{leaf}.grad{'.data' if ours else ''}"
        if line.function == "add":
            root = self.recorder.roots.get(line.args[1], line.args[1])
            alone = root not in self.returned and self.readers.get(root) == [line]
            call = f"add_gradient({leaf}, {self._named(line.args[1])}, {alone})"
        return self._assigned(line, call)

    def _named(self, value: Any) -> str:
        if isinstance(value, Name):
            return self.buffers.of.get(value, value)
        if isinstance(value, list):
            return f"[{', '.join(map(self._named, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(f'{self._named(one)}, ' for one in value)})"
        return repr(value)

    def _function(self, function: Callable[..., Any], name: str) -> str:
        known = self._functions.get(id(function))
        if known is None:
            known = name if name.isidentifier() and not keyword.iskeyword(name) else "f"
            while known in self.bound or known in self.defined or (known[:1] in "tcibe" and known[1:].isdigit()):
                known += "_"
            self._functions[id(function)] = known
            self.bound[known] = function
        return known

    def compile(self) -> tuple[Callable[..., tuple[Any, ...]], str]:
        """The function, and the name of the file that its lines are said to be in."""
        names = list(self.bound)
        file = f"<captured step {_next_file()}>"
        inner = "".join(f"    {line}\n" for line in self.text.splitlines())
        text = f"def make({', '.join(names)}):\n{inner}    return step\n"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        space: dict[str, Any] = {}
        exec(compile(text, file, "exec"), space)
        return space["make"](*self.bound.values()), file
