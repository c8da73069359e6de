"""`memory_budget`: keep the live bytes of a step under a limit, by giving up values that can be computed again.

Every op that is recorded inside the block is noted with what it was given, so that its result can be made again.
Before an op runs, and whenever a value is saved, memory is made room for: the block with the least

    cost of making it again / (bytes x how long it was not used)

is given up, until what lives fits. When the backward pass asks for what is not there, the ops that lead to it are run
again (`replay`), on the same inputs and from the same random state: the same bits.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.budget_boxes import Boxed, Called
from cartograd.engine.budget_plan import MemoryPlan, plan_of
from cartograd.engine.budget_scratch import key_of, key_of_gradient, known, measured
from cartograd.engine.budget_store import Holdings
from cartograd.engine.budget_values import (
    Entry,
    Made,
    Value,
    cost_of,
    same_random_state,
    size_of,
    torch_random_state,
)
from cartograd.engine.graph import Node, calling_place
from cartograd.engine.primitive import Primitive, primitive
from cartograd.engine.replay import Replay
from cartograd.engine.stored import Saver, Stored, saving, tensors_in
from cartograd.errors import BudgetError, InplaceError, OptionError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def parse_bytes(text: int | float | str) -> int:
    """Bytes from a number, or from a text such as "512MiB" or "1.5 GB"."""
    if isinstance(text, bool) or not isinstance(text, (int, float, str)):
        raise OptionError(f'a memory budget is a number of bytes or a text such as "512MiB", got {text!r}')
    if isinstance(text, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
        if match is None or match[2] not in _UNITS:
            raise OptionError(f'a memory budget is a number and a unit, such as "512MiB" or "1.5GB", got {text!r}')
        text = float(match[1]) * _UNITS[match[2]]
    if not 0 <= text < 1 << 62:
        raise OptionError(f"a memory budget must not be negative, and finite, got {text!r}")
    return int(text)


class memory_budget:
    """Keep the memory of what is saved for the backward pass under a limit.

    Put forward and backward inside the block. What does not fit is given up and computed again when the backward pass
    needs it; gradients are the same bits. Saved values and those made again never take more than the budget; results
    that you hold and gradients count, too, and room is made for them as far as it can be. Parameters do not count.

    Parameters
    ----------
    limit : int or str
        Bytes, or a text such as "512MiB" (2^20) or "1.5GB" (10^9).

    Attributes
    ----------
    plan : MemoryPlan
        What was kept, dropped and made again so far, and the peak. ``cartograd.trace(loss).plan`` is the same.

    Raises
    ------
    BudgetError
        By the backward pass, before anything is made again, if the budget is too small; its `smallest` would do.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor(torch.linspace(0.0, 1.0, 1000), requires_grad=True)
    >>> with cartograd.memory_budget("12 kB") as budget:
    ...     y = x
    ...     for _ in range(8):
    ...         y = y.sin()
    ...     y.sum().backward()
    >>> budget.plan.peak <= 12_000, len(budget.plan.recomputed) > 0
    (True, True)
    """

    def __init__(self, limit: int | float | str) -> None:
        self.limit = parse_bytes(limit)
        self._budget = Budget(self.limit)

    @property
    def plan(self) -> MemoryPlan:
        """What was done so far."""
        return self._budget.plan

    def __enter__(self) -> memory_budget:
        self._block = saving(self._budget)
        self._before = modes.watch.budget
        if modes.watch.capture is None:  # a captured step has a plan of its own
            self._block.__enter__()
            modes.watch.budget = self._budget
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if modes.watch.capture is None:
            self._block.__exit__(kind, error, traceback)
            modes.watch.budget = self._before
        self._budget.holdings.forget()
        if error is None:
            self._budget.require_feasible()


class Budget(Saver):
    """Decides what is kept. One for each block."""

    def __init__(self, limit: int) -> None:
        self.holdings = Holdings(limit)
        self.limit = limit
        self.lock = threading.Condition(threading.RLock())
        self.log: list[Entry] = []
        self.keeper = self
        self.boxes: weakref.WeakSet[Boxed] = weakref.WeakSet()
        self.widest = 0  # the most bytes that one op had as arguments and results
        self.checked = False  # whether the budget is known to be enough for all boxes
        self._fetching = 0  # the thread that makes values again: one at a time
        self._calls = threading.local()

    @property
    def plan(self) -> MemoryPlan:
        """What was done so far."""
        return plan_of(self.limit, self.holdings.peak, self.log)

    # Forward

    def run(self, op: Primitive, values: list[Any]) -> Any:
        """Run the forward of `op`, after making room for its result; note how to make it again."""
        return self._noted(op.name, op, op.run, values)

    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """The same for a function that torch differentiates."""
        from torch.utils._pytree import tree_flatten, tree_unflatten

        flat, structure = tree_flatten((args, kwargs))

        def again(values: list[Any]) -> Any:
            given, options = tree_unflatten(values, structure)
            return function(*given, **options)

        return self._noted(getattr(function, "__name__", str(function)), None, again, flat)

    def _noted(self, name: str, op: Primitive | None, call: Callable[[list[Any]], Any], values: list[Any]) -> Any:
        holdings = self.holdings
        entry = Entry(name, calling_place(sys._getframe(2)))
        made = Made(entry, call, torchs=op is None)
        with self.lock:
            holdings.drain()
            made.fill(values, holdings.find)
            key = key_of(name, values)
            holdings.make_room(*(known(key) or (max(map(size_of, tensors_in(values)), default=0), 0)))
        before = torch_random_state()
        result = measured(key, lambda: call(values))
        if not same_random_state(before, torch_random_state()):
            made.random = before
        made.ran()
        with self.lock:
            entry.cost = cost_of(op, values, result)
            holdings.note(made, tensors_in(result))
            made.beside = (known(key) or (0, 0))[1]
            self.widest = max(self.widest, made.size + sum(value.block.size for value in set(made.inputs())))
            self.log.append(entry)
            self._calls.last = Called(made, values) if op is None else None
            self._calls.beside = made.beside
        return result

    def store(self, values: tuple[Any, ...], node: Node | None) -> Stored:
        """Keep the values as long as the budget can afford it."""
        with self.lock:
            box = Boxed(self, values, node, getattr(self._calls, "last", None), getattr(self._calls, "beside", 0))
            self.boxes.add(box)
            self.checked = False
        return box

    # Backward

    def fetch(self, box: Boxed, node: Node | None) -> tuple[Any, ...]:
        """The values of a box, made again where they are absent, and kept here until `release`."""
        with self.lock:
            me = threading.get_ident()
            while self._fetching not in (0, me):
                self.lock.wait()
            self._fetching = me
            try:
                self.holdings.drain()
                if any(value.changed or value.spoilt for value in box.values):
                    what = "the checkpoint" if node is None else f"{node.name} (called at {node.where()})"
                    raise InplaceError(
                        f"a tensor that {what} saved for its gradient was changed in place afterwards: "
                        "change a copy instead (.clone()), or change it before it is used"
                    )
                self.require_feasible()
                self._bring(box)
                found = box.opened()
                if node is not None:
                    # The first time, a gradient is taken to need twice what its op did.
                    beside = (known(key_of_gradient(node, found)) or (0, 2 * box.beside))[1]
                    self.holdings.make_room(sum(map(_bytes_of_edge, node.parents)), beside)
                return found
            finally:
                self._fetching = 0
                self.lock.notify_all()

    def gradients(self, node: Node, total: Any, saved: tuple[Any, ...]) -> list[Any]:
        """What the rules of `node` return."""
        return measured(key_of_gradient(node, saved), lambda: node.plan.gradients(total, saved))

    def release(self, box: Boxed, last: bool) -> None:
        """The values of a box are not in use any more; with `last`, nobody will ask for them again."""
        with self.lock:
            for value in box.pinned:
                value.block.pins -= 1
                if not value.wanted:
                    self.holdings.let_go(value)
            box.pinned.clear()
            if last:
                box.empty()
            self.lock.notify_all()

    def _bring(self, box: Boxed) -> None:
        """Make what is absent, and pin all of it."""
        wanted = box.needed()
        while not all(value.present for value in wanted):
            try:
                self._replay(Replay(wanted))
                break
            except NoRoom:
                pass
            self.holdings.give_up_all()
            try:
                self._replay(Replay(wanted))
                break
            except NoRoom:
                if not self.holdings.pinned():  # no other thread has anything: this is all the room there is
                    raise self._too_small() from None
                self.lock.wait()
        for value in wanted:
            value.block.pins += 1
            box.pinned.append(value)

    def _replay(self, replay: Replay) -> None:
        holdings = self.holdings
        pinned: dict[Value, None] = {}
        for value in replay.spoilt:
            value.changed |= value.wanted > 0
            holdings.let_go(value)
        try:
            for value in replay.present:
                holdings.pin(value, pinned)
            for step, made in enumerate(replay.makers):
                if not holdings.make_room(made.size, made.beside):
                    raise NoRoom
                holdings.fill(made, made.run(made.arguments()), replay.last, pinned)
                made.entry.recomputed += 1
                for value in replay.done_after(step):
                    holdings.unpin(value, pinned)
        finally:
            for value in list(pinned):
                holdings.unpin(value, pinned, keep=value in replay.wanted)

    # Is it enough?

    def require_feasible(self) -> None:
        """Raise if the budget is too small for a box that is still to be fetched; before anything is made again."""
        if self.checked or self.limit >= 4 * self.widest + self.holdings.given:
            return
        with self.lock:
            self.holdings.drain()
            if self.smallest() > self.limit:
                raise self._too_small()
            self.checked = True

    def smallest(self) -> int:
        """The least budget that will do for all boxes: of each, what a replay from the very beginning needs."""
        boxes = sorted(self.boxes, key=lambda box: -box.number)[:_MOST_SIMULATED]
        return self.holdings.given + max((Replay(box.needed(), from_scratch=True).peak() for box in boxes), default=0)

    def _too_small(self) -> BudgetError:
        smallest = self.smallest()
        return BudgetError(
            f"a memory budget of {self.limit} bytes is too small for this computation: its backward pass needs at "
            f"least {smallest} bytes at one time. Give it that, or make the largest op smaller (a smaller batch).",
            smallest,
        )

    def same(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """`tensor` was overwritten with `other` in place."""
        with self.lock:
            self.holdings.same(tensor, other)

    def count(self, gradients: Any) -> None:
        """Gradients were made: they live, too."""
        with self.lock:
            for tensor in tensors_in(gradients):
                self.holdings.track(tensor)


_MOST_SIMULATED = 2000


@primitive()
def copied(input: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor that is then changed in place."""
    return input.clone()


class NoRoom(Exception):
    """What a replay needs at one time does not fit."""


def _bytes_of_edge(edge: Any) -> int:
    if edge.shape and not isinstance(edge.shape, torch.Size):
        return 0  # a multi-output op: it gets what the picks got
    return int(edge.shape.numel()) * edge.dtype.itemsize
