"""Looking at a graph: `trace(loss)` gives its nodes, tables of them, and a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from cartograd.engine.apply import PICK
from cartograd.engine.fallback import TorchPlan
from cartograd.engine.graph import Leaf, Node, walk
from cartograd.engine.stored import Stored, tensors_in
from cartograd.engine.tensor import Tensor
from cartograd.errors import NoGradientError

if TYPE_CHECKING:
    from cartograd.engine.budget_plan import MemoryPlan


@dataclass(frozen=True)
class Saved:
    """One block of memory that the backward pass keeps alive."""

    bytes: int
    shape: tuple[int, ...]
    op: str
    name: str
    where: str


def trace(*roots: Tensor) -> Graph:
    """The graph that computed `roots`, to look at.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor([1.0, 2.0], requires_grad=True)
    >>> graph = cartograd.trace((x * x).sum())
    >>> [node.name for node in graph.nodes]
    ['sum', 'mul']
    """
    edges = [root._edge for root in roots]
    if not any(type(edge) is Node for edge in edges):
        raise NoGradientError("trace() needs a tensor computed from something that requires grad")
    return Graph(edges)


class Graph:
    """A snapshot of the nodes under some results, newest first."""

    def __init__(self, roots: list[Any]) -> None:
        self.roots = roots
        self.nodes: list[Node] = [node for node in walk(roots) if node.plan is not PICK]

    @property
    def leaves(self) -> list[Any]:
        """The leaves and Parameters the graph ends at, each once, in the order they are met."""
        found = {id(edge): edge for node in self.nodes for edge in map(_through_pick, node.parents)}
        return [edge for edge in found.values() if type(edge) is not Node]

    def explain(self) -> str:
        """A table: op, whose gradient rule, shape of the result, of the inputs, bytes saved, where it was called."""
        rows = [("#", "op", "rule", "result", "inputs", "saved", "called at")]
        for node in self.nodes:
            inputs = " ".join(_shape(edge.shape) for edge in map(_through_pick, node.parents))
            held = _saved_of(node, set())  # what a checkpoint holds is no single node's
            size = sum(saved.bytes for saved in held if saved.name != "checkpoint")
            rule = "torch" if isinstance(node.plan, TorchPlan) else "own"
            rows.append((str(node.number), node.name, rule, _shape(node.shape), inputs, _bytes(size), node.where()))
        return _table(rows)

    def saved(self) -> list[Saved]:
        """Who holds the memory: every saved block once (views share their base's), largest first."""
        seen: set[int] = set()
        found = [saved for node in reversed(self.nodes) for saved in _saved_of(node, seen)]
        return sorted(found, key=lambda one: -one.bytes)

    @property
    def plan(self) -> MemoryPlan | None:
        """What the memory budget under which the graph was recorded kept, dropped and made again; `None` without."""
        keepers = [node.plan.keeper for node in self.nodes if node.plan.keeper is not None]
        return keepers[0].plan if keepers else None

    def to_dot(self) -> str:
        """The graph in Graphviz' language; edges point the way values flowed."""
        lines = ["digraph cartograd {", "  rankdir=TB; node [shape=box, fontname=monospace];"]
        for node in self.nodes:
            label = f"{node.name}\\n{_shape(node.shape)}".replace('"', "'")
            lines.append(f'  n{id(node)} [label="{label}"];')
            for edge in map(_through_pick, node.parents):
                lines.append(f"  n{id(edge)} -> n{id(node)};")
        for leaf in self.leaves:
            kind = "leaf" if type(leaf) is Leaf else "parameter"
            lines.append(f'  n{id(leaf)} [label="{kind}\\n{_shape(leaf.shape)}", style=filled];')
        return "\n".join([*lines, "}"])

    def __repr__(self) -> str:
        held = sum(saved.bytes for saved in self.saved())
        return f"<Graph of {len(self.nodes)} nodes, {len(self.leaves)} leaves, {_bytes(held)} saved>"


def _through_pick(edge: Any) -> Any:
    return edge.parents[0] if type(edge) is Node and edge.plan is PICK else edge


def _saved_of(node: Node, seen: set[int]) -> list[Saved]:
    """Blocks saved by `node` that are not in `seen`, which they join; Parameters are not counted, they stay anyway."""
    parameters = {edge.untyped_storage().data_ptr() for edge in node.parents if isinstance(edge, torch.Tensor)}
    found = []
    saved, names = node.saved, node.plan.saves
    if isinstance(saved, Stored):
        named = saved.held(names)
    else:
        named = [] if saved is None else list(zip(names, saved, strict=True))
    for name, value in named:
        for item in tensors_in(value):
            storage = item.untyped_storage()
            if storage.data_ptr() not in seen | parameters:
                seen.add(storage.data_ptr())
                found.append(Saved(storage.nbytes(), tuple(item.shape), node.name, name, node.where()))
    return found


def _shape(shape: Any) -> str:
    if shape and not isinstance(shape, torch.Size):
        return " ".join(_shape(one[0]) for one in shape if one is not None)
    return "(" + ",".join(map(str, shape)) + ")"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
