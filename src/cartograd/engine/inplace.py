"""In-place functions on `Tensor`s.

The new value is computed by the ordinary op, written into the same memory, and the `Tensor` moved to the new place
in the graph. That is refused where another tensor sees the same memory (a view, or the base of one): its value
would change while its gradient would not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.graph import Leaf, Node
from cartograd.engine.tensor import Tensor, from_raw
from cartograd.errors import InplaceError, UnsupportedError

_OPERATORS = {f"__i{name}__" for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "div", "mod", "pow")}
_OPERATORS |= {f"__i{name}__" for name in ("and", "or", "xor", "lshift", "rshift")}
_METADATA = {"requires_grad_", "detach_", "retain_grad_", "share_memory_", "rename_"}


def changes_argument(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether calling `function` writes into one of its arguments."""
    if kwargs.get("out") is not None or kwargs.get("inplace"):
        return True
    name = getattr(function, "__name__", "")
    plain = name.endswith("_") and not name.endswith("__")
    return (plain and name not in _METADATA) or name == "__setitem__" or name in _OPERATORS


def run_inplace(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an in-place torch function whose arguments include a `Tensor`."""
    name = getattr(function, "__name__", str(function))
    recorded = torch.is_grad_enabled() and any(_requires_grad(value) for value in (*args, *kwargs.values()))
    if not recorded:
        return _on_plain_values(function, args, kwargs)
    if kwargs.get("out") is not None:
        raise UnsupportedError(f"{name}(out=...) cannot carry a gradient: leave out= away and use the result")
    if not args:  # torch.nn.init hands everything over by name
        args, kwargs = (kwargs["tensor"],), {key: value for key, value in kwargs.items() if key != "tensor"}
    target, *rest = args
    if not isinstance(target, Tensor):
        raise InplaceError(
            f"{name} would write a value that requires grad into a plain torch tensor, which cannot remember it: "
            "make the target a cartograd.tensor, or use the result of the function that is not in place"
        )
    if kwargs.get("inplace"):
        return change(target, name, lambda tensor: function(tensor, *rest, **{**kwargs, "inplace": False}))
    return change(target, name, lambda tensor: _out_of_place(name, tensor, rest, kwargs))


def _requires_grad(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_requires_grad(item) for item in value)
    return isinstance(value, (Tensor, torch.Tensor)) and value.requires_grad


def _on_plain_values(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        function(*map(_plain, args), **{key: _plain(value) for key, value in kwargs.items()})
    if kwargs.get("out") is not None:
        return kwargs["out"]
    return args[0] if args else kwargs["tensor"]


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(item) for item in value)
    return value.data if isinstance(value, Tensor) else value


def _out_of_place(name: str, target: Tensor, rest: list[Any], kwargs: dict[str, Any]) -> Any:
    if name in _OVERWRITING:
        return _OVERWRITING[name](target, *rest, **kwargs)
    if name == "__setitem__":
        return Tensor.__torch_function__(setitem, (), (target, *rest))
    twin = f"__{name[3:-2]}__" if name in _OPERATORS else name[:-1]
    method = getattr(Tensor, twin, None)
    if method is None:
        return Tensor.__torch_function__(on_a_copy, (), (name, target, *rest), kwargs)
    return method(target, *rest, **kwargs)


def on_a_copy(name: str, target: torch.Tensor, *rest: Any, **kwargs: Any) -> torch.Tensor:
    """The in-place method `name` on a copy; torch differentiates it."""
    return getattr(target.clone(), name)(*rest, **kwargs)


def _copied(target: Tensor, src: Any, non_blocking: bool = False) -> Any:
    return src.to(target.data.dtype).expand(target.data.shape)


def _filled(target: Tensor, value: Any) -> Any:
    if isinstance(value, Tensor):
        return _copied(target, value)
    return target.masked_fill(torch.ones_like(target.data, dtype=torch.bool), value)


_OVERWRITING: dict[str, Any] = {"copy_": _copied, "fill_": _filled, "zero_": lambda target: _filled(target, 0)}


def setitem(target: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """A copy of `target` with ``copy[index] = value``; torch differentiates it."""
    changed = target.clone()
    changed[index] = value
    return changed


def change(target: Any, name: str, compute: Callable[[Any], Any]) -> Any:
    """Set `target` to ``compute(target)``, in its own memory, and move it to the new place in the graph.

    The new node must not have saved the memory that is overwritten: `compute` works on a copy of it.
    """
    recorded = torch.is_grad_enabled()
    if not isinstance(target, Tensor):
        result = compute(target)
        with torch.no_grad():
            return target.copy_(result.data)
    if recorded and type(target._edge) is Leaf:
        raise InplaceError(f"{name} would change a leaf that requires grad in place; change a copy, or use no_grad()")
    result = compute(from_raw(_copy(target.data), target._edge))
    if result.data.shape != target.data.shape:
        raise InplaceError(
            f"{name} would change the shape {tuple(target.data.shape)} to {tuple(result.data.shape)} in place"
        )
    if recorded and (result.requires_grad or target.requires_grad):
        _require_unshared(target, name)
    with torch.no_grad():
        target.data.copy_(result.data)
    if modes.watchers and modes.watch.budget is not None:
        modes.watch.budget.same(target.data, result.data)
    target._edge = result._edge
    return target


def _copy(data: torch.Tensor) -> torch.Tensor:
    """A copy; under a memory budget, one that is known to be made from the original."""
    if not modes.watchers or modes.watch.budget is None:
        return data.clone()
    from cartograd.engine.budget import copied

    copy: torch.Tensor = modes.watch.budget.run(copied, [data])
    return copy


def _require_unshared(target: Tensor, name: str) -> None:
    """Refuse to change memory that another tensor sees: that tensor's gradient would not know."""
    storage = target.data.untyped_storage()
    users = torch._C._storage_Use_Count(storage._cdata)
    if target.data._is_view() or users > 2:  # the tensor itself, and the handle just taken
        edge = target._edge
        place = f"made by {edge.name} at {edge.where()}" if type(edge) is Node else "given by the user"
        raise InplaceError(
            f"{name} would change in place a tensor ({place}) whose memory another tensor shares, "
            "and that tensor's gradient would not know: use the function that is not in place"
        )
