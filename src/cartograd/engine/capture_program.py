"""One recording of a captured step: made, checked, and replayed."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from cartograd.engine.capture_conditions import Conditions, Modules
from cartograd.engine.capture_cuda import graphed
from cartograd.engine.capture_lines import Line, Name, Operator
from cartograd.engine.capture_record import Recorder
from cartograd.engine.capture_session import leaf_of, put_back, recording
from cartograd.engine.capture_source import Source
from cartograd.engine.graph import CPU, Node, calling_place, next_number
from cartograd.engine.primitive import primitive
from cartograd.engine.surroundings import RandomState
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import CaptureError

logger = logging.getLogger("cartograd.engine")


@primitive()
def captured_step(input: torch.Tensor) -> torch.Tensor:
    """Stands for the graph of what a captured step returns, which was not recorded."""
    return input


@captured_step.vjp("input")
def _(g: torch.Tensor) -> torch.Tensor:
    raise CaptureError(
        "a captured step records no graph, so what it returns cannot be differentiated: "
        "call backward() inside the captured function"
    )


_NO_GRAPH = captured_step.plan((True,)).stored()


class Program:
    """The source of one recording, what it is bound to, and the conditions under which it holds."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        recorder = Recorder(Modules(fn, args))
        flat, _ = tree_flatten(args)
        inputs: list[Name] = []
        self._flat: list[Any] = []
        for value in flat:
            if isinstance(value, (Tensor, torch.Tensor)):
                self._add_input(recorder, value, inputs)
        state = RandomState()
        with recording(recorder):
            result = fn(*args)
            recorder.refuse_torchs_graph()
            recorder.refuse_replaced()
            self._describe(recorder, result)
            expected = _outcome(recorder, [one for one in self._flat if isinstance(one, torch.Tensor)])
        self._flat = [None if isinstance(one, torch.Tensor) else one for one in self._flat]
        leaves = [leaf for leaf, _ in recorder.gradients.values() if id(leaf) not in recorder.leaves]
        looked = list(recorder.had_gradient.values())
        self.still_holds = Conditions(recorder.modules, recorder.parameters.values(), leaves, looked).hold
        self._compile(recorder, inputs, args, expected, state)

    @staticmethod
    def _add_input(recorder: Recorder, value: Any, inputs: list[Name]) -> None:
        leaf = leaf_of(value)
        name = recorder.new_name("i")
        recorder.give(value.data if isinstance(value, Tensor) else value, name)
        inputs.append(name)
        if leaf is not None:
            recorder.leaves[id(leaf)] = recorder.new_name("e")

    def _describe(self, recorder: Recorder, result: Any) -> None:
        """What is returned: names of tensors, and whether they are ours and required grad; other values as they are."""
        flat, self._structure = tree_flatten(result)
        self.outputs: list[Name] = []
        self._kinds: list[int] = []  # 0 a value, 1 torch's tensor, 2 ours, 3 ours with a graph
        for value in flat:
            kind = 0
            if isinstance(value, Tensor):
                kind = 3 if isinstance(value._edge, Node) else 2
                value = value.data
            elif isinstance(value, torch.Tensor):
                kind = 1
                if value.grad_fn is not None:
                    raise CaptureError(
                        f"the captured function returns a tensor of shape {tuple(value.shape)} that is part of a graph "
                        "of torch's own, which a replay would not build: return .detach() of it"
                    )
            if kind:
                self.outputs.append(recorder.name_of(value))
            self._kinds.append(kind)
            self._flat.append(value)
        self._alone = (
            len(flat) == 1 and (self._kinds[0] > 0 or flat[0] is result) and not isinstance(result, (tuple, list, dict))
        )

    def _compile(self, recorder: Recorder, inputs: list[Name], args: Any, expected: Any, state: RandomState) -> None:
        """Make the function; if its quick form does not give the same bits, the exact one."""
        names = [*inputs, *recorder.leaves.values()]
        exact, avoided = False, frozenset[Operator]()
        while True:
            source = Source(recorder, recorder.lines, names, self.outputs, exact, avoided)
            self._function, self._file = source.compile()
            self._lines = source.at
            self.listing = _header(source, recorder) + source.text
            try:
                same = all(self._replays_to(recorder, args, expected, state) for _ in range(2))
            except Exception as error:
                if exact:
                    raise
                culprit = self._culprit(error, avoided)
                exact = culprit is None
                avoided |= {culprit} if culprit is not None else set()
                continue
            if same:
                self._use_cuda_graph(recorder, names, args, expected, state)
                return
            if exact:
                break
            exact = True
        raise CaptureError(
            "a replay of the captured function does not give the bits that the function gave: it depends on something "
            "that is not among its arguments, and changes from call to call"
        )

    def _replays_to(self, recorder: Recorder, args: Any, expected: Any, state: RandomState) -> bool:
        after = RandomState()
        try:
            state.set()
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*was resized.*")  # a kernel that does not fit its buffer
                outputs = self._function(*self._bound(args))
            found = _outcome(recorder, list(outputs))
        finally:
            put_back(recorder)
            after.set()
        return len(found) == len(expected) and all(map(_same_bits, found, expected))

    def _bound(self, args: tuple[Any, ...]) -> list[Any]:
        """The tensors among the arguments, then the leaves among them."""
        tensors, leaves = [], []
        flat: Any = args
        for value in args:
            if type(value) is not Tensor:
                flat = tree_flatten(args)[0]
                break
        for value in flat:
            if type(value) is Tensor:
                tensors.append(value.data)
                if value._edge is not None:
                    leaves.append(leaf_of(value))
            elif isinstance(value, torch.Tensor):
                tensors.append(value)
        return tensors + leaves if leaves else tensors

    def run(self, args: tuple[Any, ...]) -> Any:
        """Replay the step on these arguments."""
        try:
            outputs = self._function(*self._bound(args))
        except Exception as error:
            self._explain(error)
            raise
        if self._alone and self._kinds[0]:
            return self._wrapped(outputs[0], self._kinds[0])
        found = iter(outputs)
        flat = [
            self._wrapped(next(found), kind) if kind else value
            for kind, value in zip(self._kinds, self._flat, strict=True)
        ]
        return tree_unflatten(flat, self._structure)

    @staticmethod
    def _wrapped(tensor: torch.Tensor, kind: int) -> Any:
        if tensor.requires_grad:
            tensor = tensor.detach()
        if kind == 1:
            return tensor
        return from_raw(tensor, _no_graph(tensor) if kind == 3 else None)

    def _explain(self, error: Exception) -> None:
        """Say which op of the user's an error in the replay comes from."""
        line = self._line_of(error)
        if line is not None:
            error.add_note(f"in a captured step: {line.place}")

    def _line_of(self, error: BaseException) -> Line | None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._file:
                return self._lines.get(trace.tb_lineno)
            trace = trace.tb_next
        return None

    def _culprit(self, error: BaseException, avoided: frozenset[Operator]) -> Operator | None:
        """The operator that did not like its buffer."""
        line = self._line_of(error)
        if line is None or line.kind != "kernel" or line.function in avoided:
            return None
        operator: Operator = line.function
        return operator

    def _use_cuda_graph(self, recorder: Recorder, names: list[Name], args: Any, expected: Any, state: Any) -> None:
        """On a CUDA device, replay the kernels as one CUDA graph."""
        if not any(one.device.type == "cuda" for one in self._bound(args) if isinstance(one, torch.Tensor)):
            return
        plain = self._function
        try:
            self._function = graphed(recorder, names, self.outputs, self._bound(args))
            if self._replays_to(recorder, args, expected, state):
                return
            logger.info("the CUDA graph of a captured step gives other bits; its source is replayed instead")
        except (RuntimeError, CaptureError) as error:
            logger.info("a captured step has no CUDA graph, its source is replayed instead: %s", error)
            put_back(recorder)
        self._function = plain


