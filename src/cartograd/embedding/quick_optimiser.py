"""Optimisers of torch without the wait for torch's compiler.

The first optimiser of a process, and its first step, import ``torch._dynamo``: about a second, for a decorator that
matters only where the optimiser itself is compiled. Functions below that decorator are ordinary attributes
(``__wrapped__``, which `functools.wraps` leaves), and the object made here uses those: class, arithmetic, state and
hooks are torch's, so the bits are too. Nothing in torch is changed.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

STEPPED = (SGD, Adam, AdamW)
"""Classes whose `step` asks for the compiler, and whose plain step is known to be the one two wrappers below."""


def quick(kind: type[Optimizer], parameters: list[torch.Tensor], options: dict[str, Any]) -> Optimizer:
    """``kind(parameters, **options)``, at a fraction of the time where it is the first of a process.

    Parameters
    ----------
    kind : type
        An optimiser's class. One that adds groups in a way of its own, or takes steps that are differentiated, is made
        as usual.
    parameters : list of torch.Tensor
        What it moves.
    options : dict
        Its keyword arguments.
    """
    adding = getattr(Optimizer.add_param_group, "__wrapped__", None)
    if adding is None or kind.add_param_group is not Optimizer.add_param_group or options.get("differentiable"):
        return kind(parameters, **options)
    made = kind.__new__(kind)
    own = vars(made)
    own["add_param_group"] = types.MethodType(adding, made)  # found before the class's, by its constructor
    made.__init__(parameters, **options)  # type: ignore[misc]
    del own["add_param_group"]
    stepping = _plain_step(kind)
    if stepping is not None:
        own["step"] = types.MethodType(stepping, made)
    return made


def _plain_step(kind: type[Optimizer]) -> Callable[..., Any] | None:
    """The step of the class below what imports the compiler, with torch's hooks around it; None to leave it."""
    if kind not in STEPPED:
        return None
    asking = getattr(kind.step, "__wrapped__", None)  # the class's step is hooks around this
    plain = getattr(asking, "__wrapped__", None)
    if plain is None or hasattr(plain, "__wrapped__"):
        return None
    hooked: Callable[..., Any] = Optimizer.profile_hook_step(torch.no_grad()(plain))
    return hooked
