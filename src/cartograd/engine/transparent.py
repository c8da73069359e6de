"""Running torch's own Python functions on our Tensors, so that what they call reaches our rules one by one.

Most of ``torch.nn.functional`` is Python that calls smaller torch functions. But such a function first asks
``has_torch_function`` about its arguments, and hands the whole call over as one when a `Tensor` is among them: without
a rule for it, the fallback would differentiate all of it with torch. A function whose body only calls torch functions
needs no rule: its body is right for our Tensors as it stands, once that question is answered with no.

`transparent` makes such a copy: the same code object, with a copy of the module's globals in which the answer is
always no. Nothing of torch is changed, and what the body calls keeps its own globals, so it does reach our rules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import torch

from cartograd.engine.tensor import from_raw


def _never(*relevant_args: Any) -> bool:
    """Answers for ``has_torch_function`` and its kin."""
    return False


_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def transparent(function: Callable[..., Any], **replaced: Any) -> Callable[..., Any]:
    """A copy of a Python function of torch that runs its body on `Tensor`s.

    Parameters
    ----------
    function : callable
        A plain Python function, such as ``torch.nn.functional.normalize``.
    **replaced
        Further names that the body looks up in its module, and what they shall mean.

    Examples
    --------
    >>> import cartograd, torch
    >>> normalize = transparent(torch.nn.functional.normalize)
    >>> normalize(cartograd.tensor([[3.0, 4.0]]))
    Tensor([[0.6000, 0.8000]])
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"only a plain Python function has a body to run, got {function!r}")
    names = {**function.__globals__, **dict.fromkeys(_QUESTIONS, _never), **replaced}
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return made(*map(lifted, args), **{key: lifted(value) for key, value in kwargs.items()})

    return call


def lifted(value: Any) -> Any:
    """A Parameter as a `Tensor` at the same place in the graph: a view of it is then recorded by us, not by torch."""
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        return from_raw(value.detach(), value)
    return value
