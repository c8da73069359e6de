"""``torch.autograd.Function``, and the backward hooks of torch's modules, on our tensors.

Torch calls the forward of a custom `Function` with grad mode off and without asking `__torch_function__`, so a `Tensor`
of ours would come out detached, and silently so. Its `apply` is therefore taught to look for one, and to run as any
other function without a rule of ours does: on plain tensors, with torch's vjp kept. A module's full backward hooks
look for torch tensors only and would never be called, just as silently: they are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from cartograd.engine.fallback import run_torch
from cartograd.engine.tensor import Tensor
from cartograd.errors import UnsupportedError

_original = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    if any(type(value) is Tensor for value in args):

        def run(*plain: Any, **options: Any) -> Any:
            return _original(cls, *plain, **options)

        run.__name__ = cls.__name__
        return run_torch(run, args, kwargs)
    return _original(cls, *args, **kwargs)


def _refusing(setup: Any) -> Any:
    def checked(self: Any, args: Any) -> Any:
        if any(type(value) is Tensor for value in (args if isinstance(args, tuple) else (args,))):
            raise UnsupportedError(
                "a module's full backward hook cannot see cartograd tensors: use tensor.register_hook() on its input "
                "or output, or parameter.register_hook()"
            )
        return setup(self, args)

    return checked


def adopt() -> None:
    """Teach it; does nothing the second time."""
    if torch.autograd.Function.apply.__func__ is not _apply:  # type: ignore[attr-defined]
        torch.autograd.Function.apply = classmethod(_apply)  # type: ignore[assignment,method-assign]
        for name in ("setup_input_hook", "setup_output_hook"):
            setattr(BackwardHook, name, _refusing(getattr(BackwardHook, name)))


adopt()
