"""The inner loop of an ordinary backward pass, written out for speed.

It does what `Pass.visit` does for nodes that nobody watches and whose rules serve one input each, and leaves all
others to `Pass.visit`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor as Plain

from cartograd.engine import modes
from cartograd.engine.accumulate import fit
from cartograd.engine.apply import is_metadata, version_of
from cartograd.engine.graph import CPU, Leaf, Node
from cartograd.errors import InplaceError

if TYPE_CHECKING:
    from cartograd.engine.backward import Pass

BelowAutograd: Any = torch._C._AutoDispatchBelowAutograd


def sweep(task: Pass) -> None:
    """Run `task` until its heap is empty."""
    below: list[Any] = []
    try:
        run_down(task, below)
    finally:
        below.clear()  # an error's traceback would hold it, and so keep torch's autograd off


def run_down(task: Pass, below: list[Any]) -> None:
    """The loop itself. In `below` it puts what keeps torch's autograd out of its kernels, 0.2 us each, as our rules are
    no business of it, and takes it out for whatever may be somebody else's.
    """
    heap, totals, leaves, owned = task.heap, task.totals, task.leaves, task.owned
    free = not task.retain_graph
    while heap:
        node = heappop(heap)[1]
        total = totals.pop(node)
        value = None
        following_total: Any = None
        while True:
            plan, saved, parents = node.plan, node.saved, node.parents
            rules = plan.each
            if (
                rules is None
                or saved is None
                or node.watchers is not None
                or modes.watchers
                or task.expected is not None
            ):
                below.clear()
                task.visit(node, total)
                break
            if plan.bare:
                if not below:
                    below.append(BelowAutograd())
            elif below:
                below.clear()
            if saved:
                version = 0
                for value in saved:
                    if isinstance(value, Plain):
                        version += value._version
                    elif type(value) is tuple or type(value) is list:
                        version += version_of(value)
                if version != node.version:
                    check_version(node, saved)
            position, following, elementwise = 0, None, plan.op.elementwise
            for rule, used in rules:
                edge = parents[position]
                position += 1
                try:
                    if not used:
                        gradient = rule(total)
                    elif len(used) == 1:
                        gradient = rule(total, saved[used[0]])
                    else:
                        gradient = rule(total, *[saved[slot] for slot in used])
                except Exception as error:
                    note(error, node)
                    raise
                if gradient is None:
                    continue
                kind = type(edge)
                if gradient is total or elementwise:
                    if edge.shape is not node.shape or edge.dtype is not node.dtype:
                        gradient = fit(gradient, edge, node)
                elif (
                    type(gradient) is not Plain
                    or gradient.shape != edge.shape
                    or gradient.dtype is not edge.dtype
                    or not (edge.device is CPU if kind is Node or kind is Leaf else edge.is_cpu)
                    or not gradient.is_cpu
                ):
                    gradient = fit(gradient, edge, node)
                if kind is Node:
                    if following is None and edge not in totals:
                        following, following_total = edge, gradient
                        continue
                    if edge is following:
                        if id(edge) in owned:
                            following_total.add_(gradient)
                        else:
                            owned.add(id(edge))
                            following_total = following_total + gradient
                        continue
                    before = totals.get(edge)
                    if before is None:
                        totals[edge] = gradient
                        heappush(heap, (-edge.number, edge))
                    elif id(edge) in owned:
                        before.add_(gradient)
                    else:
                        owned.add(id(edge))
                        totals[edge] = before + gradient
                    continue
                if edge.watchers is not None if kind is Leaf else edge._post_accumulate_grad_hooks:
                    below.clear()
                    if following is not None:  # what leads on from there is counted by what is in the heap
                        totals[following] = following_total
                        heappush(heap, (-following.number, following))
                        following = following_total = None
                    task.deliver_watched(node, position - 1, gradient)
                    continue
                slot = leaves.get(id(edge))
                if slot is None:
                    leaves[id(edge)] = [edge, gradient]
                elif id(edge) in owned:
                    slot[1].add_(gradient)
                else:
                    owned.add(id(edge))
                    slot[1] = slot[1] + gradient
            if free and saved and (isinstance(saved[0], Plain) or not is_metadata(saved)):
                node.saved = None
            saved = value = gradient = None  # hold on to nothing while the next node runs
            if following is not None:  # the next node, past heap and dictionary, if it is the newest left
                if not heap or -heap[0][0] < following.number:
                    node, total = following, following_total
                    following_total = None
                    continue
                totals[following] = following_total
                heappush(heap, (-following.number, following))
                following_total = None
            if not heap:
                return
            node = heappop(heap)[1]
            total = totals.pop(node)


def note(error: Exception, node: Node) -> None:
    """Add the op and the user's call to what an error says."""
    error.add_note(f"in the gradient of {node.name}, called at {node.where()}")


def check_version(node: Node, saved: tuple[Any, ...]) -> None:
    """Raise if a saved tensor was changed in place since it was saved."""
    version = version_of(saved)
    if version != node.version:
        raise InplaceError(
            f"a tensor that {node.name} (called at {node.where()}) saved for its gradient was changed in place "
            f"afterwards (version {version}, saved at version {node.version}): "
            "change a copy instead (.clone()), or change it before it is used"
        )
