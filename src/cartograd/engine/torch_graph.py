"""Torch's own graphs, where one of ours goes on into one.

An op of Parameters alone, ``(weight ** 2).sum()``, is recorded by torch. Used in an op of ours, its result is a parent
like a Parameter: a plain tensor that requires grad, but one with a ``grad_fn``. A pass that arrives there hands the
totals at all plain tensors to torch in one call. Torch then adds up, at each Parameter, what both graphs contribute,
runs the Parameter's hooks once, on the sum, and accumulates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from cartograd.engine import modes
from cartograd.engine.accumulate import raw
from cartograd.engine.graph import Leaf, walk
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import NotTwiceDifferentiableError, UnsupportedError

if TYPE_CHECKING:
    from cartograd.engine.backward import Pass


def is_torchs_result(edge: Any) -> bool:
    """Return whether `edge` is a tensor that torch's autograd has computed."""
    return isinstance(edge, torch.Tensor) and edge.grad_fn is not None


def edge_of_torch(tensor: torch.Tensor) -> GradientEdge:
    """Return the place of `tensor` in torch's graph."""
    with modes.left_to_torch:  # torch makes a view of a leaf to find it
        return get_gradient_edge(tensor)


def functions_below(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Yield every function of the torch graphs under `tensors`, each once, in an order that the graphs decide."""
    stack = [edge_of_torch(tensor).node for tensor in tensors if tensor.requires_grad]
    seen = set()
    while stack:
        function = stack.pop()
        if function not in seen:
            seen.add(function)
            yield function
            stack.extend(below for below, _ in function.next_functions if below is not None)


def leaves_of(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaves of the torch graphs under `tensors`."""
    return [function.variable for function in functions_below(tensors) if hasattr(function, "variable")]


def results_leading_to(roots: list[Any], targets: list[Any]) -> set[int]:
    """Return the ids of those results of torch under `roots` that were computed from one of `targets`."""
    wanted = {edge_of_torch(target).node for target in targets if isinstance(target, torch.Tensor)}
    if not wanted:
        return set()
    edges = [*roots, *(parent for node in walk(roots) for parent in node.parents)]
    results = {id(edge): edge for edge in edges if is_torchs_result(edge)}
    return {key for key, edge in results.items() if not wanted.isdisjoint(functions_below([edge]))}


def hand_over(task: Pass) -> None:
    """Go on into torch's graphs with the totals at all plain tensors that `task` has reached."""
    if modes.watch.capture is not None:
        raise UnsupportedError("a captured step cannot go on into a graph of torch's own: detach() what comes from it")
    slots = [task.leaves.pop(key) for key in list(task.leaves) if type(task.leaves[key][0]) is not Leaf]
    tensors, totals = [edge for edge, _ in slots], [total for _, total in slots]
    inputs = None
    if task.wanted is not None:
        inputs = list({id(edge): edge for edge in task.wanted if isinstance(edge, torch.Tensor)}.values())
    if not task.store:
        assert inputs is not None
        found = _gradients(task, tensors, totals, inputs)
        task.captured.update({id(edge): one for edge, one in zip(inputs, found, strict=True) if one is not None})
        return
    _refuse_recorded(tensors, totals)
    with modes.left_to_torch:
        torch.autograd.backward(
            tensors, [raw(total) for total in totals], task.retain_graph, task.create_graph, inputs=inputs
        )


def _refuse_recorded(tensors: list[torch.Tensor], totals: list[Any]) -> None:
    for tensor, total in zip(tensors, totals, strict=True):
        if type(total) is Tensor and total.requires_grad:
            raise NotTwiceDifferentiableError(
                "backward(create_graph=True) would have to hand a recorded gradient to torch's own graph, which cannot "
                f"carry it (at a torch tensor of shape {tuple(tensor.shape)}): compute that tensor with cartograd, "
                "too, for example inside cartograd.recording()"
            )


def _gradients(task: Pass, tensors: list[torch.Tensor], totals: list[Any], inputs: list[torch.Tensor]) -> list[Any]:
    """Return the gradient at each of `inputs`, None where there is none; recorded if the pass is."""
    recorded = {i: total for i, total in enumerate(totals) if type(total) is Tensor and total.requires_grad}
    seeds = [raw(total).detach().requires_grad_(i in recorded) for i, total in enumerate(totals)]
    with modes.left_to_torch:
        found = torch.autograd.grad(
            tensors, inputs, seeds, task.retain_graph, create_graph=task.create_graph, allow_unused=True
        )
    if not recorded:
        return [from_raw(one, one) if one is not None and one.requires_grad else one for one in found]
    return _recorded_gradients(found, inputs, [seeds[i] for i in recorded], list(recorded.values()))


def _recorded_gradients(found: Any, inputs: list[torch.Tensor], seeds: list[torch.Tensor], totals: list[Any]) -> Any:
    """Record `found`, which torch has computed from `seeds`, the values of `totals`, as results of ours."""
    from cartograd.engine.fallback import record_call

    if any(one.grad_fn is not None for one in inputs):
        raise NotTwiceDifferentiableError(
            "the gradient at a result of torch's own graph cannot be differentiated again: compute that result with "
            "cartograd, too, for example inside cartograd.recording()"
        )

    def vjp() -> None:
        """Name the node; there is nothing to call."""

    outputs = [one for one in found if one is not None and one.requires_grad]
    leaves = [leaf for leaf in leaves_of(outputs) if all(leaf is not seed for seed in seeds)]
    edges = (*leaves, *(total._edge for total in totals))
    made = iter(record_call(vjp, edges, [*leaves, *seeds], outputs))
    return [one if one is None or not one.requires_grad else next(made) for one in found]
