"""The backward pass: seed, walk newest first, accumulate, hooks, free.

The order of a pass, at every tensor it reaches, is: all contributions are summed, in the order of their consumers'
creation numbers from newest to oldest (and of their inputs within one consumer); the tensor's hooks run once, on
that total, in the order they were registered; `retain_grad` keeps the result; the node's rules run, or the leaf's
``.grad`` is accumulated and its post-accumulate hooks run.

Because a consumer's number is always above its producers', a heap on the number needs no dependency counts: when a
node comes out of the heap, everything that could still contribute to it has run.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.accumulate import ALONE, accumulate, fit, is_private, raw, require_fit, settle
from cartograd.engine.apply import PICK, is_metadata
from cartograd.engine.graph import Leaf, Node, leads_to, walk
from cartograd.engine.hooks import (
    call_hooks,
    call_parameter_hooks,
    has_post_hooks,
    new_watchers,
    owner,
    post_hooks,
    retain,
)
from cartograd.engine.sweep import check_version, note, sweep
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.engine.torch_graph import hand_over, is_torchs_result, leaves_of, results_leading_to
from cartograd.errors import (
    GraphFreedError,
    NoGradientError,
    NonScalarRootError,
    OptionError,
    UnsupportedError,
    VjpError,
)

MOST_WORKERS = 1024


def backward(
    root: Any,
    gradient: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Any] | None = None,
    workers: int = 1,
) -> None:
    """See `Tensor.backward`."""
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
        raise OptionError(f"workers must be a whole number from 1 to {MOST_WORKERS}, got {workers!r}")
    if inputs is not None and isinstance(inputs, (Tensor, torch.Tensor)):
        inputs = [inputs]
    if inputs is not None and len(inputs) == 0:
        raise UnsupportedError("inputs=[] asks for no gradient at all; leave it out for those of every leaf")
    targets = None if inputs is None else [edge_of(one) for one in inputs]
    run([root], [gradient], targets, retain_graph, create_graph, store=True, workers=workers)


def run(
    roots: Sequence[Any],
    gradients: Sequence[Any],
    targets: list[Any] | None,
    retain_graph: bool | None,
    create_graph: bool,
    store: bool,
    workers: int = 1,
) -> dict[int, Any]:
    """One pass from `roots`. Returns the totals at `targets` by the edge's id; stores ``.grad`` if `store`.

    A pass that is recorded, or captured, runs on one thread: the order of what it records is that of the threads.
    Roots are freed whatever they saved, so that a second pass from them raises. Other nodes are only if they saved
    tensors: another root may share them.
    """
    task = Pass(targets, create_graph if retain_graph is None else retain_graph, create_graph, store)
    seeds = [seed(root, gradient, create_graph) for root, gradient in zip(roots, gradients, strict=True)]
    if targets is not None:
        edges = [edge for edge, _ in seeds]
        task.useful = leads_to(edges, {id(target) for target in targets} | results_leading_to(edges, targets))
    before, checked = torch.is_grad_enabled(), torch.is_anomaly_enabled()
    torch._C._set_grad_enabled(create_graph)
    if checked:
        modes.add_watchers(1)
    try:
        if workers > 1 and not create_graph and modes.watch.capture is None:
            from cartograd.engine.parallel import run_parallel

            run_parallel(task, seeds, workers)
        else:
            task.walk(seeds)
        task.finish_leaves()
    finally:
        if not task.retain_graph:
            for root in roots:
                node = root._edge if type(root) is Tensor else None
                if type(node) is Node and type(node.saved) is tuple and node.plan is not PICK:
                    node.saved = None
        if checked:
            modes.add_watchers(-1)
        torch._C._set_grad_enabled(before)
    return task.captured


def edge_of(tensor: Any) -> Any:
    """The place in the graph of something a user wants a gradient for."""
    edge = tensor._edge if type(tensor) is Tensor else tensor
    if edge is None or (isinstance(edge, torch.Tensor) and not edge.requires_grad):
        raise NoGradientError(f"a gradient is wanted for {tensor!r}, which does not require grad")
    return edge


def seed(root: Any, gradient: Any, create_graph: bool) -> tuple[Any, Any]:
    """(edge, gradient) a pass starts from: ones for one element, else what was given, of exactly the root's shape."""
    edge = root._edge if type(root) is Tensor else (root if root.requires_grad else None)
    if edge is None:
        raise NoGradientError(
            "backward() was called on a tensor that does not require grad: nothing it was computed from does, "
            "or it was computed under no_grad()"
        )
    data = raw(root)
    if gradient is None:
        if data.numel() != 1:
            raise NonScalarRootError(
                f"backward() needs gradient= for a root of more than one element; this one has shape "
                f"{tuple(data.shape)}. Give a gradient of that shape, or reduce it, for example with .sum()."
            )
        gradient = torch.ones_like(data, requires_grad=False)
    else:
        require_fit(raw(gradient), data.shape, data.dtype, data.device, "gradient")
    if create_graph and type(gradient) is not Tensor:
        gradient = from_raw(gradient.detach(), gradient if gradient.requires_grad else None)
    if create_graph:
        return edge, gradient
    return edge, raw(gradient).detach() if raw(gradient).requires_grad else raw(gradient)


