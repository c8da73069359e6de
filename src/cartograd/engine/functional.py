"""Derivatives of functions: `grad`, `vjp`, `jvp`, `jacobian`, `hessian`, `hvp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cartograd.engine.backward import edge_of, run
from cartograd.engine.tensor import Tensor, as_torch, from_raw
from cartograd.errors import GradientShapeError, NoGradientError, UnsupportedError


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching any ``.grad``.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensors
        `inputs` may also be ``nn.Parameter``s, and inner tensors of the graph.
    grad_outputs : Tensor or sequence, default=None
        One gradient for each output; may be left out for outputs of one element.
    retain_graph : bool, default=None
        Keep saved values for another pass; `None` means as `create_graph`.
    create_graph : bool, default=False
        Record the pass, so that the results can be differentiated again.
    allow_unused : bool, default=False
        Give `None`, instead of an error, for an input that no output was computed from.

    Returns
    -------
    tuple of Tensor
        One for each input.

    Examples
    --------
    >>> import cartograd
    >>> x = cartograd.tensor(3.0, requires_grad=True)
    >>> (first,) = cartograd.grad(x**3, x, create_graph=True)
    >>> (second,) = cartograd.grad(first, x)
    >>> first.item(), second.item()
    (27.0, 18.0)
    """
    outputs, inputs = as_list(outputs), as_list(inputs)
    gradients = [None] * len(outputs) if grad_outputs is None else as_list(grad_outputs)
    if len(gradients) != len(outputs):
        raise GradientShapeError(f"{len(outputs)} outputs need as many grad_outputs, got {len(gradients)}")
    edges = [edge_of(one) for one in inputs]
    found = run(outputs, gradients, edges, retain_graph, create_graph, store=False)
    results = [found.get(id(edge)) for edge in edges]
    for position, result in enumerate(results):
        if result is None and not allow_unused:
            raise NoGradientError(
                f"input {position} was not used to compute the outputs; pass allow_unused=True to get None for it"
            )
    return tuple(one if one is None or type(one) is Tensor else from_raw(one) for one in results)


