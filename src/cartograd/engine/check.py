"""Comparing gradients with finite differences: `gradcheck`, `gradgradcheck`. torch's autograd takes no part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine.functional import fresh, grad
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import GradcheckError, UnsupportedError


def gradcheck(
    function: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compare the gradients of `function` with central differences, element by element.

    Parameters
    ----------
    function : callable
        Takes the inputs, returns a Tensor or a tuple of them.
    inputs : Tensor or tuple
        Those that require grad are checked; float64 is needed for the default tolerances.
    eps : float, default=1e-6
        Step of the difference.
    atol, rtol : float, default=1e-5 and 1e-3
        A gradient passes if ``|analytic - numeric| <= atol + rtol * |numeric|``; a NaN never does.
    raise_exception : bool, default=True
        Raise `GradcheckError` with the place and the two numbers, instead of returning `False`.

    Examples
    --------
    >>> import cartograd, torch
    >>> x = cartograd.tensor([0.3, 0.7], requires_grad=True, dtype=torch.float64)
    >>> gradcheck(lambda x: (x * x).exp(), x)
    True
    """
    values = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    checked = [i for i, one in enumerate(values) if getattr(one, "requires_grad", False)]
    if not checked:
        raise UnsupportedError("gradcheck needs at least one input that requires grad")
    for i in checked:
        if values[i].dtype not in (torch.float64, torch.complex128) and atol < 1e-3:
            raise UnsupportedError(f"input {i} is {values[i].dtype}: use float64, or give an atol of 1e-3 or more")
    # Copies without a history: the check must neither see nor change the caller's gradients.
    values = [Tensor(one.data.clone(), requires_grad=True) if i in checked else one for i, one in enumerate(values)]
    problem = _first_difference(function, values, checked, eps, atol, rtol)
    if problem and raise_exception:
        raise GradcheckError(problem)
    return not problem


def _outputs(function: Callable[..., Any], values: list[Any]) -> list[Tensor]:
    outs = function(*values)
    outs = outs if isinstance(outs, (tuple, list)) else [outs]
    if any(isinstance(out, Tensor) and out.data.is_complex() for out in outs):
        raise UnsupportedError("gradcheck takes real outputs; return torch.view_as_real(z) of a complex one")
    return [out for out in outs if isinstance(out, Tensor) and out.data.is_floating_point()]


def _first_difference(
    function: Callable[..., Any], values: list[Any], checked: list[int], eps: float, atol: float, rtol: float
) -> str:
    outs = _outputs(function, values)
    if not any(out.requires_grad for out in outs):
        raise UnsupportedError("gradcheck needs a function with an output that depends on an input that requires grad")
    for number, out in enumerate(outs):
        for i in checked:
            numeric = _numeric_jacobian(function, values, i, number, eps)
            analytic = _analytic_jacobian(out, values[i])
            far = ~((analytic - numeric).abs() <= atol + rtol * numeric.abs())  # NaN is far
            if far.any():
                row, column = (int(k) for k in far.nonzero()[0])
                return (
                    f"output {number} element {row} by input {i} element {column}: analytic "
                    f"{analytic[row, column].item():.8g}, numeric {numeric[row, column].item():.8g}"
                )
    return ""


def _numeric_jacobian(function: Callable[..., Any], values: list[Any], i: int, number: int, eps: float) -> torch.Tensor:
    moved = list(values)
    moved[i] = from_raw(values[i].data.clone(memory_format=torch.contiguous_format))
    flat = moved[i].data.view(-1)
    columns = []
    with torch.no_grad():
        for k in range(flat.numel()):
            before = flat[k].item()
            ends = []
            for step in (eps, -eps):
                flat[k] = before + step
                ends.append(_outputs(function, moved)[number].data.clone())
            flat[k] = before
            columns.append(((ends[0] - ends[1]) / (2 * eps)).reshape(-1))
        if columns:
            return torch.stack(columns, dim=1)
        return torch.zeros(_outputs(function, moved)[number].data.numel(), 0, dtype=flat.dtype)


def _analytic_jacobian(out: Tensor, value: Tensor) -> torch.Tensor:
    size = out.data.numel()
    rows = torch.zeros(size, value.data.numel(), dtype=value.data.dtype)
    for element in range(size if out.requires_grad else 0):
        unit = torch.zeros(size, dtype=out.data.dtype)
        unit[element] = 1
        (found,) = grad(out, value, unit.view(out.data.shape), retain_graph=True, allow_unused=True)
        if found is not None:
            rows[element] = found.data.reshape(-1)
    return rows


def gradgradcheck(
    function: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
    raise_exception: bool = True,
) -> bool:
    """As `gradcheck`, of the gradient of `function`: second derivatives, by the inputs and by the output's gradient.

    Parameters
    ----------
    function, inputs, eps, atol, rtol, raise_exception
        As for `gradcheck`.
    seed : int, default=0
        Of the random gradients that the outputs are given.
    """
    values = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    checked = [i for i, one in enumerate(values) if getattr(one, "requires_grad", False)]
    leaves = [fresh(one.detach())[0] if i in checked else one for i, one in enumerate(values)]
    generator = torch.Generator().manual_seed(seed)
    seeds = [
        from_raw(torch.rand(out.data.shape, dtype=out.data.dtype, generator=generator) + 0.5).requires_grad_()
        for out in _outputs(function, leaves)
        if out.requires_grad
    ]

    def first(*both: Any) -> Any:
        given, gradients = both[: len(values)], both[len(values) :]
        with torch.enable_grad():
            inner = [one if one.requires_grad else fresh(one)[0] for one in (given[i] for i in checked)]
            call = list(given)
            for i, one in zip(checked, inner, strict=True):
                call[i] = one
            outs = [out for out in _outputs(function, call) if out.requires_grad]
            found = grad(outs, inner, list(gradients), create_graph=True, allow_unused=True)
        return tuple(one for one in found if one is not None)

    return gradcheck(first, (*leaves, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