class Pass:
    """The state of one backward pass."""

    def __init__(self, targets: list[Any] | None, retain_graph: bool, create_graph: bool, store: bool) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.store = store
        self.wanted = targets
        self.targets = None if targets is None else {id(target) for target in targets}
        self.useful: set[int] | None = None
        self.captured: dict[int, Any] = {}
        self.totals: dict[Any, Any] = {}  # node -> sum so far; a list of slots for multi-output ops
        self.owned: set[int] = set()  # ids of edges whose sum this pass made itself and may add to in place
        self.leaves: dict[int, list[Any]] = {}  # id -> [leaf, sum so far]
        self.expected: dict[int, int] | None = None  # contributions still to come, where somebody waits for them
        self.heap: list[tuple[int, Node]] = []

    def walk(self, seeds: list[tuple[Any, Any]]) -> None:
        """Walk from the seeds until no node is left."""
        for edge, gradient in seeds:
            self.deliver(edge, gradient)
        if self.targets is None and not self.create_graph:
            sweep(self)
        while self.heap:
            node = heapq.heappop(self.heap)[1]
            self.visit(node, self.totals.pop(node))

    def finish_leaves(self) -> None:
        """Finish what leaves are left, in the order they were first reached."""
        slot: Any = None
        for slot in self.leaves.values():  # as `is_torchs_result`, written out for speed
            if type(slot[0]) is not Leaf and slot[0].grad_fn is not None:
                hand_over(self)
                break
        slot = None  # a second reference to a total would have it copied below
        hurry = self.targets is None and self.store and not self.create_graph and not modes.watchers
        for key in list(self.leaves):
            if hurry and settle(self.leaves[key]):
                del self.leaves[key]
            else:
                self.finish(key)

    def visit(self, node: Node, total: Any) -> None:
        """Everything that happens at one node once its gradient is complete."""
        if node.watchers is not None or self.targets is not None:
            total = self.watched(node, total)
            if total is None:
                return
        self.step(node, total)

    def step(self, node: Node, total: Any) -> None:
        """Run the rules of one node and hand on what they give."""
        if node.plan is PICK:
            self.deliver_slot(node.parents[0], node.saved[0], total)
            return
        for position, gradient in enumerate(self.fitted(node, total)):
            edge = node.parents[position]
            if type(edge) is not Node:
                self.deliver_watched(node, position, gradient)
            elif gradient is not None:
                self.deliver(edge, gradient)

    def fitted(self, node: Node, total: Any) -> list[Any]:
        """What the rules of one node give for each parent, fitted to it; `None` where nothing is given or wanted."""
        saved = node.saved
        if saved is None:
            raise GraphFreedError(
                f"the graph was already walked, and what {node.name} (called at {node.where()}) had saved is freed: "
                "pass retain_graph=True to the first backward()"
            )
        if type(saved) is tuple:
            if saved:
                check_version(node, saved)
            gradients = self.gradients(node, total, saved)
        else:
            gradients = self.gradients_of_stored(node, total, saved)
        if not (self.retain_graph or (type(saved) is tuple and is_metadata(saved))):
            node.saved = None
        parents = node.parents
        if len(gradients) != len(parents):
            raise VjpError(
                f"{node.name} (called at {node.where()}) returned {len(gradients)} gradients for {len(parents)}"
            )
        shape, dtype, useful = node.shape, node.dtype, self.useful
        for position, gradient in enumerate(gradients):
            edge = parents[position]
            if gradient is not None and (useful is None or id(edge) in useful):
                if gradient is not total or edge.shape is not shape or edge.dtype is not dtype:
                    gradients[position] = fit(gradient, edge, node)
            else:
                gradients[position] = None
        return gradients

    def gradients_of_stored(self, node: Node, total: Any, stored: Any) -> list[Any]:
        """As `gradients`, for a node whose saved values have to be fetched first."""
        last = False
        saved = stored.fetch(node)
        try:
            gradients = self.gradients(node, total, saved)
            last = not self.retain_graph
            return gradients
        finally:
            del saved
            stored.release(last)

    def gradients(self, node: Node, total: Any, saved: tuple[Any, ...]) -> list[Any]:
        """What the rules of `node` return, recorded themselves if the pass is."""
        if node.plan.op.multiple:
            total = materialise(total, node.shape, self.create_graph)
        try:
            if self.create_graph:
                gradients = again(node, total, saved)
            elif modes.watchers and modes.watch.capture is not None:
                gradients = modes.watch.capture.rules(node, total, saved)
            elif node.plan.keeper is not None:
                gradients = node.plan.keeper.gradients(node, total, saved)
            else:
                gradients = node.plan.gradients(total, saved)
        except Exception as error:
            note(error, node)
            raise
        if modes.watchers:
            from cartograd.engine.anomaly import check_backward

            check_backward(node, total, gradients, saved)
            if modes.watch.budget is not None:
                modes.watch.budget.count(gradients)
        return gradients

    def deliver(self, edge: Any, gradient: Any) -> None:
        """Add one contribution to the sum at `edge`."""
        node = type(edge) is Node
        if node and edge not in self.totals:
            self.totals[edge] = gradient
            heapq.heappush(self.heap, (-edge.number, edge))
        elif not node and id(edge) not in self.leaves:
            self.leaves[id(edge)] = [edge, gradient]
        else:
            before = self.totals.pop(edge) if node else self.leaves[id(edge)].pop()
            alone = sys.getrefcount(before) <= ALONE
            before = self.add(before, gradient, id(edge), alone)
            if node:
                self.totals[edge] = before
            else:
                self.leaves[id(edge)].append(before)

    def deliver_watched(self, node: Node, position: int, gradient: Any) -> None:
        """Add a contribution of `node` to a leaf that somebody waits for."""
        edge = node.parents[position]
        if self.expected is None and has_post_hooks(edge):
            self.expect(node.parents[position:])
        if gradient is not None:
            self.deliver(edge, gradient)
        if self.expected is not None:
            self.count_down(edge)

    def deliver_slot(self, node: Node, index: int, gradient: Any) -> None:
        """Put the gradient of output `index` where the multi-output `node` finds it."""
        slots = self.totals.get(node)
        if slots is None:
            slots = self.totals[node] = [None] * len(node.shape)
            heapq.heappush(self.heap, (-node.number, node))
        slots[index] = gradient if slots[index] is None else slots[index] + gradient

    def add(self, total: Any, gradient: Any, key: int, alone: bool = False) -> Any:
        """`total + gradient`, in place where nobody else can see `total` and nothing is recorded."""
        if self.create_graph:
            return total + gradient
        if key in self.owned or (alone and is_private(total)):
            self.owned.add(key)
            return total.add_(gradient)
        self.owned.add(key)
        return total + gradient

    def expect(self, undelivered: tuple[Any, ...]) -> None:
        """Count what every leaf will still get: from now on, somebody waits for one of them.

        `undelivered` are the edges of the node now running that its gradients have not been handed to yet.
        """
        self.expected = {}
        below = walk([*undelivered, *(node for _, node in self.heap)])
        edges = [
            edge for edge in itertools.chain(undelivered, *(node.parents for node in below)) if type(edge) is not Node
        ]
        results = [edge for edge in [*edges, *(leaf for leaf, _ in self.leaves.values())] if is_torchs_result(edge)]
        for edge in [*edges, *leaves_of(results)]:  # what torch contributes comes last, and is never counted down
            self.expected[id(edge)] = self.expected.get(id(edge), 0) + 1

    def count_down(self, edge: Any) -> None:
        """Finish a leaf with post-accumulate hooks as soon as its last contribution is in."""
        assert self.expected is not None
        self.expected[id(edge)] = self.expected.get(id(edge), 0) - 1
        if self.expected[id(edge)] == 0 and has_post_hooks(edge) and id(edge) in self.leaves:
            self.finish(id(edge))

    def watched(self, node: Node, total: Any) -> Any:
        """Hooks, retain_grad and captures at one node; `None` if the pass need not go on below it."""
        if node.watchers is not None and type(total) is not list:
            try:
                total = call_hooks(node.watchers, total)
            except Exception as error:
                error.add_note(f"in a hook on the result of {node.name}, called at {node.where()}")
                raise
        wanted = self.targets is not None and id(node) in self.targets
        if wanted:
            self.captured[id(node)] = total
        if self.store and (wanted or (node.watchers is not None and node.watchers.retains)):
            retain(node.watchers or new_watchers(node), total, self.create_graph)
        return total if self.useful is None or any(id(p) in self.useful for p in node.parents) else None

    def finish(self, key: int) -> None:
        """Hooks, accumulation and post-accumulate hooks of one leaf."""
        leaf, total = self.leaves.pop(key)
        if type(leaf) is Leaf:
            if leaf.watchers is not None:
                total = call_hooks(leaf.watchers, total)
        elif leaf._backward_hooks:
            total = call_parameter_hooks(leaf, total)
        if self.targets is not None:
            if key in self.targets:
                self.captured[key] = total
            else:
                return
        if not self.store:
            return
        alone = sys.getrefcount(total) <= ALONE
        accumulate(leaf, total, alone, self.create_graph)
        if has_post_hooks(leaf):
            for hook in post_hooks(leaf):
                hook(owner(leaf))


def again(node: Node, total: Any, saved: tuple[Any, ...]) -> list[Any]:
    """The gradients of `node` as recorded ops, for ``create_graph=True``."""
    from cartograd.engine.twice import differentiable_gradients

    return differentiable_gradients(node, total, saved)


def materialise(slots: list[Any], shapes: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Zeros for the outputs that nothing was computed from."""
    full = []
    for slot, meta in zip(slots, shapes, strict=True):
        if slot is None and meta is not None:
            slot = torch.zeros(meta[0], dtype=meta[1], device=meta[2])
            slot = from_raw(slot) if create_graph else slot
        full.append(slot)
    return tuple(full)
