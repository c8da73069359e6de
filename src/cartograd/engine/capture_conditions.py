"""What a recording depends on besides its arguments, checked before each replay.

A step reads the attributes of modules (``dropout.p``), their Parameters, buffers and submodules, and their hooks, when
it is recorded. A replay reads none of them. So all of it is remembered, and where something was replaced, added or
removed, the step is recorded again. The check runs at each replay, so it is a few plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules_of_torch
from torch.nn.parameter import is_lazy

from cartograd.engine.graph import Leaf
from cartograd.engine.hooks import hook_keys
from cartograd.engine.tensor import Tensor

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PARTS = ("_parameters", "_buffers", "_modules")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
_OF_TORCH = nn.Module().__dict__.keys() - {"training"}
"""Attributes that every module has. Those that matter are looked into."""


class Conditions:
    """The state of modules, Parameters and leaves under which a recording holds.

    Parameters
    ----------
    modules : Modules
        The modules that the step has called or that the function refers to, with their submodules.
    parameters : iterable of torch.Tensor
        The Parameters it has used, in a module or not.
    leaves : iterable of Leaf or torch.Tensor
        Where it stores gradients.
    looked : list of (leaf, bool)
        The leaves whose ``.grad`` Python has read first, and whether there was one.
    """

    def __init__(
        self,
        modules: Modules,
        parameters: Iterable[torch.Tensor],
        leaves: Iterable[Any],
        looked: list[tuple[Any, bool]],
    ) -> None:
        every = list(modules.found.values())
        self._looked = looked
        self._leaves = [(one, hook_keys(one)) for one in leaves if isinstance(one, Leaf)]
        used = {id(one): one for one in [*parameters, *leaves] if not isinstance(one, Leaf)}
        self._parameters = [
            (one, one.data_ptr(), one.requires_grad, one._backward_hooks, one._post_accumulate_grad_hooks)
            for one in used.values()
            if _has_memory(one)
        ]
        buffers = [buffer for one in every for buffer in one._buffers.values() if buffer is not None]
        buffers = list({id(one): one for one in buffers if id(one) not in used}.values())
        self._buffers = [(one, one.data_ptr()) for one in buffers if _has_memory(one)]
        own = [(one, key) for one in every for key in one.__dict__.keys() - _OF_TORCH - modules.changed(one)]
        self._attributes = [(one.__dict__, key, _copy(one.__dict__[key])) for one, key in own]
        containers: list[Any] = [getattr(one, name) for one in every for name in (*_PARTS, *_HOOKS)]
        containers += [getattr(modules_of_torch, name) for name in _GLOBAL_HOOKS]
        containers += [hooks for entry in self._parameters for hooks in entry[3:] if hooks is not None]
        self._empty = [one for one in containers if not one]
        self._entries = [(one, key, value) for one in containers for key, value in one.items()]
        self._sized = [one for one in containers if one]
        self._sized += [one.__dict__ for one in every if not modules.changed(one)]
        self._sizes = list(map(len, self._sized))

    def hold(self) -> bool:
        """Return whether everything that Python saw when the step was recorded is still so."""
        try:
            return self._holds()
        except KeyError:  # an entry is gone
            return False

    def _holds(self) -> bool:
        for leaf, had in self._looked:
            if (leaf.grad is not None) is not had:
                return False
        for leaf, keys in self._leaves:
            if hook_keys(leaf) != keys:
                return False
        if any(self._empty) or list(map(len, self._sized)) != self._sizes:
            return False
        for home, key, value in self._entries:
            if home[key] is not value:
                return False
        for home, key, value in self._attributes:
            if home[key] is not value and not _same(home[key], value):
                return False
        for one, address in self._buffers:
            if one.data_ptr() != address:
                return False
        for one, address, wanted, hooks, post_hooks in self._parameters:
            if one.data_ptr() != address or one.requires_grad is not wanted:
                return False
            if one._backward_hooks is not hooks or one._post_accumulate_grad_hooks is not post_hooks:
                return False
        return True


class Modules:
    """The modules that a step uses, and what their attributes were before it ran.

    What the step itself has set (``self.attention = weights``) is no condition: it is set again at each recording.
    """

    def __init__(self, function: Callable[..., Any], args: Iterable[Any]) -> None:
        self.found: dict[int, nn.Module] = {}
        self._before: dict[int, dict[str, Any]] = {}
        self._changed: dict[int, set[str]] = {}
        for module in _modules_behind(function, args):
            self.enter(module)

    def enter(self, module: nn.Module) -> None:
        """Note a module and its submodules, before they run."""
        if id(module) in self.found:
            return
        for one in module.modules():
            if id(one) not in self.found:
                self.found[id(one)] = one
                self._before[id(one)] = {**one._buffers, **one._parameters, **one.__dict__}

    def changed(self, module: nn.Module) -> set[str]:
        """Return the names of the attributes that were set since the module was entered."""
        if id(module) not in self._changed:
            before, now = self._before[id(module)], {**module._buffers, **module._parameters, **module.__dict__}
            self._changed[id(module)] = {
                name for name in before.keys() | now.keys() if before.get(name, self) is not now.get(name, self)
            }
        return self._changed[id(module)]

    def replaced(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that were attributes before the step and are not any more: (name, tensor before)."""
        for key, module in self.found.items():
            for name in self.changed(module):
                value = self._before[key].get(name)
                value = value.data if isinstance(value, Tensor) else value
                if isinstance(value, torch.Tensor):
                    yield f"{type(module).__name__}.{name}", value


def _copy(value: Any) -> Any:
    """Return a list, set or dict as it is now: a module may change it in place."""
    return value.copy() if type(value) in (list, set, dict) else value


def _same(now: Any, before: Any) -> bool:
    try:
        return bool(now == before)
    except (RuntimeError, TypeError, ValueError):  # `==` of two arrays is an array
        return False


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not is_lazy(tensor)


def _modules_behind(function: Callable[..., Any], args: Iterable[Any]) -> Iterator[nn.Module]:
    """Yield the modules that a function can use without calling them: those that it refers to by name."""
    seen: list[Any] = [function, getattr(function, "__self__", None), *args]
    inner = getattr(function, "__func__", function)
    for cell in getattr(inner, "__closure__", None) or ():
        seen.append(_content(cell))
    code, names = getattr(inner, "__code__", None), getattr(inner, "__globals__", {})
    seen.extend(names.get(name) for name in (code.co_names if code is not None else ()))
    yield from (one for one in seen if isinstance(one, nn.Module))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that nothing is bound to yet
        return None
