"""The classes a model file may hold: what `cartograd.embedding` defines, and a fixed list.

Nothing is ever imported because a file names it: the table is made of our own modules, and the names of the file are
looked up in it.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import TypeVar

from cartograd.errors import OptionError

Class = TypeVar("Class", bound=type)

MODULES: dict[str, str] = {
    "Graph": "cartograd.neighbors",
    "FaissConfig": "cartograd.neighbors",
    "LogGraph": "cartograd.affinity",
    "DoublyStochasticQuadraticAffinity": "cartograd.affinity",
    "EntropicAffinity": "cartograd.affinity",
    "GaussianAffinity": "cartograd.affinity",
    "MAGICAffinity": "cartograd.affinity",
    "NormalizedGaussianAffinity": "cartograd.affinity",
    "NormalizedStudentAffinity": "cartograd.affinity",
    "PACMAPAffinity": "cartograd.affinity",
    "PHATEAffinity": "cartograd.affinity",
    "SelfTuningAffinity": "cartograd.affinity",
    "SinkhornAffinity": "cartograd.affinity",
    "StudentAffinity": "cartograd.affinity",
    "SymmetricEntropicAffinity": "cartograd.affinity",
    "UMAPAffinity": "cartograd.affinity",
    "TensorRows": "cartograd.neighbors.rows",
    "FileRows": "cartograd.neighbors.rows",
    "SparseRows": "cartograd.neighbors.rows",
    "Heights": "cartograd.embedding.heights",
}
"""Class name -> the module it is looked up in, for classes that need not be imported before a file is."""

EMBEDDING = "cartograd.embedding"

_registered: dict[str, type] = {}
_of_embedding: dict[str, type] = {}


def register(cls: Class) -> Class:
    """Let model files hold objects of this class: an estimator, or a dataclass. Usable as a decorator.

    Examples
    --------
    >>> @register
    ... class Mine:
    ...     pass
    >>> find("Mine") is Mine
    True
    >>> unregister(Mine)
    """
    known = find(cls.__name__)
    if known is not None and known is not cls:
        raise OptionError(f"another class called {cls.__name__!r} is registered already: {known.__module__}")
    _registered[cls.__name__] = cls
    return cls


def unregister(cls: type) -> None:
    """Forget a class that was registered."""
    _registered.pop(cls.__name__, None)


def find(name: str) -> type | None:
    """The class a file means by `name`, or None where it is none of ours."""
    if name in _registered:
        return _registered[name]
    if name in MODULES:
        found: type = getattr(importlib.import_module(MODULES[name]), name)
        return found
    if name not in _of_embedding:
        _of_embedding.update(_classes_of_embedding())
    return _of_embedding.get(name)


def _classes_of_embedding() -> dict[str, type]:
    """Every estimator and every dataclass that is defined in `cartograd.embedding`, by name."""
    importlib.import_module(EMBEDDING)
    modules = [module for path, module in list(sys.modules.items()) if path.startswith(f"{EMBEDDING}.")]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and (hasattr(value, "get_params") or dataclasses.is_dataclass(value))
    }


def is_known(cls: type) -> bool:
    """Whether a file may hold objects of exactly this class."""
    return find(cls.__name__) is cls
