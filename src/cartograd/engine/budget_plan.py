"""What a memory budget did, to look at: ``graph.plan``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cartograd.engine.budget_values import Entry
from cartograd.engine.explain import _bytes as in_words
from cartograd.engine.explain import _table as table


@dataclass(frozen=True)
class Planned:
    """One op of which a result was saved, or that was run again."""

    op: str
    shape: tuple[int, ...]
    bytes: int
    dropped: int
    recomputed: int
    where: str


@dataclass(frozen=True)
class MemoryPlan:
    """What a memory budget kept, dropped and made again.

    Attributes
    ----------
    budget, peak : int
        The bytes allowed, and the most saved bytes that were live at one time, recomputations included.
    kept, dropped, recomputed : tuple of Planned
        Ops whose saved results were never given up; ops whose results were; ops that ran again.
    slowdown : float
        About how much longer than without a budget the step took, reckoned from the ops that ran again: a backward
        pass counts twice the forward.
    """

    budget: int
    peak: int
    kept: tuple[Planned, ...]
    dropped: tuple[Planned, ...]
    recomputed: tuple[Planned, ...]
    slowdown: float

    def __str__(self) -> str:
        runs = sum(one.recomputed for one in self.recomputed)
        head = (
            f"peak {in_words(self.peak)} of a budget of {in_words(self.budget)}; kept {_total(self.kept)}, "
            f"dropped {_total(self.dropped)}; {runs} ops run again, about {self.slowdown:.2f} times as long"
        )
        rows: list[tuple[str, ...]] = [("ops", "result", "bytes each", "dropped", "run again", "called at")]
        alike = Counter(
            [*self.kept, *self.dropped, *(one for one in self.recomputed if not one.dropped and not one.bytes)]
        )
        for one in sorted(alike, key=lambda one: (-one.bytes * alike[one], one.where, one.op)):
            shape = "(" + ",".join(map(str, one.shape)) + ")"
            fate = (str(one.dropped) if one.bytes else "-", str(one.recomputed))
            rows.append((f"{alike[one]} x {one.op}", shape, in_words(one.bytes), *fate, one.where))
        return head + "\n" + table(rows)


def _total(entries: Sequence[Planned]) -> str:
    return f"{len(entries)} ({in_words(sum(one.bytes for one in entries))})"


def plan_of(budget: int, peak: int, log: Iterable[Entry]) -> MemoryPlan:
    """The plan, from the log of a budget."""
    forward = again = 0.0
    kept, dropped, recomputed = [], [], []
    for one in log:
        forward += one.cost
        again += one.cost * one.recomputed
        entry = Planned(one.name, one.shape, one.saved, one.drops, one.recomputed, one.where())
        if one.drops:
            dropped.append(entry)
        elif one.saved:
            kept.append(entry)
        if one.recomputed:
            recomputed.append(entry)
    slowdown = 1 + again / (3 * forward) if forward else 1.0
    return MemoryPlan(budget, peak, tuple(kept), tuple(dropped), tuple(recomputed), slowdown)
