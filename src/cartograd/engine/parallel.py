"""The backward pass on several threads: the same bits as on one.

Before the pass every edge is given one slot for each contribution it will get, in the order in which one thread would
deliver them: newest consumer first, and by input within one consumer. A node that has run puts its gradients into
their slots, `None` for one that is undefined, so that every slot is filled whatever happens. The slots of an edge are
summed in their order, each once, as soon as all before it are there; the sum is computed outside the lock, by one
thread at a time. An edge whose slots are all summed is ready, and whoever is free takes the newest that is.

An error ends the pass: no older node is begun, while the newer ones still run to their end, since one of them may fail
as well and would have failed first on one thread. So the error raised is the one that one thread would have raised.
"""

from __future__ import annotations

import logging
import threading
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from cartograd.engine import pool
from cartograd.engine.apply import PICK
from cartograd.engine.graph import Node
from cartograd.engine.hooks import has_post_hooks
from cartograd.engine.surroundings import Surroundings
from cartograd.engine.torch_graph import is_torchs_result, leaves_of

if TYPE_CHECKING:
    from cartograd.engine.backward import Pass

logger = logging.getLogger("cartograd.engine")
EMPTY: Any = object()
"""A slot that nothing has been put into yet."""


class Meeting:
    """Where the contributions to one edge meet."""

    __slots__ = ("busy", "edge", "filled", "keys", "origin", "owned", "slots", "targets", "total")

    def __init__(self, edge: Any) -> None:
        self.edge = edge
        self.keys: list[tuple[int, int]] = []  # of each slot: minus its consumer's number, and the input's position
        self.slots: list[Any] = []
        self.filled = 0  # how many slots have been summed, from the first
        self.total: Any = None
        self.origin: tuple[int, int] | None = None  # the key of the first defined contribution
        self.owned = False  # whether `total` was made here, and may be added to in place
        self.busy = False  # whether a thread is summing
        self.targets: list[tuple[Meeting, int] | None] = []  # for each parent of a node, its meeting and the slot there

    def new_slot(self, key: tuple[int, int]) -> int:
        """One more contribution will come; its place among the others."""
        self.keys.append(key)
        self.slots.append(EMPTY)
        return len(self.slots) - 1

    def add(self, gradient: Any, key: tuple[int, int]) -> None:
        """Add a contribution, with the very operations that one thread would use."""
        if self.origin is None:
            self.origin = key
        if self.edge.__class__ is Node and self.edge.plan.op.multiple and self.edge.plan is not PICK:
            index, value = gradient
            if self.total is None:
                self.total = [None] * len(self.edge.shape)
            before = self.total[index]
            self.total[index] = value if before is None else before + value
        elif self.total is None:
            self.total = gradient
        elif self.owned:
            self.total.add_(gradient)
        else:
            self.total = self.total + gradient
            self.owned = True


