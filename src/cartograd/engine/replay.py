"""Making absent values again: run the ops that lead to them once more, each once, in the order they first ran.

A value is kept until the last op of the replay that needs it has run. So a replay takes at most as long as the forward
did, and as much memory as the widest cut through it: the least budget that will do is known without trying.
"""

from __future__ import annotations

from collections.abc import Iterable

from cartograd.engine.budget_values import Block, Made, Value


class Replay:
    """The ops to run again for `wanted`, in order, and after which of them each block is no longer needed."""

    def __init__(self, wanted: Iterable[Value], from_scratch: bool = False) -> None:
        self.wanted = set(wanted)
        self.makers: list[Made] = []
        self.present: set[Value] = set()  # what is here already and will be used
        self.spoilt: list[Value] = []  # what is here but was changed in place, so that it has to be made again
        self._find(from_scratch)
        self.makers.sort(key=lambda made: made.number)
        self.last: dict[Value, int] = {}  # value -> the last step that reads it
        for step, made in enumerate(self.makers):
            for value in made.inputs():
                self.last[value] = step
        for value in self.wanted:
            self.last[value] = len(self.makers)

    def _find(self, from_scratch: bool) -> None:
        seen: set[int] = set()
        stack = list(self.wanted)
        while stack:
            value = stack.pop()
            if value.spoilt:
                self.spoilt.append(value)
            if value.present and not from_scratch:
                self.present.add(value)
            elif id(value.maker) not in seen:
                seen.add(id(value.maker))
                self.makers.append(value.maker)
                stack.extend(value.maker.inputs())

    def done_after(self, step: int) -> list[Value]:
        """The values that are read for the last time by `step`."""
        return [value for value in self.makers[step].inputs() if self.last[value] == step]

    def peak(self) -> int:
        """The most bytes that the replay has to hold at one time, beside what it is given."""
        held: dict[Block, int] = {}
        now = most = 0

        def hold(value: Value) -> int:
            held[value.block] = held.get(value.block, 0) + 1
            return value.block.size if held[value.block] == 1 else 0

        for value in self.present:
            now += hold(value)
        for step, made in enumerate(self.makers):
            most = max(most, now + made.size)
            now += sum(hold(value) for value in made.results() if value is not None and value in self.last)
            for value in set(self.done_after(step)):
                held[value.block] -= 1
                now -= value.block.size if held[value.block] == 0 else 0
        return max(most, now)
