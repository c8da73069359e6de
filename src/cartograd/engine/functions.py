"""``torch.autograd.Function`` on our tensors.

Torch calls the forward of a custom `Function` with grad mode off and without asking `__torch_function__`, so a `Tensor`
of ours would come out detached, and silently so. Its `apply` is therefore taught to look for one, and to run as any
other function without a rule of ours does: on plain tensors, with torch's vjp kept.
"""

from __future__ import annotations

from typing import Any

import torch

from cartograd.engine.fallback import run_torch
from cartograd.engine.tensor import Tensor

_original = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    if any(type(value) is Tensor for value in args):

        def run(*plain: Any, **options: Any) -> Any:
            return _original(cls, *plain, **options)

        run.__name__ = cls.__name__
        return run_torch(run, args, kwargs)
    return _original(cls, *args, **kwargs)


def adopt() -> None:
    """Teach it; does nothing the second time."""
    if torch.autograd.Function.apply.__func__ is not _apply:  # type: ignore[attr-defined]
        torch.autograd.Function.apply = classmethod(_apply)  # type: ignore[assignment,method-assign]


adopt()
