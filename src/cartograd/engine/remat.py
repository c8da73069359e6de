"""`checkpoint`: keep only the inputs of a piece of computation, and compute it again when its gradient is asked for.

The piece is recorded as always, and its nodes stay in the graph; only the values they saved are not kept. The first
node of it that the backward pass reaches makes the whole piece run again, from detached inputs, with the random state
of the first time; the values that this run saves, in the order it saves them, are those that the nodes had saved. So
the walk never leaves the graph it is in: a piece is recomputed once a pass, however pieces are nested or bypassed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._pytree import tree_flatten, tree_unflatten

from cartograd.engine import modes
from cartograd.engine.graph import Leaf, Node, calling_place, describe_place, next_number
from cartograd.engine.primitive import Primitive, primitive
from cartograd.engine.stored import Saver, Stored, full_version, keep, require_version, saving, tensors_in
from cartograd.engine.surroundings import RandomState, autocast_state, autocasting
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.engine.undo import Changes
from cartograd.errors import CheckpointError

Result = TypeVar("Result")


def checkpoint(fn: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """``fn(*args, **kwargs)``, of which only the inputs are kept for the backward pass; the rest is computed again.

    What `fn` draws at random is drawn again; Parameters and tensors that `fn` uses without being given them get their
    gradients; running statistics are updated once. `fn` must do the same when it is called again.

    Parameters
    ----------
    fn : callable
        A function or a module. It runs a second time during the backward pass.
    *args, **kwargs
        What it is called with.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> y = cartograd.checkpoint(lambda t: t.exp().sin(), x)
    >>> [(saved.name, saved.bytes) for saved in cartograd.trace(y).saved()]
    [('checkpoint', 8)]
    >>> y.sum().backward()
    >>> x.grad
    Tensor([-2.4783,  3.3129])
    """
    if not torch.is_grad_enabled() or modes.watch.capture is not None:
        return fn(*args, **kwargs)
    segment = Segment(fn, args, kwargs, describe_place(*calling_place(sys._getframe(1))))
    with saving(Dropper(segment)), segment.changes:
        result = fn(*args, **kwargs)
    segment.changes.young.clear()
    segment.random = segment.random.drawn_from() if segment.random is not None else None
    return result


def checkpoint_sequential(module: Any, segments: int, x: Any) -> Any:
    """Run a sequence of layers as `segments` checkpoints of about as many layers each.

    Parameters
    ----------
    module : nn.Sequential or sequence of callables
        Each is called with the result of the one before.
    segments : int
        How many checkpoints to make of it, at least 1.
    x : Tensor
        What the first is called with.

    Examples
    --------
    >>> import cartograd, torch
    >>> layers = [torch.sin, torch.exp, torch.sin, torch.exp]
    >>> x = cartograd.tensor([1.0], requires_grad=True)
    >>> cartograd.checkpoint_sequential(layers, 2, x).backward()
    >>> x.grad
    Tensor([-1.7751])
    """
    layers = list(module.children()) if isinstance(module, torch.nn.Sequential) else list(module)
    if not isinstance(segments, int) or segments < 1:
        raise CheckpointError(f"segments must be a whole number of at least 1, got {segments!r}")
    segments = max(1, min(segments, len(layers)))
    ends = [len(layers) * (number + 1) // segments for number in range(segments)]
    for start, end in zip([0, *ends], ends, strict=False):
        x = checkpoint(_run_in_turn, layers[start:end], x)
    return x


def _run_in_turn(layers: list[Callable[[Any], Any]], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


class Segment:
    """One call of a checkpointed function: what it takes to run it again, and what running it again gave."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], place: str) -> None:
        self.fn = fn
        self.place = place
        self.lock = threading.RLock()
        self.saved: list[str] = []  # what was saved the first time, in words, one for each node
        self.values: dict[int, tuple[Any, ...]] = {}  # what was saved the second time, until it is fetched
        self.changes = Changes()  # what the first run changed, and how it was before
        self.autocast = autocast_state()
        self.recorded = any(isinstance(mode, modes.recording) for mode in _get_current_function_mode_stack())
        self.random: RandomState | None = RandomState()
        flat, self.structure = tree_flatten((args, kwargs))
        self.edges = [value._edge if type(value) is Tensor else None for value in flat]
        kept = [isinstance(v, (Tensor, torch.Tensor)) and not isinstance(v, torch.nn.Parameter) for v in flat]
        self.template = [None if one else value for value, one in zip(flat, kept, strict=True)]
        self.kinds = [type(value) is Tensor if one else None for value, one in zip(flat, kept, strict=True)]
        self.inputs = keep(
            tuple(value.data if type(value) is Tensor else value for value, one in zip(flat, kept, strict=True) if one),
            modes.watch.savers,
        )

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, at places in the graph of their own: nothing leads on from there."""
        values = iter(self.inputs.fetch(None))
        flat = list(self.template)
        for position, ours in enumerate(self.kinds):
            if ours is None:
                continue
            value = next(values)
            flat[position] = from_raw(value, _place_like(self.edges[position], value)) if ours else value
        args, kwargs = tree_unflatten(flat, self.structure)
        return args, kwargs

    def value(self, number: int) -> tuple[Any, ...]:
        """What node `number` of the segment saved; computes all of it again if it is not there."""
        with self.lock:
            if number not in self.values:
                self._run_again()
            return self.values.pop(number)

    def _run_again(self) -> None:
        args, kwargs = self.arguments()
        changes = Changes()
        saver = Collector(self, changes)
        try:
            with self._as_it_was(changes), saving(saver, alone=True):
                self.fn(*args, **kwargs)
        except Enough:
            pass
        except Exception as error:
            error.add_note(f"in the recomputation of the checkpoint at {self.place}")
            raise
        self.inputs.release(last=False)
        if saver.count < len(self.saved):
            raise CheckpointError(
                f"the function checkpointed at {self.place} did less when it was called again: it saved {saver.count} "
                f"values, {len(self.saved)} the first time; it must do the same every time"
            )

    @contextmanager
    def _as_it_was(self, changes: Changes) -> Iterator[None]:
        """Random state, modes and buffers of the first time; side effects undone afterwards."""
        before = modes.watch.replaying
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            stack.enter_context(autocasting(self.autocast))
            if self.recorded:
                stack.enter_context(modes.recording())
            if self.random is not None:
                stack.enter_context(self.random.restored())
            stack.enter_context(self.changes.undone())
            stack.enter_context(changes)
            modes.watch.replaying = True
            try:
                yield
            finally:
                modes.watch.replaying = before
                changes.restore()


@primitive()
def checkpointed(input: torch.Tensor) -> torch.Tensor:
    """Stands for whatever made an input of a checkpoint, while the checkpoint is computed again."""
    return input


@checkpointed.vjp("input")
def _(g: torch.Tensor) -> torch.Tensor:
    return g


def _place_like(edge: Any, value: torch.Tensor) -> Any:
    """A new edge of the same kind, with nothing behind it."""
    if edge is None or isinstance(edge, torch.Tensor):
        return edge
    if type(edge) is Leaf:
        return Leaf(value)
    node = object.__new__(Node)
    node.plan, node.parents, node.saved, node.version = checkpointed.plan((True,)), (Leaf(value),), (), 0
    node.number = next_number()
    node.shape, node.dtype, node.device = value.shape, value.dtype, edge.device
    node.code, node.instruction, node.watchers = edge.code, edge.instruction, None
    return node


class Dropper(Saver):
    """The first run: saved values are not kept, only counted."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    def run(self, op: Primitive, values: list[Any]) -> Any:
        """The forward is as always."""
        return self.segment.changes.run_op(op, values)

    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """The forward is as always."""
        return function(*args, **kwargs)

    def store(self, values: tuple[Any, ...], node: Node | None) -> Stored:
        """A promise to compute them again."""
        self.segment.saved.append(_words(values, node))
        return Dropped(self.segment, len(self.segment.saved) - 1, full_version(values))