def as_list(value: Any) -> list[Any]:
    """Return the items of a tuple or list, or `value` as the only one."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def fresh(values: Any) -> list[Tensor]:
    """New leaves with the same values; already recorded tensors go on in their own graph."""
    return [
        one if type(one) is Tensor and one.requires_grad else Tensor(as_torch(one), requires_grad=True)
        for one in as_list(values)
    ]


def _single(function: Callable[..., Any], inputs: list[Tensor]) -> Tensor:
    out = function(*inputs)
    if type(out) is not Tensor:
        raise UnsupportedError(f"the function must return one Tensor, got {type(out).__name__}")
    return out


def vjp(function: Callable[..., Any], inputs: Any, v: Any = None, *, create_graph: bool = False) -> tuple[Any, Any]:
    """(function(*inputs), the vector-Jacobian product v J): a tuple for several inputs.

    Parameters
    ----------
    function : callable
        Takes the inputs, returns a Tensor or a tuple of them.
    inputs : Tensor or tuple
        Where to take the derivative.
    v : Tensor or tuple, default=None
        Of the output's shape; may be left out for an output of one element.
    create_graph : bool, default=False
        Record the pass, so that the result can be differentiated again.
    """
    leaves = fresh(inputs)
    with torch.enable_grad():
        outs = function(*leaves)
        found = _grad_of_dependent(outs, leaves, v, create_graph)
    return outs, _shaped_as(inputs, _zeros_for_none(found, leaves))


def _grad_of_dependent(outs: Any, leaves: list[Any], v: Any, create_graph: bool) -> Sequence[Any]:
    """`grad`, where outputs that do not depend on the inputs count as constants."""
    every = as_list(outs)
    seeds = [None] * len(every) if v is None else as_list(v)
    pairs = [(out, seed) for out, seed in zip(every, seeds, strict=True) if out.requires_grad]
    if not pairs:
        return [None] * len(leaves)
    return grad(
        [out for out, _ in pairs], leaves, [seed for _, seed in pairs], create_graph=create_graph, allow_unused=True
    )


def jvp(function: Callable[..., Any], inputs: Any, v: Any, *, create_graph: bool = False) -> tuple[Any, Any]:
    """(function(*inputs), the Jacobian-vector product J v), exactly.

    ``u -> u J`` is linear in u, so its own vjp with v is J v: two reverse passes, no finite difference.

    Examples
    --------
    >>> import cartograd
    >>> jvp(lambda x: x * x, cartograd.tensor([1.0, 3.0]), cartograd.tensor([1.0, 1.0]))[1]
    Tensor([2., 6.])
    """
    leaves = fresh(inputs)
    tangents = [Tensor(as_torch(one)) if type(one) is not Tensor else one for one in as_list(v)]
    for leaf, tangent in zip(leaves, tangents, strict=True):
        if leaf.shape != tangent.shape:
            raise GradientShapeError(f"v has shape {tuple(tangent.shape)} for an input of shape {tuple(leaf.shape)}")
    with torch.enable_grad():
        outs = function(*leaves)
        probes = [from_raw(torch.zeros_like(out.data)).requires_grad_() for out in as_list(outs)]
        pulled = _grad_of_dependent(outs, leaves, probes, create_graph=True)
        used = [(p, t) for p, t in zip(pulled, tangents, strict=True) if p is not None]
        pushed = _grad_of_dependent([p for p, _ in used], probes, [t for _, t in used], create_graph)
    return outs, _shaped_as(outs, _zeros_for_none(pushed, probes))


def _zeros_for_none(found: Sequence[Any], like: Sequence[Tensor]) -> list[Any]:
    return [from_raw(torch.zeros_like(o.data)) if f is None else f for f, o in zip(found, like, strict=True)]


def _shaped_as(original: Any, values: list[Any]) -> Any:
    return tuple(values) if isinstance(original, (tuple, list)) else values[0]


def jacobian(function: Callable[..., Any], inputs: Any, *, create_graph: bool = False) -> Any:
    """The Jacobian, of shape ``out.shape + input.shape``; a tuple for several inputs.

    Examples
    --------
    >>> import cartograd
    >>> jacobian(lambda x: x * x, cartograd.tensor([1.0, 3.0]))
    Tensor([[2., 0.],
            [0., 6.]])
    """
    leaves = fresh(inputs)
    with torch.enable_grad():
        out = _single(function, leaves)
        rows: list[list[Any]] = [[] for _ in leaves]
        for element in range(out.data.numel()):
            unit = torch.zeros(out.data.numel(), dtype=out.data.dtype, device=out.data.device)
            unit[element] = 1
            if not out.requires_grad:
                found: Sequence[Any] = [None] * len(leaves)
            else:
                found = grad(
                    out,
                    leaves,
                    unit.view(out.data.shape),
                    retain_graph=True,
                    create_graph=create_graph,
                    allow_unused=True,
                )
            for row, one in zip(rows, _zeros_for_none(found, leaves), strict=True):
                row.append(one)
        made = [
            torch.stack(row).reshape(out.data.shape + leaf.data.shape)
            if row
            else from_raw(torch.zeros(out.data.shape + leaf.data.shape, dtype=leaf.data.dtype))
            for row, leaf in zip(rows, leaves, strict=True)
        ]
    return _shaped_as(inputs, made if create_graph else [one.detach() for one in made])


def hessian(function: Callable[..., Any], inputs: Any, *, create_graph: bool = False) -> Any:
    """The matrix of second derivatives of a function with one element, ``input.shape + input.shape``.

    For several inputs, a tuple of tuples.

    Examples
    --------
    >>> import cartograd
    >>> hessian(lambda x: (x**3).sum(), cartograd.tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    leaves = fresh(inputs)

    def first(position: int) -> Callable[..., Any]:
        def gradient(*values: Any) -> Any:
            out = _single(function, list(values))
            (found,) = _grad_of_dependent(out, [values[position]], None, create_graph=True)
            return from_raw(torch.zeros_like(values[position].data)) if found is None else found

        return gradient

    rows = [jacobian(first(i), tuple(leaves), create_graph=create_graph) for i in range(len(leaves))]
    return tuple(rows) if isinstance(inputs, (tuple, list)) else rows[0][0]


def hvp(function: Callable[..., Any], inputs: Any, v: Any) -> tuple[Any, Any]:
    """(function(*inputs), the Hessian times v) without ever building the Hessian.

    Examples
    --------
    >>> import cartograd
    >>> hvp(lambda x: (x**3).sum(), cartograd.tensor([1.0, 2.0]), cartograd.tensor([1.0, 1.0]))[1]
    Tensor([ 6., 12.])
    """
    leaves = fresh(inputs)
    with torch.enable_grad():
        out = _single(function, leaves)
        first = _grad_of_dependent(out, leaves, None, create_graph=True)
        used = [(g, t) for g, t in zip(first, as_list(v), strict=True) if g is not None]
        found = _grad_of_dependent([g for g, _ in used], leaves, [t for _, t in used], create_graph=False)
    return out, _shaped_as(inputs, _zeros_for_none(found, leaves))
