"""Anything without a rule of ours: run that one function under torch's autograd and keep its vjp.

`graph.explain()` marks such nodes `torch`. With ``create_graph=True`` the vjp itself is run this way, so every
order of derivative that torch has is there, and one that torch lacks is refused, never silently zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from cartograd.engine import modes
from cartograd.engine.apply import record, record_many
from cartograd.engine.primitive import Plan, Primitive
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import CartogradError, NotTwiceDifferentiableError, UnsupportedError


class TorchFunction(Primitive):
    """The op of a fallback node: its rule asks torch."""

    def __init__(self, function: Any, multiple: bool) -> None:
        self.function = function
        self.name = getattr(function, "__name__", str(function))
        self.broadcasts = False
        self.multiple = multiple
        self.once = None
        self.restated = None


class TorchPlan(Plan):
    """Gradients from the small torch graph that the forward left: saved are its outputs, its inputs, and the call."""

    def __init__(self, function: Any, multiple: bool) -> None:
        self.op = TorchFunction(function, multiple)
        self.need = ()

    def gradients(self, g: Any, saved: tuple[Any, ...]) -> list[Any]:
        """Ask torch for the vjp; its graph is kept, for the pass frees `saved` itself."""
        outputs, inputs, _ = saved
        seeds = [one for one in g if one is not None] if self.op.multiple else [g]
        return list(torch.autograd.grad(outputs, inputs, seeds, retain_graph=True, allow_unused=True))


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
    with torch.set_grad_enabled(bool(edges)):
        result = function(*args, **kwargs)
    return _recorded_result(function, (values, structure), tuple(edges), inputs, result)


def _edge_and_data(value: Any) -> tuple[Any, Any]:
    if type(value) is Tensor:
        return value._edge, value.data
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return value, value.detach()
    return None, value


def _recorded_result(function: Any, call: Any, edges: tuple[Any, ...], inputs: list[Any], result: Any) -> Any:
    leaves, structure = tree_flatten(result)
    connected = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    if modes.watchers:
        from cartograd.engine.anomaly import check_forward

        check_forward(getattr(function, "__name__", str(function)), call[0], plain)
    if not connected:
        wrapped = [from_raw(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in plain]
        return tree_unflatten(wrapped, structure)
    plan = TorchPlan(function, multiple=len(connected) > 1)
    saved = (tuple(connected), tuple(inputs), call)
    details = [leaf.detach() for leaf in connected]
    if plan.op.multiple:
        recorded = iter(record_many(plan, edges, saved, details))
    else:
        recorded = iter([record(plan, edges, saved, details[0])])
    wrapped = [
        next(recorded)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        else (from_raw(leaf) if isinstance(leaf, torch.Tensor) else leaf)
        for leaf in leaves
    ]
    return tree_unflatten(wrapped, structure)


def vjp_again(plan: TorchPlan, parents: list[Any], g: Any, saved: tuple[Any, ...]) -> list[Any]:
    """The vjp of a fallback node as a recorded op: the function is run again inside it, and torch asked for both."""
    _, inputs, (values, structure) = saved
    places = [next(i for i, value in enumerate(values) if value is one) for one in inputs]
    seeds = [one for one in g if one is not None] if plan.op.multiple else [g]

    def vjp(primals: list[torch.Tensor], gradients: list[torch.Tensor]) -> Any:
        return torch_vjp(plan.op.function, values, structure, places, primals, gradients)

    vjp.__name__ = f"{plan.op.name}_vjp"
    try:
        return list(run_torch(vjp, (parents, seeds), {}))
    except CartogradError:
        raise
    except RuntimeError as error:
        raise NotTwiceDifferentiableError(f"torch cannot differentiate {plan.op.name} twice: {error}") from error


def torch_vjp(function: Any, values: list[Any], structure: Any, places: list[int], primals: Any, gradients: Any) -> Any:
    """``torch.autograd.grad`` of `function` at `primals`, itself a differentiable torch function of both."""
    recording = torch.is_grad_enabled()
    with torch.enable_grad():
        primals = [one if one.requires_grad else one.detach().requires_grad_() for one in primals]
        values = list(values)
        for place, primal in zip(places, primals, strict=True):
            values[place] = primal
        args, kwargs = tree_unflatten(values, structure)
        leaves, _ = tree_flatten(function(*args, **kwargs))
        outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        return torch.autograd.grad(
            outputs, primals, gradients, create_graph=recording, allow_unused=True, materialize_grads=True
        )


def refuse_out(name: str) -> None:
    """`out=` writes where no gradient can follow."""
    raise UnsupportedError(f"{name}(out=...) is not differentiable: leave out= away and use the result")
