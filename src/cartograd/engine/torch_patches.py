"""Everything that cartograd replaces in torch, in one place.

Torch consults ``__torch_function__`` for nearly everything. What it does not ask about would lose gradients silently,
so it is replaced here, each entry on its own:

- ``torch.autograd.Function.apply`` calls the forward with grad mode off, so a `Tensor` would come out detached. It
  runs as any function without a rule of ours does: on plain tensors, with torch's vjp kept.
- A module's full backward hooks find torch tensors only and would never be called. They are refused.
- ``torch.autograd.graph.saved_tensors_hooks`` tells torch's C++ code alone. It applies to what our ops save, too.
- ``torch.distributions`` makes a tensor of a number in the default dtype if it sees no torch tensor beside it. It takes
  the dtype of a `Tensor` as well.
- ``DistributedDataParallel`` averages gradients in torch's own backward pass only. It is refused where ours would run.
- Functions of ``torch.jit`` refuse what is not a torch tensor. They run as functions without a rule of ours do.

Without a `Tensor` among the arguments, torch's own code runs unchanged. A torch that has no such entry is still
imported: one warning in the log names what does not work with it.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable
from numbers import Number
from typing import Any

import torch
from torch import distributions
from torch.utils import hooks
from torch.utils._pytree import tree_leaves

from cartograd.engine.fallback import run_torch
from cartograd.engine.modes import is_recording
from cartograd.engine.saved_hooks import saved_tensors_hooks
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


def replace_script_call() -> None:
    """Make functions of ``torch.jit`` take a `Tensor`."""
    replace(torch.jit.ScriptFunction, "__call__", recorded_script)


def recorded_script(original: Any) -> Any:
    """Return the ``__call__`` that stands for `original`."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = original.__get__(self)
        if not any(map(holds_tensor, (*args, *kwargs.values()))):
            return call(*args, **kwargs)

        def run(*plain: Any, **options: Any) -> Any:
            return call(*plain, **options)

        run.__name__ = self.name
        return run_torch(run, args, kwargs)

    return __call__


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


def refuse_data_parallel() -> None:
    """Make ``DistributedDataParallel`` raise where the gradients of its module would be computed by us."""
    replace(torch.nn.parallel.DistributedDataParallel, "forward", refusing_forward)


def refusing_forward(original: Any) -> Any:
    """Return the ``forward`` that stands for `original`."""

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        recorded = torch.is_grad_enabled()
        if recorded and (is_recording() or any(map(holds_tensor, (*inputs, *kwargs.values())))):
            raise UnsupportedError(NEVER_AVERAGED)
        output = original(self, *inputs, **kwargs)
        if recorded and any(type(one) is Tensor and one.requires_grad for one in tree_leaves(output)):
            raise UnsupportedError(NEVER_AVERAGED)  # an op of ours inside the module met its Parameters
        return output

    return forward


NEVER_AVERAGED = (
    "DistributedDataParallel does not average gradients that cartograd computes: call the wrapped module "
    "(ddp.module) and average after backward(), for example with torch.distributed.all_reduce(parameter.grad)"
)


def replace_saved_hooks() -> None:
    """Make torch's ``saved_tensors_hooks`` apply to what our ops save."""
    replace(torch.autograd.graph.saved_tensors_hooks, "__enter__", entering)
    replace(torch.autograd.graph.saved_tensors_hooks, "__exit__", leaving)


def entering(original: Any) -> Any:
    """Return the ``__enter__`` that stands for `original`.

    Torch's own checkpoint is left out. Its hooks recompute a whole region for each saved tensor unless a backward pass
    of torch's is running; the gradients of ops of ours inside it are right, but they keep what they save.
    """

    def __enter__(self: Any) -> Any:
        entered = original(self)
        if type(self).__module__ != "torch.utils.checkpoint":
            block = saved_tensors_hooks(self.pack_hook, self.unpack_hook)
            self.__dict__.setdefault("_blocks", []).append(block)
            block.__enter__()
        return entered

    return __enter__


def leaving(original: Any) -> Any:
    """Return the ``__exit__`` that stands for `original`."""

    def __exit__(self: Any, *exc: object) -> Any:
        blocks = self.__dict__.get("_blocks")
        if blocks:
            blocks.pop().__exit__(*exc)
        return original(self, *exc)

    return __exit__


def replace_broadcast() -> None:
    """Make ``torch.distributions`` give a number the dtype and device of the `Tensor` beside it."""
    original = distributions.utils.broadcast_all
    if is_ours(original):
        return

    def broadcast_all(*values: Any) -> Any:
        first = next((value for value in values if isinstance(value, (Tensor, torch.Tensor))), None)
        if type(first) is Tensor:
            values = tuple(
                torch.tensor(value, dtype=first.dtype, device=first.device) if isinstance(value, Number) else value
                for value in values
            )
        return original(*values)

    replace_everywhere(original, broadcast_all, "torch.distributions")


def replace_everywhere(original: Any, made: Any, package: str) -> None:
    """Replace a function in every module of `package` that has imported it by name."""
    function: str = original.__name__
    for name, module in list(sys.modules.items()):
        if name.startswith(package) and vars(module).get(function) is original:
            setattr(module, function, made)


REPLACEMENTS: dict[str, Callable[[], None]] = {
    "torch.autograd.Function": replace_apply,
    "functions of torch.jit": replace_script_call,
    "full backward hooks of modules": refuse_backward_hooks,
    "DistributedDataParallel": refuse_data_parallel,
    "torch.autograd.graph.saved_tensors_hooks": replace_saved_hooks,
    "numbers as parameters of torch.distributions": replace_broadcast,
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