class ParallelPass:
    """The state of one pass that several threads work on."""

    def __init__(self, task: Pass, seeds: list[tuple[Any, Any]], workers: int) -> None:
        self.task = task
        self.workers = workers
        self.lock = threading.Condition(threading.Lock())
        self.hook_lock = threading.RLock()  # the hooks of one pass never run at the same time
        self.ready: list[tuple[tuple[int, int], int, Meeting]] = []
        self.count = 0
        self.running = 0  # threads that are at a task now
        self.helpers = 0  # helpers that were called and have not left
        self.waiting = False  # whether the caller waits
        self.failure: tuple[tuple[int, int], BaseException] | None = None
        self.surroundings = Surroundings()
        self.meetings: dict[int, Meeting] = {}
        self.late: set[int] = set()  # leaves to which torch's own graphs contribute, after this pass
        self._survey(seeds)

    def _survey(self, seeds: list[tuple[Any, Any]]) -> None:
        """Find every edge the pass will reach, and give it its slots."""
        first = [(self._meeting(edge), gradient) for edge, gradient in seeds]
        places = [(meeting, meeting.new_slot((-(1 << 62), 0)), gradient) for meeting, gradient in first]
        useful = self.task.useful
        order = [
            (-edge.number, id(edge), edge) for edge in {id(m.edge): m.edge for m, _ in first}.values() if _is_node(edge)
        ]
        order.sort()
        while order:
            _, _, node = heappop(order)
            meeting = self.meetings[id(node)]
            for position, edge in enumerate(node.parents):
                if useful is not None and id(edge) not in useful:
                    meeting.targets.append(None)
                    continue
                known = id(edge) in self.meetings
                target = self._meeting(edge)
                meeting.targets.append((target, target.new_slot((-node.number, position))))
                if not known and _is_node(edge):
                    heappush(order, (-edge.number, id(edge), edge))
        results = [meeting.edge for meeting in self.meetings.values() if is_torchs_result(meeting.edge)]
        self.late = {id(leaf) for leaf in leaves_of(results)}
        for meeting, slot, gradient in places:
            meeting.slots[slot] = gradient
        for meeting in {id(m): m for m, _, _ in places}.values():
            if self._advance(meeting):
                self._sum(meeting)

    def _meeting(self, edge: Any) -> Meeting:
        made = self.meetings.get(id(edge))
        if made is None:
            made = self.meetings[id(edge)] = Meeting(edge)
        return made

    # What follows runs on several threads. `_advance` and `_complete` are called with the lock held.

    def _advance(self, meeting: Meeting) -> bool:
        """Take what needs no arithmetic; whether the next slot is there and has to be added."""
        while meeting.filled < len(meeting.slots):
            gradient = meeting.slots[meeting.filled]
            if gradient is EMPTY:
                return False
            if gradient is not None:
                if meeting.total is not None:
                    meeting.busy = True
                    return True
                meeting.add(gradient, meeting.keys[meeting.filled])
            meeting.slots[meeting.filled] = None
            meeting.filled += 1
        self._complete(meeting)
        return False

    def _complete(self, meeting: Meeting) -> None:
        """All contributions are summed: a node may run, a leaf that somebody waits for be finished."""
        if _is_node(meeting.edge):
            self._push((-meeting.edge.number, -1), meeting)
        elif meeting.total is not None and has_post_hooks(meeting.edge) and id(meeting.edge) not in self.late:
            self._push(meeting.keys[-1], meeting)

    def _push(self, key: tuple[int, int], meeting: Meeting) -> None:
        self.count += 1
        heappush(self.ready, (key, self.count, meeting))

    def _sum(self, meeting: Meeting) -> None:
        """Add what is there, without the lock; `busy` keeps the other threads away."""
        more = True
        while more:
            slot = meeting.filled
            meeting.add(meeting.slots[slot], meeting.keys[slot])
            with self.lock:
                meeting.slots[slot] = None
                meeting.filled += 1
                meeting.busy = False
                more = self._advance(meeting)

    def _hand_on(self, meeting: Meeting, gradients: list[Any]) -> None:
        """Put the gradients of a node into their slots, and sum where this completes a run of them."""
        to_sum = []
        with self.lock:
            for target, gradient in zip(meeting.targets, gradients, strict=True):
                if target is not None:
                    place, slot = target
                    place.slots[slot] = gradient
                    if slot == place.filled and not place.busy and self._advance(place):
                        to_sum.append(place)
        gradients.clear()
        for place in to_sum:
            self._sum(place)

    def perform(self, meeting: Meeting) -> None:
        """Everything that happens at one node, or at one leaf, once its gradient is complete."""
        edge = meeting.edge
        if not _is_node(edge):
            self._finish(meeting)
            return
        total, meeting.total = meeting.total, None
        undefined = [None] * len(edge.parents)
        task = self.task
        if total is not None and (edge.watchers is not None or task.targets is not None):
            with self.hook_lock:
                total = task.watched(edge, total)
        if total is None:
            gradients: list[Any] = undefined
        elif edge.plan is PICK:
            gradients = [(edge.saved[0], total)]
        else:
            gradients = task.fitted(edge, total)
        del total
        self._hand_on(meeting, gradients)

    def _finish(self, meeting: Meeting) -> None:
        with self.hook_lock:
            key = id(meeting.edge)
            self.task.leaves[key] = [meeting.edge, meeting.total]
            meeting.total = None
            self.task.finish(key)

    def work(self, helps: bool) -> None:
        """Take the newest task that is ready, until there is none; a helper then leaves, the caller waits for more."""
        self.lock.acquire()
        try:
            while True:
                if not self._may_begin():
                    if helps or self.running == 0:
                        return
                    self.waiting = True
                    self.lock.wait()
                    self.waiting = False
                    continue
                key, _, meeting = heappop(self.ready)
                self.running += 1
                self._call_helpers()
                self.lock.release()
                failure: BaseException | None = None
                try:
                    self.perform(meeting)
                except BaseException as error:
                    failure = error
                finally:
                    self.lock.acquire()
                del meeting
                self.running -= 1
                if failure is not None and (self.failure is None or key < self.failure[0]):
                    self.failure = (key, failure)
                del failure
        finally:
            if helps and self.running == 0:
                self.lock.notify()
            self.lock.release()

    def _may_begin(self) -> bool:
        return bool(self.ready) and (self.failure is None or self.ready[0][0] < self.failure[0])

    def _call_helpers(self) -> None:
        """Have somebody for each task that waits, the caller first, as far as there may be so many."""
        spare = len(self.ready) if self._may_begin() else 0
        if spare and self.waiting:
            self.waiting = False
            self.lock.notify()
            spare -= 1
        while self.helpers < min(self.workers - 1, spare):
            self.helpers += 1
            pool.pool.submit(self._help, self.workers - 1)

    def _help(self) -> None:
        try:
            self.surroundings.run(self.work, True)
        except Exception:  # the caller's modes could not be entered here: he does the work himself
            logger.debug("a worker could not help with a backward pass", exc_info=True)
        finally:
            with self.lock:
                self.helpers -= 1

    def run(self) -> None:
        """Work on the calling thread until all is done; raise what one thread would have raised."""
        try:
            self.work(False)
        except BaseException as error:  # interrupted while it waited: let the others end what they are at
            with self.lock:
                self.failure = ((-(1 << 63), 0), error)
                while self.running:
                    self.lock.wait()
        self.ready.clear()
        if self.failure is not None:
            self.meetings.clear()
            failure = self.failure[1]
            self.failure = None
            raise failure

    def leaves(self) -> list[tuple[Any, Any]]:
        """(leaf, total) of the leaves that are not finished, in the order in which one thread would reach them."""
        found = [m for m in self.meetings.values() if m.total is not None and not _is_node(m.edge)]
        found.sort(key=lambda meeting: meeting.origin or (0, 0))
        return [(meeting.edge, meeting.total) for meeting in found]


def _is_node(edge: Any) -> bool:
    return edge.__class__ is Node


def run_parallel(task: Pass, seeds: list[tuple[Any, Any]], workers: int) -> None:
    """Do what ``task.walk(seeds)`` does, on up to `workers` threads."""
    state = ParallelPass(task, seeds, workers)
    seeds.clear()
    state.run()
    for leaf, total in state.leaves():
        task.leaves[id(leaf)] = [leaf, total]
    state.meetings.clear()
