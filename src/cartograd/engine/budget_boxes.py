"""Boxes: what one node saved under a budget, and how it is found again when the backward pass opens it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from cartograd.engine.budget_values import Alias, Made, Value, next_tick
from cartograd.engine.fallback import TorchCall
from cartograd.engine.graph import Node
from cartograd.engine.stored import Stored, replace_tensors, require_version

if TYPE_CHECKING:
    from cartograd.engine.budget import Budget


class Called:
    """The last call of a function that torch differentiates, and the leaves that torch saw there."""

    def __init__(self, made: Made, values: list[Any]) -> None:
        self.made = made
        self.leaves = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]

    def left(self, saved: tuple[Any, ...]) -> bool:
        """Whether what is saved is what this call left behind."""
        if len(saved) != 1 or not isinstance(saved[0], TorchCall):
            return False
        inputs = saved[0].inputs
        return len(inputs) == len(self.leaves) and all(map(operator.is_, inputs, self.leaves))


def call_again(made: Made) -> TorchCall:
    """What running the function under torch's autograd leaves behind."""
    arguments = made.arguments()
    result = made.run(arguments)
    inputs = [one for one, item in zip(arguments, made.template, strict=True) if item.__class__ is Alias]
    outputs = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor) and one.requires_grad]
    made.entry.recomputed += 1
    return TorchCall(inputs, outputs)


class Boxed(Stored):
    """What one node saved, under a budget."""

    __slots__ = (
        "__weakref__",
        "beside",
        "budget",
        "content",
        "given",
        "number",
        "pinned",
        "reruns",
        "values",
        "versions",
    )

    def __init__(
        self, budget: Budget, saved: tuple[Any, ...], node: Node | None, call: Called | None, beside: int = 0
    ) -> None:
        self.budget = budget
        self.beside = beside  # bytes that the op took for a moment when it ran
        self.number = next_tick()
        self.values: list[Value] = []
        self.pinned: list[Value] = []
        self.given: list[tuple[int, int]] = []
        self.reruns: list[Made] = []
        self.versions: list[tuple[torch.Tensor, int]] = []
        holdings = budget.holdings
        found: dict[Value, torch.Tensor] = {}
        parameters = {
            edge.untyped_storage()._cdata for edge in (node.parents if node else ()) if isinstance(edge, torch.Tensor)
        }

        def keep(tensor: torch.Tensor) -> Any:
            value = holdings.find(tensor)
            if value is not None:
                if not value.block.counted:
                    value.block.counted = True
                    value.maker.entry.saved += value.block.size
                value.wanted += 1
                self.values.append(value)
                found.setdefault(value, tensor)
                return value
            self.versions.append((tensor, tensor._version))
            if not isinstance(tensor, torch.nn.Parameter) and tensor.untyped_storage()._cdata not in parameters:
                key = holdings.add_given(tensor)
                if key is not None:
                    self.given.append((key, tensor.untyped_storage().nbytes()))
            return tensor

        if call is not None and call.left(saved):
            self.reruns.append(call.made)  # what torch saved is not kept: the function is run once more when needed
            self.content: tuple[Any, ...] = (call.made,)
        else:
            self.content = tuple(replace_tensors(value, keep) for value in saved)
        holdings.hold_if_there_is_room(found)

    def needed(self) -> list[Value]:
        """The values that have to be here when it is opened."""
        return list(dict.fromkeys([*self.values, *(value for made in self.reruns for value in made.inputs())]))

    def opened(self) -> tuple[Any, ...]:
        """The saved values, all of them present."""
        return tuple(map(_opened, self.content))

    def fetch(self, node: Node | None) -> tuple[Any, ...]:
        """The saved values, made again where they were given up."""
        versions = [(tensor._version, version) for tensor, version in self.versions]
        require_version(sum(now for now, _ in versions), sum(then for _, then in versions), node)
        return self.budget.fetch(self, node)

    def release(self, last: bool) -> None:
        """They may be given up again."""
        self.budget.release(self, last)

    def empty(self) -> None:
        """Nobody will ask for them again."""
        holdings = self.budget.holdings
        for value in self.values:
            value.wanted -= 1
            if not value.wanted and not value.block.pins:
                holdings.let_go(value)
        for key, size in self.given:
            holdings.remove_given(key, size)
        self.values, self.given, self.reruns, self.content, self.versions = [], [], [], (), []

    def held(self, names: list[str]) -> list[tuple[str, Any]]:
        """What of it is here."""
        content = [_present(value) for value in self.content]
        return list(zip(names, content, strict=True)) if len(names) == len(content) else [("kept", content)]

    def __del__(self) -> None:
        if self.values or self.given:
            self.budget.holdings.left.append(self)  # may run at any time: leave the work for later


def _opened(item: Any) -> Any:
    if item.__class__ is Value:
        return item.tensor
    if item.__class__ is Made:
        return call_again(item)
    return type(item)(map(_opened, item)) if item.__class__ in (list, tuple) else item


def _present(item: Any) -> Any:
    if item.__class__ is Value:
        return item.tensor
    return [_present(one) for one in item] if item.__class__ in (list, tuple) else item
