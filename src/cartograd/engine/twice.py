"""The gradient of a node as recorded ops, for ``create_graph=True``.

Saved inputs are put back into the graph at the place they came from (the node's own parents), saved outputs at the
node itself. The rule then runs on `Tensor`s and is recorded like any other computation.
"""

from __future__ import annotations

from typing import Any

import torch

from cartograd.engine.apply import pick_output
from cartograd.engine.graph import Node
from cartograd.engine.plan import ListPlan
from cartograd.engine.primitive import Primitive
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import CartogradError, NotTwiceDifferentiableError


def differentiable_gradients(node: Node, g: Any, saved: tuple[Any, ...]) -> list[Any]:
    """As ``plan.gradients``, on `Tensor`s; raises where the rule cannot be differentiated again."""
    from cartograd.engine.fallback import TorchPlan, vjp_again

    plan = node.plan
    if isinstance(plan, TorchPlan):
        return vjp_again(node, g, saved)
    op = plan.op
    if op.restated is not None:
        return _through_restatement(op, node, g, saved)
    if op.once is not None:
        raise NotTwiceDifferentiableError(
            f"{op.name} (called at {node.where()}) cannot be differentiated twice: {op.once}"
        )
    try:
        return plan.gradients(g, _connected(node, saved))
    except CartogradError:
        raise
    except RuntimeError as error:
        if "not implemented" in str(error) or "not differentiable" in str(error):
            raise NotTwiceDifferentiableError(
                f"{op.name} (called at {node.where()}) cannot be differentiated twice: {error}"
            ) from error
        raise


def placed(value: Any, edge: Any) -> Any:
    """A saved input as a `Tensor` at its place in the graph, be that a node, a leaf or a Parameter."""
    return from_raw(value.detach(), edge)


def _connected(node: Node, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    op = node.plan.op
    if isinstance(node.plan, ListPlan):
        edges: dict[str, Any] = {}
    else:
        wanted = [name for name, needed in zip(op.inputs, node.plan.need, strict=True) if needed]
        edges = dict(zip(wanted, node.parents, strict=True))
    return tuple(_connect(node, name, value, edges) for name, value in zip(node.plan.saves, saved, strict=True))


def _connect(node: Node, name: str, value: Any, edges: dict[str, Any]) -> Any:
    if name in edges:
        return placed(value, edges[name])
    if name == "out":
        if node.plan.op.multiple:
            return tuple(
                pick_output(node, i, one) if meta is not None else one
                for i, (one, meta) in enumerate(zip(value, node.shape, strict=True))
            )
        return from_raw(value, node)
    if name == "extra" and node.plan.op.extra != "constant" and _has_floats(value):
        raise NotTwiceDifferentiableError(
            f"the gradient rule of {node.name} (called at {node.where()}) uses values its forward computed on the way, "
            "and their own derivative is unknown: declare a restatement with @op.restate, or, if the rule is right "
            'with them as constants, the op with extra="constant"'
        )
    if name == node.plan.op.takes_list:
        edge = iter(node.parents)
        return [placed(one, next(edge)) if needed else one for one, needed in zip(value, node.plan.need, strict=True)]
    return value


def _has_floats(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_floats, value))
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _through_restatement(op: Primitive, node: Node, g: Any, saved: tuple[Any, ...]) -> list[Any]:
    """Differentiate the op's restatement: the same function, composed of ops with rules."""
    from cartograd.engine.functional import grad

    assert op.restated is not None
    values = dict(zip(node.plan.saves, _connected(node, saved), strict=True))
    wanted = [name for name, needed in zip(op.inputs, node.plan.need, strict=True) if needed]
    arguments = {name: values[name] for name in op.params}
    outs = op.restated(**arguments)
    outs, seeds = (outs, g) if op.multiple else ((outs,), (g,))
    pairs = [(out, one) for out, one in zip(outs, seeds, strict=True) if one is not None and type(out) is Tensor]
    return list(
        grad(
            [out for out, _ in pairs],
            [values[name] for name in wanted],
            [one for _, one in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
