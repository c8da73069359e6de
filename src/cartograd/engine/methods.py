"""Gives `Tensor` the methods and attributes of ``torch.Tensor``.

What only describes the value (``shape``, ``dtype``, ``size()`` ...) is asked of the plain tensor; every other
method goes through `Tensor.__torch_function__`, that is to our op for it or to torch's own derivative.
"""

from __future__ import annotations

from typing import Any

import torch

from cartograd.engine.tensor import RULES, Tensor

_DESCRIBING = [
    "is_complex",
    "is_floating_point",
    "is_signed",
    "is_contiguous",
    "is_inference",
    "is_pinned",
    "is_shared",
    "element_size",
    "numel",
    "nelement",
    "size",
    "dim",
    "ndimension",
    "stride",
    "storage_offset",
    "data_ptr",
    "untyped_storage",
    "get_device",
    "dim_order",
    "_is_view",
]
_OWN = ("__array__", "backward", "register_hook", "register_post_accumulate_grad_hook")
"""Methods of `Tensor` itself that ``torch.Tensor.backward(x)``, a function in Python, must reach, too."""
_VIEWS = ("T", "mT", "H", "mH", "real", "imag")
_NOT_ADOPTED = set(dir(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"} | {
    "__torch_dispatch__",
    "__setstate__",
    "__dlpack_c_exchange_api__",
    "__cuda_array_interface__",
    "__module__",
    "__dict__",
    "__annotations__",
    "__weakref__",
    "_backward_hooks",
    "_post_accumulate_grad_hooks",
    "_make_subclass",
    "_make_wrapper_subclass",
    "as_subclass",
    "module_load",
    "volatile",
    "name",
    "output_nr",
}


def _describing(name: str) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.data, name)(*args, **kwargs)

    method.__name__ = name
    return method


def _dispatching(function: Any) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return Tensor.__torch_function__(function, (), (self, *args), kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"As ``torch.Tensor.{function.__name__}``."
    return method


def _attribute(name: str) -> Any:
    return property(lambda self: getattr(self.data, name))


def _view(name: str) -> Any:
    getter = getattr(torch.Tensor, name).__get__
    return property(lambda self: Tensor.__torch_function__(getter, (), (self,)))


def adopt() -> None:
    """Fill in everything ``torch.Tensor`` has and `Tensor` has not."""
    RULES.update({getattr(torch.Tensor, name): getattr(Tensor, name) for name in _OWN})
    for name in dir(torch.Tensor):
        if name in Tensor.__dict__ or name in _NOT_ADOPTED:
            continue
        original = getattr(torch.Tensor, name)
        if name in _DESCRIBING:
            made = _describing(name)
        elif name in _VIEWS:
            made = _view(name)
        elif callable(original) and hasattr(original, "__name__"):
            made = _dispatching(original)
        else:
            made = _attribute(name)
        setattr(Tensor, name, made)


adopt()
