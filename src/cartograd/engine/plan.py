"""Plans: for each pattern of wanted inputs, what an op saves and which of its rules run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from cartograd.errors import VjpError

if TYPE_CHECKING:
    from cartograd.engine.primitive import Primitive

_OPS = "cartograd.ops."


class Rule:
    """One gradient rule: the inputs it serves, and the names of what it needs."""

    def __init__(self, inputs: tuple[str, ...], function: Callable[..., Any]) -> None:
        self.inputs = inputs
        self.function = function
        names = tuple(inspect.signature(function).parameters)[1:]
        self.wants_need = "need" in names
        self.saves = tuple(name for name in names if name != "need")


class Plan:
    """What one pattern of wanted inputs saves, and how their gradients are computed.

    A plan is made once for each pattern an op meets; a node only points to it.
    """

    __slots__ = ("bare", "calls", "each", "keeper", "need", "only", "op", "saves", "single", "take", "unhurried")

    single: Callable[..., Any] | None
    each: list[tuple[Callable[..., Any], list[int]]] | None
    unhurried: Plan | None
    keeper: Any  # the memory budget under which a node was recorded; see `budget`
    bare: bool  # the rules are our own, and never ask torch's autograd for anything

    def __init__(self, op: Primitive, need: tuple[bool, ...]) -> None:
        self.op = op
        self.need = need
        wanted = [name for name, needed in zip(op.inputs, need, strict=True) if needed]
        rules = [rule for rule in op.rules if any(name in wanted for name in rule.inputs)]
        names = [name for rule in rules for name in rule.saves]
        if op.restated is not None:
            names += op.params  # it is run again on all of them
        self.saves = names = list(dict.fromkeys(names))
        self.take = _taker([op.places[name] for name in names])
        self.only = op.places[names[0]] if len(names) == 1 else None
        slots = {name: slot for slot, name in enumerate(names)}
        self.calls = [(rule, _taker([slots[name] for name in rule.saves])) for rule in rules]
        separate = not op.multiple and all(len(rule.inputs) == 1 and not rule.wants_need for rule in rules)
        order = {name: i for i, name in enumerate(wanted)}
        ordered = sorted(self.calls, key=lambda call: order[call[0].inputs[0]]) if separate else []
        self.each = [(rule.function, [slots[name] for name in rule.saves]) for rule, _ in ordered] or None
        alone = separate and len(rules) == 1 and list(rules[0].saves) == names
        self.single = rules[0].function if alone else None
        self.bare = all(rule.function.__module__.startswith(_OPS) for rule in rules)
        self.unhurried = self.keeper = None

    def stored(self, keeper: Any = None) -> Plan:
        """The same plan without the short cuts, for nodes whose saved values have to be fetched first."""
        if keeper is not None or self.unhurried is None:
            made = copy(self)
            made.single = made.each = None
            made.unhurried, made.keeper = made, keeper
            if keeper is not None:
                return made
            self.unhurried = made
        return self.unhurried

    def gradients(self, g: Any, saved: tuple[Any, ...]) -> list[Any]:
        """The gradient of every wanted input, in the order of the inputs; `None` where there is none."""
        if self.single is not None:
            return [self.single(g, *saved)]
        if self.each is not None:
            return [rule(g, *[saved[slot] for slot in used]) for rule, used in self.each]
        found: dict[str, Any] = {}
        for rule, take in self.calls:
            found.update(zip(rule.inputs, self._call(rule, g, take(saved)), strict=True))
        return [found[name] for name, needed in zip(self.op.inputs, self.need, strict=True) if needed]

    def _call(self, rule: Rule, g: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not rule.wants_need:
            result = rule.function(g, *values)
        else:
            need = tuple(self.need[self.op.inputs.index(name)] for name in rule.inputs)
            result = rule.function(g, *values, need=need)
        if len(rule.inputs) == 1:
            return (result,)
        require_count(self.op, result, len(rule.inputs))
        return result


class ListPlan(Plan):
    """The plan of an op that takes a list of tensors: its one rule returns a gradient for each of them."""

    def __init__(self, op: Primitive, need: tuple[bool, ...]) -> None:
        self.op = op
        self.need = need
        (rule,) = op.rules
        self.saves = list(rule.saves)
        self.only = None
        self.take = _taker([op.places[name] for name in rule.saves])
        self.calls = [(rule, _taker(list(range(len(rule.saves)))))]
        self.single = self.each = self.unhurried = self.keeper = None
        self.bare = False

    def gradients(self, g: Any, saved: tuple[Any, ...]) -> list[Any]:
        """The gradient of every wanted element of the list."""
        rule = self.calls[0][0]
        every = rule.function(g, *saved, need=self.need) if rule.wants_need else rule.function(g, *saved)
        require_count(self.op, every, len(self.need))
        return [gradient for gradient, needed in zip(every, self.need, strict=True) if needed]


def require_count(op: Primitive, gradients: Any, count: int) -> None:
    """A rule for several inputs must return one gradient (or None) for each of them."""
    if not isinstance(gradients, (tuple, list)) or len(gradients) != count:
        given = len(gradients) if isinstance(gradients, (tuple, list)) else type(gradients).__name__
        raise VjpError(f"the gradient rule of {op.name} must return {count} gradients, got {given}")


def _taker(indices: list[int]) -> Callable[[Any], tuple[Any, ...]]:
    """A fast ``lambda values: tuple(values[i] for i in indices)``."""
    if not indices:
        return lambda values: ()
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return itemgetter(*indices)