class Collector(Saver):
    """The second run: saved values are given to the segment; it ends with the last that is wanted."""

    def __init__(self, segment: Segment, changes: Changes) -> None:
        self.segment = segment
        self.changes = changes
        self.count = 0

    def run(self, op: Primitive, values: list[Any]) -> Any:
        """The forward is as always."""
        return self.changes.run_op(op, values)

    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """The forward is as always."""
        return function(*args, **kwargs)

    def store(self, values: tuple[Any, ...], node: Node | None) -> Stored:
        """Compare with the first run, and keep for the node that waits."""
        segment, words = self.segment, _words(values, node)
        if segment.saved[self.count] != words:
            raise CheckpointError(
                f"the function checkpointed at {segment.place} did something else when it was called again: "
                f"{words} instead of {segment.saved[self.count]}; it must do the same every time"
            )
        segment.values[self.count] = values
        self.count += 1
        if self.count == len(segment.saved):
            raise Enough
        return Dropped(segment, self.count - 1, 0)


class Enough(BaseException):
    """Ends a recomputation: everything that was wanted is there. Not an error, so no ``except Exception`` sees it."""


class Dropped(Stored):
    """A value to be computed again."""

    __slots__ = ("number", "segment", "version")

    def __init__(self, segment: Segment, number: int, version: int) -> None:
        self.segment = segment
        self.number = number
        self.version = version

    def fetch(self, node: Node | None) -> tuple[Any, ...]:
        """Compute the segment again, unless that has been done for another of its nodes."""
        values = self.segment.value(self.number)
        require_version(full_version(values), self.version, node)
        return values

    def release(self, last: bool) -> None:
        """What was fetched is not kept here."""

    def held(self, names: list[str]) -> list[tuple[str, Any]]:
        """The inputs of the segment, and what of it is there just now."""
        inputs = [("checkpoint", value) for _, value in self.segment.inputs.held([])]
        return [*inputs, ("recomputed", self.segment.values.get(self.number, ()))]


def _words(values: tuple[Any, ...], node: Node | None) -> str:
    shapes = ", ".join(f"{tuple(one.shape)} {one.dtype}".replace("torch.", "") for one in tensors_in(values))
    return f"{'an inner checkpoint' if node is None else node.name} of {shapes}"
