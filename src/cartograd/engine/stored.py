"""Where the values that a node saved are, if not simply in the node.

Ordinarily ``node.saved`` is the tuple of them. Inside `saved_tensors_hooks`, `checkpoint` and `memory_budget` the
innermost *saver* decides what stands there instead: something `Stored`, which gives the values back when the backward
pass asks for them. Nodes that saved no tensor are left alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.graph import Node
from cartograd.engine.plan import Plan
from cartograd.engine.primitive import Primitive
from cartograd.errors import InplaceError


class Stored(ABC):
    """Stands in ``node.saved`` for values that are kept elsewhere, in another form, or not at all."""

    __slots__ = ()

    @abstractmethod
    def fetch(self, node: Node | None) -> tuple[Any, ...]:
        """The values, as they were saved. Raises if one of them was changed in place since."""

    @abstractmethod
    def release(self, last: bool) -> None:
        """The values fetched are not needed any more; with `last`, they will never be asked for again."""

    @abstractmethod
    def held(self, names: list[str]) -> list[tuple[str, Any]]:
        """What memory is held right now, for `graph.saved()`; `names` are those of the saved values."""


class Saver(ABC):
    """Decides how the values that nodes save are kept."""

    keeper: Any = None
    """What ``node.plan.keeper`` of the nodes shall be."""
    _plans: dict[Plan, Plan]

    def plan_for(self, plan: Plan) -> Plan:
        """The plan of a node whose values this saver keeps."""
        if self.keeper is None:
            return plan.stored()
        if not hasattr(self, "_plans"):
            self._plans = {}
        made = self._plans.get(plan)
        if made is None:
            made = self._plans[plan] = plan.stored(self.keeper)
        return made

    @abstractmethod
    def run(self, op: Primitive, values: list[Any]) -> Any:
        """Run the forward of `op` on plain values."""

    @abstractmethod
    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a function that has no rule of ours, under torch's autograd."""

    @abstractmethod
    def store(self, values: tuple[Any, ...], node: Node | None) -> Stored:
        """Keep the values that `node` saved (or, where it is `None`, the inputs of an inner checkpoint)."""


class Kept(Stored):
    """Values kept as they are."""

    __slots__ = ("values", "version")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.version = full_version(values)

    def fetch(self, node: Node | None) -> tuple[Any, ...]:
        """The values themselves."""
        require_version(full_version(self.values), self.version, node)
        return self.values

    def release(self, last: bool) -> None:
        """There is nothing to do."""

    def held(self, names: list[str]) -> list[tuple[str, Any]]:
        """The values themselves."""
        return list(zip(names, self.values, strict=True)) if len(names) == len(self.values) else [("kept", self.values)]


def keep(values: tuple[Any, ...], savers: tuple[Saver, ...]) -> Stored:
    """Keep values that belong to no node, by the innermost of `savers`."""
    return savers[-1].store(values, None) if savers else Kept(values)


def store_saved(node: Node) -> None:
    """Hand what `node` has just saved to the innermost saver."""
    if modes.watch.savers and node.saved and next(tensors_in(node.saved), None) is not None:
        saver = modes.watch.savers[-1]
        node.saved = saver.store(node.saved, node)
        node.plan = saver.plan_for(node.plan)


@contextmanager
def saving(*savers: Saver, alone: bool = False) -> Iterator[None]:
    """Make `savers` the innermost; with `alone`, hide those outside."""
    before = modes.watch.savers
    modes.watch.savers = savers if alone else (*before, *savers)
    modes.add_watchers(1)
    try:
        yield
    finally:
        modes.watch.savers = before
        modes.add_watchers(-1)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a saved value; of a fallback its inputs, for torch does not say what it saved."""
    from cartograd.engine.fallback import TorchCall

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, TorchCall):
        yield from value.inputs


def replace_tensors(value: Any, replace: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure of lists and tuples with ``replace(tensor)`` for each tensor."""
    if isinstance(value, torch.Tensor):
        return replace(value)
    if type(value) in (tuple, list):
        return type(value)(replace_tensors(item, replace) for item in value)
    return value


def full_version(values: Any) -> int:
    """The sum of the version counters of all tensors in `values`."""
    return sum(tensor._version for tensor in tensors_in(values) if not tensor.is_inference())


def require_version(version: int, expected: int, node: Node | None) -> None:
    """Raise if the version counters have moved since the values were saved."""
    if version != expected:
        what = "the checkpoint" if node is None else f"{node.name} (called at {node.where()})"
        raise InplaceError(
            f"a tensor that {what} saved for its gradient, or that is needed to recompute it, was changed in place "
            f"afterwards (version {version}, saved at version {expected}): "
            "change a copy instead (.clone()), or change it before it is used"
        )
