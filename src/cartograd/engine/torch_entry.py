"""``torch.autograd.grad`` and ``torch.autograd.backward`` on results of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine.accumulate import raw
from cartograd.engine.backward import edge_of, run
from cartograd.engine.functional import as_list, grad
from cartograd.engine.primitive import composite
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import UnsupportedError


def require_tensors(*values: Any) -> None:
    """Raise for a ``GradientEdge``, which names a place in a graph of torch's."""
    for value in values:
        if not isinstance(value, (Tensor, torch.Tensor)):
            raise UnsupportedError(
                f"torch.autograd on cartograd tensors takes tensors, not a {type(value).__name__}: "
                "give it the tensor itself"
            )


@composite(torch.autograd.backward)
def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of `tensors` into the ``.grad`` of the leaves, as ``Tensor.backward`` does."""
    roots, targets = as_list(tensors), None if inputs is None else as_list(inputs)
    require_tensors(*roots, *(targets or []))
    gradients = [None] * len(roots) if grad_tensors is None else as_list(grad_tensors)
    edges = None if targets is None else [edge_of(one) for one in targets]
    run(roots, gradients, edges, retain_graph, create_graph, store=True)


@composite(torch.autograd.grad)
def torch_grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradient at each input: a plain tensor for a plain input, unless the pass is recorded."""
    outputs, inputs = as_list(outputs), as_list(inputs)
    require_tensors(*outputs, *inputs)
    allowed = materialize_grads if allow_unused is None else allow_unused

    def once(seeds: Any, retain: bool | None) -> tuple[Any, ...]:
        return grad(outputs, inputs, seeds, retain_graph=retain, create_graph=create_graph, allow_unused=bool(allowed))

    if is_grads_batched:
        found = _for_each_row(once, as_list(grad_outputs), bool(retain_graph or create_graph))
    else:
        found = once(grad_outputs, retain_graph)
    if materialize_grads:
        found = tuple(_zeros_like(given) if one is None else one for one, given in zip(found, inputs, strict=True))
    plain = [not create_graph and type(given) is not Tensor for given in inputs]
    return tuple(one.data if one is not None and p else one for one, p in zip(found, plain, strict=True))


def _for_each_row(once: Callable[..., Any], seeds: list[Any], retain: bool) -> tuple[Any, ...]:
    """Return the gradients for each row of `seeds`, stacked."""
    count = len(seeds[0])
    rows = [once([None if s is None else s[i] for s in seeds], retain or i < count - 1) for i in range(count)]
    return tuple(None if column[0] is None else torch.stack(list(column)) for column in zip(*rows, strict=True))


def _zeros_like(given: Any) -> Tensor:
    return from_raw(torch.zeros_like(raw(given), requires_grad=False))
