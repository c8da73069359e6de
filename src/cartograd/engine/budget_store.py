"""The memory that a budget holds: what is here, who needs it, what to give up next."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from cartograd.engine.budget_values import Block, Made, Value, layout_of, next_tick
from cartograd.engine.stored import tensors_in

if TYPE_CHECKING:
    from cartograd.engine.budget_boxes import Boxed


class _Holder:
    __slots__ = ("tensor",)
    tensor: torch.Tensor


def _references_of_a_held_tensor() -> int:
    holder = _Holder()
    holder.tensor = torch.empty(0)
    return sys.getrefcount(holder.tensor)


HELD_ONCE = _references_of_a_held_tensor()
"""What ``sys.getrefcount`` says of a tensor that one object holds and nobody else."""


MOST_LOOKED_AT = 256


class Holdings:
    """What of a budget is taken. Its methods are called with the budget's lock held."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0  # bytes of blocks that are here because of us
        self.given = 0  # bytes of saved memory that is the user's own: his inputs
        self.live = 0  # bytes of everything that was made and still lives, whoever holds it
        self.apart = 0  # bytes of saved memory that no op noted here has made: part of `given`
        self.peak = 0
        self.here: dict[Block, None] = {}  # in the order in which they came
        self.left: deque[Boxed] = deque()  # boxes of graphs that were thrown away
        self._given: dict[int, int] = {}  # storage -> how many boxes have it
        self._apart: dict[int, int] = {}  # storage -> its bytes
        self._storages: dict[int, Any] = {}  # address -> weak reference
        self._blocks: dict[int, Block] = {}  # address of a storage that lives -> its block
        self._values: dict[int, list[tuple[Value, int]]] = {}  # address -> the values in it, at which version

    # What lives

    def track(self, tensor: torch.Tensor) -> int | None:
        """Count the memory under a tensor as long as it lives; its address."""
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._storages:
            myself = weakref.ref(self)  # a result that outlives the step must not keep all of this

            def died(_: Any) -> None:
                holdings = myself()
                if holdings is not None:
                    holdings._died(key, size)

            self._storages[key] = weakref.ref(storage, died)
            self.live += size
        return key

    def forget(self) -> None:
        """The block has ended: no further op will be noted."""
        self._blocks.clear()
        self._values.clear()

    def same(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """`tensor` has just been overwritten with `other`: it is the same value."""
        value, key = self.find(other), self.track(tensor)
        if value is not None and key is not None and value.layout == layout_of(tensor):
            self._values[key] = [(value, tensor._version)]
            self._blocks.pop(key, None)

    def _died(self, key: int, size: int) -> None:
        self._storages.pop(key, None)
        self._blocks.pop(key, None)
        self._values.pop(key, None)
        self.live -= size

    def find(self, tensor: torch.Tensor) -> Value | None:
        """The value that a tensor is, if an op made it and nobody has changed it since."""
        if tensor.layout is not torch.strided:
            return None
        layout = None
        for value, version in self._values.get(tensor.untyped_storage()._cdata, ()):
            if version == tensor._version:
                layout = layout or layout_of(tensor)
                if value.layout == layout:
                    return value
        return None

    def note(self, made: Made, results: Iterable[torch.Tensor]) -> None:
        """Remember the results of an op that has just run."""
        inputs = set(made.inputs())
        parents = {value.block for value in inputs}
        before = {tensor.untyped_storage()._cdata for tensor, _ in made.given if tensor.layout is torch.strided}
        for tensor in results:
            if not made.entry.shape:
                made.entry.shape = tuple(tensor.shape)
            if tensor.layout is not torch.strided or tensor.untyped_storage()._cdata in before:
                made.values.append(None)
                continue
            key = self.track(tensor)
            assert key is not None
            block = self._blocks.get(key)
            if block is None:
                size = tensor.untyped_storage().nbytes()
                block = self._blocks[key] = Block(size, made.entry.cost, parents)
                made.size += size
            for value in inputs:
                value.block.used = next_tick()
            block.used = next_tick()
            value = Value(made, block, tensor)
            made.values.append(weakref.ref(value))
            self._values.setdefault(key, []).append((value, tensor._version))

    # What is held

    def hold(self, value: Value, tensor: torch.Tensor) -> None:
        """Keep the tensor of a value here."""
        block = value.block
        if value.tensor is None:
            value.tensor, value.version = tensor, tensor._version
            if not block.values:
                self.here[block] = None
                self.held += block.size
                self.peak = max(self.peak, self.held + self.given)
                block.came()
            block.values.add(value)
        block.used = next_tick()

    def hold_if_there_is_room(self, tensors: dict[Value, torch.Tensor]) -> None:
        """Keep what a node has saved, unless it is too much for the budget even alone: then it is made again later."""
        pinned: dict[Value, None] = {}
        for value in tensors:
            self.pin(value, pinned)
        if self.make_room(sum(block.size for block in {value.block for value in tensors} if not block.values)):
            for value, tensor in tensors.items():
                self.hold(value, tensor)
        else:
            for value in tensors:
                value.maker.entry.drops += not value.present
        for value in tensors:
            self.unpin(value, pinned)

    def let_go(self, value: Value) -> None:
        """Do not keep the tensor of a value any more."""
        if value.tensor is None:
            return
        value.tensor = None
        block = value.block
        block.values.discard(value)
        if not block.values:
            self.here.pop(block, None)
            self.held -= block.size
            block.left()

    def pin(self, value: Value, pinned: dict[Value, None]) -> None:
        """Keep a value from being given up."""
        if value not in pinned:
            pinned[value] = None
            value.block.pins += 1
            value.block.used = next_tick()

    def unpin(self, value: Value, pinned: dict[Value, None], keep: bool = False) -> None:
        """It may be given up again; if no node has saved it, it is, unless it is to be kept."""
        if value in pinned:
            del pinned[value]
            value.block.pins -= 1
            if not value.wanted and not keep:
                self.let_go(value)

    def pinned(self) -> bool:
        """Whether a computation is under way that needs something of this."""
        return any(block.pins for block in self.here)

    def fill(self, made: Made, result: Any, needed: dict[Value, int], pinned: dict[Value, None]) -> None:
        """Put the results of an op that was run again where they belong."""
        for tensor, value in zip(tensors_in(result), made.results(), strict=True):
            if value is None or (value not in needed and not value.wanted):
                continue
            tensor = tensor.detach() if tensor.requires_grad else tensor
            key = self.track(tensor)
            assert key is not None
            if value.tensor is None:
                self._blocks.setdefault(key, value.block)
                self._values.setdefault(key, []).append((value, tensor._version))
                self.hold(value, tensor)
            if value in needed:
                self.pin(value, pinned)

    # What is given up

    def make_room(self, size: int, beside: int = 0) -> bool:
        """Give up blocks until `size` more bytes fit, and `beside` for a moment; whether `size` fits what is held."""
        while self.held + self.given + size > self.limit or self.live + self.apart + size + beside > self.limit:
            over = self.held + self.given + size > self.limit
            block = self._least(over)
            if block is None:
                return not over
            self.give_up(block)
        return True

    def _least(self, whoever_holds_it: bool) -> Block | None:
        """The block whose loss costs least; one that only we hold, if there is one.

        Of very many, those that came first are looked at: they are the ones not used for long.
        """
        now = next_tick()
        found = shared = None
        least = least_shared = float("inf")
        for looked_at, block in enumerate(self.here):
            if looked_at >= MOST_LOOKED_AT and found is not None:
                break
            if block.pins:
                continue
            if any(sys.getrefcount(value.tensor) > HELD_ONCE for value in block.values):
                if whoever_holds_it and (score := block.score(now)) < least_shared:
                    shared, least_shared = block, score
            elif (score := block.score(now)) < least:
                found, least = block, score
        return shared if found is None else found

    def give_up(self, block: Block) -> None:
        """Let go of everything in a block."""
        for entry in {value.maker.entry for value in block.values}:
            entry.drops += 1
        for value in list(block.values):
            assert value.tensor is not None
            value.changed |= value.wanted > 0 and value.tensor._version != value.version
            self.let_go(value)

    def give_up_all(self) -> None:
        """Let go of everything that nobody needs just now."""
        for block in [block for block in self.here if not block.pins]:
            self.give_up(block)

    def drain(self) -> None:
        """Empty the boxes of graphs that were thrown away."""
        while self.left:
            self.left.popleft().empty()

    def add_given(self, tensor: torch.Tensor) -> int | None:
        """A node has saved memory of the user's own: it counts once."""
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._given[key] = self._given.get(key, 0) + 1
        if self._given[key] == 1:
            self.given += storage.nbytes()
            if key not in self._storages:
                self._apart[key] = storage.nbytes()
                self.apart += storage.nbytes()
            self.peak = max(self.peak, self.held + self.given)
        return key

    def remove_given(self, key: int, size: int) -> None:
        """A node has given it back."""
        self._given[key] -= 1
        if not self._given[key]:
            del self._given[key]
            self.given -= size
            self.apart -= self._apart.pop(key, 0)
