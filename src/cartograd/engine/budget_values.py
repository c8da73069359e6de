"""What a memory budget knows: every value an op made, the memory it lies in, and how to make it again.

`Made` is one run of an op: what it was given and what came out. `Value` is one tensor of what came out; it holds the
tensor while the budget can afford it. `Block` is a piece of memory with all the values that lie in it: a matrix and its
transpose are two values in one block. Memory is given up by whole blocks.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from cartograd.engine.graph import describe_place
from cartograd.engine.primitive import Primitive
from cartograd.engine.stored import replace_tensors, tensors_in
from cartograd.engine.surroundings import autocast_state, autocasting, random_lock
from cartograd.errors import InplaceError

PRODUCTS_PER_BYTE = 4
"""About how many multiplications a processor does in the time it moves a byte; of CPUs and GPUs, the order of it."""

next_tick: Callable[[], int] = itertools.count(1).__next__


class Cluster:
    """Blocks that are absent and depend on one another: making one again may mean making all of them.

    Clusters are merged when a block between them is given up, and never split: what is made again is only taken off
    the cost. That is cheap and near enough (it is how dynamic tensor rematerialisation does it).
    """

    __slots__ = ("cost", "into")

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.into: Cluster | None = None

    def root(self) -> Cluster:
        """The cluster this one has become part of."""
        found = self
        while found.into is not None:
            found = found.into
        if found is not self:
            self.into = found
        return found

    def merge(self, other: Cluster) -> None:
        """Become one cluster with `other`."""
        one, two = self.root(), other.root()
        if one is not two:
            two.into = one
            one.cost += two.cost


class Block:
    """A piece of memory, and the values in it that are here."""

    __slots__ = ("children", "cluster", "cost", "counted", "parents", "pins", "size", "used", "values")

    def __init__(self, size: int, cost: float, parents: set[Block]) -> None:
        self.size = size
        self.cost = cost  # of making what is in it
        self.parents = parents
        self.children: list[Block] = []
        self.values: set[Value] = set()
        self.pins = 0  # how many computations now under way need it
        self.used = next_tick()
        self.counted = False  # whether the plan knows that something in it was saved
        self.cluster: Cluster | None = None  # while it is absent, from the first time somebody asks
        for parent in parents:
            parent.children.append(self)

    def absent_cluster(self) -> Cluster:
        """The cluster of an absent block."""
        if self.cluster is None:
            self.cluster = Cluster(self.cost)
        return self.cluster.root()

    def score(self, now: int) -> float:
        """Cost of making it again, with all that is absent around it, by its bytes and by how long it was not used."""
        around = {near.absent_cluster() for near in (*self.parents, *self.children) if not near.values}
        cost = self.cost + sum(cluster.cost for cluster in around)
        return cost / ((self.size or 1) * (now - self.used))

    def left(self) -> None:
        """It has just become absent: it joins those around it that are."""
        self.cluster = Cluster(self.cost)
        for near in (*self.parents, *self.children):
            if not near.values:
                self.cluster.merge(near.absent_cluster())

    def came(self) -> None:
        """It has just become present."""
        if self.cluster is not None:
            self.cluster.root().cost -= self.cost
            self.cluster = None


class Value:
    """One tensor that an op made; `tensor` is `None` while it is given up."""

    __slots__ = ("__weakref__", "block", "changed", "layout", "maker", "tensor", "version", "wanted")

    def __init__(self, maker: Made, block: Block, tensor: torch.Tensor) -> None:
        self.maker = maker
        self.block = block
        self.version = tensor._version
        self.layout = layout_of(tensor)
        self.tensor: torch.Tensor | None = None
        self.wanted = 0  # how many nodes saved it
        self.changed = False  # whether it was changed in place while it was here

    @property
    def present(self) -> bool:
        """Whether the tensor is here, as it was made."""
        return self.tensor is not None and self.tensor._version == self.version

    @property
    def spoilt(self) -> bool:
        """Whether the tensor is here and was changed in place."""
        return self.tensor is not None and self.tensor._version != self.version


def layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """How a tensor lies in its memory."""
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


class Entry:
    """What the plan will say about one op."""

    __slots__ = ("code", "cost", "drops", "instruction", "name", "recomputed", "saved", "shape")

    def __init__(self, name: str, place: tuple[CodeType, int]) -> None:
        self.name = name
        self.code, self.instruction = place
        self.cost = 0.0
        self.shape: tuple[int, ...] = ()
        self.saved = 0  # bytes of its results that nodes saved
        self.drops = self.recomputed = 0

    def where(self) -> str:
        """`file:line` of the user's call."""
        return describe_place(self.code, self.instruction)

    def __str__(self) -> str:
        return f"{self.name} (called at {self.where()})"