def _no_graph(tensor: torch.Tensor) -> Node:
    node = object.__new__(Node)
    node.plan, node.parents, node.saved, node.version = _NO_GRAPH, (), (), 0
    node.number = next_number()
    node.shape, node.dtype = tensor.shape, tensor.dtype
    node.device = CPU if tensor.is_cpu else tensor.device
    node.code, node.instruction = calling_place(sys._getframe(3))
    node.watchers = None
    return node


def _outcome(recorder: Recorder, outputs: list[torch.Tensor]) -> list[Any]:
    """Copies of all that a step has made or changed: what it returns, gradients, memory that was there before."""
    with torch.no_grad(), recorder.silence(), _disable_current_modes():
        found: list[Any] = [one.detach().clone() for one in outputs]
        for leaf, _ in recorder.gradients.values():
            gradient = leaf.grad
            gradient = gradient.data if isinstance(gradient, Tensor) else gradient
            found.append(None if gradient is None else gradient.detach().clone())
        found += [storage.clone() for storage, _ in recorder.before.values()]
    return found


def _same_bits(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, torch.Tensor):
        if one.layout is not torch.strided:
            return torch.equal(one.to_dense(), other.to_dense())
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        one, other = one.contiguous().untyped_storage(), other.contiguous().untyped_storage()
    bytes_of = [torch.empty(0, dtype=torch.uint8, device=part.device).set_(part) for part in (one, other)]
    return torch.equal(*bytes_of)


def _header(source: Source, recorder: Recorder) -> str:
    rows = []
    for name, value in recorder.constants.items():
        if isinstance(value, torch.Tensor):
            kind = "Parameter" if isinstance(value, torch.nn.Parameter) else "tensor"
            rows.append(f"# {name}: {kind} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}\n")
        else:
            rows.append(f"# {name}: {type(value).__name__}\n")
    size = sum(torch.Size(size).numel() * dtype.itemsize for size, _, dtype, _ in source.buffers.made)
    buffers = f"# {len(source.buffers.of)} results in {len(source.buffers.made)} buffers of {size} bytes in all\n"
    return "".join(rows) + buffers
