"""Anything without a rule of ours: run that one function under torch's autograd and keep its vjp.

`graph.explain()` marks such nodes `torch`. With ``create_graph=True`` the vjp itself is run this way, so every
order of derivative that torch has is there, and one that torch lacks is refused, never silently zero.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from cartograd.engine import modes
from cartograd.engine.apply import record, record_many, wrap
from cartograd.engine.plan import Plan
from cartograd.engine.primitive import Primitive
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.engine.torch_graph import edge_of_torch, leaves_of
from cartograd.errors import InplaceError, NotTwiceDifferentiableError

MODULE_METHODS = (torch.ScriptMethod,)
"""Functions that use Parameters which are not among their arguments: the methods of modules of ``torch.jit``."""


class TorchFunction(Primitive):
    """The op of a fallback node: its rule asks torch."""

    def __init__(self, function: Any, multiple: bool) -> None:
        self.function = function
        self.name = getattr(function, "__name__", str(function))
        self.broadcasts = self.elementwise = False
        self.multiple = multiple
        self.once = None
        self.restated = None
        self.sample_rules = self.sample_norms = {}


class TorchCall:
    """The small torch graph that a fallback left: its inputs (leaves there), and where its outputs hang in it.

    The outputs' values are not kept: what torch needs of them, it has saved itself.
    """

    def __init__(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        self.inputs = inputs
        self.outputs = [edge_of_torch(output) for output in outputs]


class TorchPlan(Plan):
    """Gradients from a `TorchCall`, which is all that is saved; torch itself notices in-place changes in it."""

    op: TorchFunction

    def __init__(self, function: Any, multiple: bool) -> None:
        self.op = TorchFunction(function, multiple)
        self.need = ()
        self.saves = ["call"]
        self.single = self.each = self.only = self.unhurried = self.keeper = None

    def gradients(self, g: Any, saved: tuple[Any, ...]) -> list[Any]:
        """Ask torch for the vjp; its graph is kept, for the pass frees `saved` itself."""
        return list(self.ask(saved[0], list(g) if self.op.multiple else [g], create_graph=False))

    def ask(self, call: TorchCall, seeds: list[torch.Tensor], create_graph: bool) -> Any:
        """``torch.autograd.grad`` of the call, its errors as ours."""
        try:
            with modes.left_to_torch:
                return torch.autograd.grad(
                    call.outputs, call.inputs, seeds, retain_graph=True, create_graph=create_graph, allow_unused=True
                )
        except RuntimeError as error:
            text = str(error)
            if "not implemented" in text or "once_differentiable" in text or "not differentiable" in text:
                raise NotTwiceDifferentiableError(f"torch cannot differentiate {self.op.name} again: {text}") from error
            if "modified by an inplace operation" in text:
                raise InplaceError(
                    f"a tensor that {self.op.name} saved for its gradient was changed: {text}"
                ) from error
            raise


def run_torch(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a torch function on `Tensor`s, recorded through torch's autograd where a gradient is wanted."""
    from cartograd.engine import inplace

    if inplace.changes_argument(function, args, kwargs):
        return inplace.run_inplace(function, args, kwargs)
    flat, structure = tree_flatten((args, kwargs))
    edges, inputs, values = [], [], []
    recorded = torch.is_grad_enabled()
    for value in flat:
        edge, data = _edge_and_data(value)
        if recorded and edge is not None:
            data = data.detach().requires_grad_()
            edges.append(edge)
            inputs.append(data)
        values.append(data)
    args, kwargs = tree_unflatten(values, structure)
    hidden = recorded and isinstance(function, MODULE_METHODS)
    with torch.set_grad_enabled(bool(edges) or hidden), modes.left_to_torch:
        if modes.watchers and modes.watch.savers:
            result = modes.watch.savers[-1].call(function, args, kwargs)
        else:
            result = function(*args, **kwargs)
    if hidden:
        parameters = _parameters_below(result, inputs)
        edges += parameters
        inputs += parameters
    return _recorded_result(function, tuple(edges), values, inputs, result)


def _parameters_below(result: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaves of the torch graph of `result` that are not among `inputs`."""
    given = set(map(id, inputs))
    return [leaf for leaf in leaves_of(tree_flatten(result)[0]) if id(leaf) not in given]


def _edge_and_data(value: Any) -> tuple[Any, Any]:
    if type(value) is Tensor:
        return value._edge, value.data
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return value, value.detach()
    return None, torch.as_tensor(value) if isinstance(value, numpy.ndarray) and value.dtype != object else value


def _recorded_result(function: Any, edges: tuple[Any, ...], values: list[Any], inputs: list[Any], result: Any) -> Any:
    leaves, structure = tree_flatten(result)
    connected = [bool(edges) and isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves]
    outputs = [leaf for leaf, one in zip(leaves, connected, strict=True) if one]
    if modes.watchers:
        from cartograd.engine.anomaly import check_forward

        check_forward(getattr(function, "__name__", str(function)), values, leaves)
    recorded = iter(record_call(function, edges, inputs, outputs))
    wrapped = [next(recorded) if one else wrap(leaf) for leaf, one in zip(leaves, connected, strict=True)]
    return tree_unflatten(wrapped, structure)


def record_call(function: Any, edges: tuple[Any, ...], inputs: list[Any], outputs: list[Any]) -> list[Tensor]:
    """The outputs of a call as `Tensor`s with a fallback node."""
    if not outputs:
        return []
    call = TorchCall(inputs, outputs)
    plan = TorchPlan(function, multiple=len(outputs) > 1)
    plain = [output.detach() for output in outputs]
    if plan.op.multiple:
        return list(record_many(plan, edges, (call,), plain))
    return [record(plan, edges, (call,), plain[0])]


def vjp_again(node: Any, g: Any, saved: tuple[Any, ...]) -> list[Any]:
    """The vjp of a fallback node as a recorded op of its inputs and of `g`: torch keeps the graph of it."""
    plan, (call,) = node.plan, saved
    gradients = list(g) if plan.op.multiple else [g]
    seeds = [one.data.detach().requires_grad_() for one in gradients]
    with torch.enable_grad():
        found = plan.ask(call, seeds, create_graph=True)
    moving = [(seed, one._edge) for seed, one in zip(seeds, gradients, strict=True) if one._edge is not None]
    edges = (*node.parents, *(edge for _, edge in moving))
    outputs = [one for one in found if one is not None and one.requires_grad]

    def vjp() -> None:
        """Names the node; there is nothing to call."""

    vjp.__name__ = f"{plan.op.name}_vjp"
    recorded = iter(record_call(vjp, edges, [*call.inputs, *(seed for seed, _ in moving)], outputs))
    return [one if one is None else (next(recorded) if one.requires_grad else from_raw(one.detach())) for one in found]