class Made:
    """One run of an op on `template`, in which the tensors that other ops made are `Value`s."""

    __slots__ = ("autocast", "beside", "call", "entry", "given", "number", "random", "size", "template", "values")

    def __init__(self, entry: Entry, call: Callable[[list[Any]], Any], torchs: bool) -> None:
        self.entry = entry
        self.call = call
        self.autocast = autocast_state() if torchs else None  # set where torch's autograd has to follow the call
        self.number = next_tick()
        self.template: list[Any] = []
        self.given: list[tuple[torch.Tensor, int]] = []  # tensors that no op made, and their versions
        self.values: list[weakref.ref[Value] | None] = []  # its results, flat; None for memory of the user's own
        self.random: Any = None  # the random state it began with, if it drew from it
        self.size = 0  # bytes of new memory
        self.beside = 0  # bytes that it takes for a moment, while it runs

    def fill(self, values: list[Any], find: Callable[[torch.Tensor], Value | None]) -> None:
        """Note what it is given: `Value`s for the tensors that ops made."""

        def replace(tensor: torch.Tensor) -> Any:
            known = find(tensor)
            if known is None:
                self.given.append((tensor, tensor._version))
            if self.autocast is not None and tensor.requires_grad:
                return Alias([tensor.detach() if known is None else known])
            return tensor if known is None else known

        self.template = [replace_tensors(value, replace) for value in values]

    def ran(self) -> None:
        """Forget those versions that the op itself has moved: nothing is computed from what it writes into."""
        self.given = [(tensor, version) for tensor, version in self.given if tensor._version == version]

    def inputs(self) -> Iterator[Value]:
        """The values it is made from."""
        stack = list(self.template)
        while stack:
            item = stack.pop()
            if item.__class__ is Value:
                yield item
            elif item.__class__ in (list, tuple, Alias):
                stack.extend(item)

    def results(self) -> list[Value | None]:
        """The values it makes, in their order; `None` for those that nobody can ask for."""
        return [None if one is None else one() for one in self.values]

    def arguments(self) -> list[Any]:
        """What it is given, its inputs all being present."""
        return [_filled(item) for item in self.template]

    def run(self, arguments: list[Any]) -> Any:
        """Run the op again."""
        if any(tensor._version != version for tensor, version in self.given):
            raise InplaceError(
                f"an input of {self.entry} was changed in place after the op had run, and the memory budget needs it "
                "to compute the result again: change a copy instead (.clone()), or change it after the backward pass"
            )
        try:
            with torch.set_grad_enabled(self.autocast is not None), randomness(self.random):
                if self.autocast is None:
                    return self.call(arguments)
                with autocasting(self.autocast):
                    return self.call(arguments)
        except Exception as error:
            error.add_note(f"in the recomputation of {self.entry}")
            raise


class Alias(list[Any]):
    """[value or tensor]: an input of a function that torch differentiates; it becomes a leaf there."""


def _filled(item: Any) -> Any:
    if item.__class__ is Value:
        return item.tensor
    if item.__class__ is Alias:
        return _filled(item[0]).detach().requires_grad_()
    return type(item)(map(_filled, item)) if item.__class__ in (list, tuple) else item


class randomness:
    """Runs a block from a random state on (if any), and leaves the generators as they were."""

    def __init__(self, state: list[torch.Tensor] | None) -> None:
        self.state = state

    def __enter__(self) -> None:
        if self.state is not None:
            random_lock.acquire()
            self.before = torch_random_state()
            _set(self.state)

    def __exit__(self, *exc: object) -> None:
        if self.state is not None:
            _set(self.before)
            random_lock.release()


def torch_random_state() -> list[torch.Tensor]:
    """The states of torch's generators: the CPU's, then those of the CUDA devices in use."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.default_generator.get_state(), *cuda]


def _set(state: list[torch.Tensor]) -> None:
    torch.default_generator.set_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])


def same_random_state(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether nothing was drawn in between."""
    return len(one) == len(other) and all(map(torch.equal, one, other))


def cost_of(op: Primitive | None, values: list[Any], out: Any) -> float:
    """About how long an op takes, in bytes moved: those of its arguments and results, or its multiplications.

    Of an op that combines two matrices (or stacks of them) a, b into c, these number about sqrt(|a| |b| |c|): exactly
    so for (m, k) times (k, n).
    """
    given, made = list(tensors_in(values)), list(tensors_in(out))
    moved = float(sum(map(size_of, given)) + sum(map(size_of, made)))
    if op is None or op.broadcasts or op.elementwise or op.takes_list is not None or not made:
        return moved
    factors = sorted((one.numel() for one in given if one.dim() > 1 and one.is_floating_point()), reverse=True)
    if len(factors) < 2:
        return moved
    return max(moved, math.sqrt(float(factors[0]) * factors[1] * made[0].numel()) / PRODUCTS_PER_BYTE)


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's elements."""
    return tensor.numel() * tensor.element_size()
