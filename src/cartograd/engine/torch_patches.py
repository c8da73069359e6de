"""Everything that cartograd replaces in torch, in one place.

Torch consults ``__torch_function__`` for nearly everything. What it does not ask about would lose gradients silently,
so it is replaced here, each entry on its own:

- ``torch.autograd.Function.apply`` calls the forward with grad mode off, so a `Tensor` would come out detached. It
  runs as any function without a rule of ours does: on plain tensors, with torch's vjp kept.
- A module's full backward hooks find torch tensors only and would never be called. They are refused.

Without a `Tensor` among the arguments, torch's own code runs unchanged. A torch that has no such entry is still
imported: one warning in the log names what does not work with it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import hooks

from cartograd.engine.fallback import run_torch
from cartograd.engine.tensor import Tensor
from cartograd.errors import UnsupportedError

logger = logging.getLogger("cartograd.engine")


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Set ``owner.name`` to ``make(original)``, unless an earlier call did.

    The original is the object in the class dictionary (a function, a ``classmethod``, a method written in C), so
    `make` can bind it to any class with ``original.__get__(None, cls)``.
    """
    original = inspect.getattr_static(owner, name)
    if not is_ours(original):
        setattr(owner, name, make(original))


def is_ours(method: Any) -> bool:
    """Return whether `method` is a replacement made by this module."""
    return getattr(getattr(method, "__func__", method), "__module__", None) == __name__


def replace_apply() -> None:
    """Make ``torch.autograd.Function.apply`` record a custom function that is called on a `Tensor`."""
    replace(torch.autograd.Function, "apply", recorded_apply)


def recorded_apply(original: Any) -> Any:
    """Return the class method that stands for `original`, torch's own ``apply``."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call = original.__get__(None, cls)
        if not any(map(holds_tensor, (*args, *kwargs.values()))):
            return call(*args, **kwargs)

        def run(*plain: Any, **options: Any) -> Any:
            return call(*plain, **options)

        run.__name__ = cls.__name__
        return run_torch(run, args, kwargs)

    return classmethod(apply)


def holds_tensor(value: Any) -> bool:
    """Return whether `value` is a `Tensor`, or a list, tuple or dict with one inside."""
    if type(value) in (tuple, list):
        return any(map(holds_tensor, value))
    if type(value) is dict:
        return any(map(holds_tensor, value.values()))
    return type(value) is Tensor


def refuse_backward_hooks() -> None:
    """Make the full backward hooks of modules raise where a `Tensor` goes in or out."""
    for name in ("setup_input_hook", "setup_output_hook"):
        replace(hooks.BackwardHook, name, refusing)


def refusing(original: Any) -> Any:
    """Return the method that stands for `original`, which sets up a module's backward hooks."""

    def checked(self: Any, args: Any) -> Any:
        if holds_tensor(args):
            raise UnsupportedError(
                "a module's full backward hook cannot see cartograd tensors: use tensor.register_hook() on its input "
                "or output, or parameter.register_hook()"
            )
        return original(self, args)

    return checked


REPLACEMENTS: dict[str, Callable[[], None]] = {
    "torch.autograd.Function": replace_apply,
    "full backward hooks of modules": refuse_backward_hooks,
}
"""What does not work with a `Tensor` unless it is replaced, and the function that replaces it."""


def adopt() -> None:
    """Replace everything; do nothing the second time."""
    missing = []
    for feature, install in REPLACEMENTS.items():
        try:
            install()
        except (AttributeError, TypeError):
            missing.append(feature)
    if missing:
        logger.warning(
            "torch %s differs from the versions cartograd knows: with cartograd tensors, do not use %s",
            torch.__version__,
            ", ".join(missing),
        )


adopt()
