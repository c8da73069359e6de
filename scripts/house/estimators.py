"""What the estimators are at run time: their classes, what a fit keeps on them, what their help explains."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits

import cartograd

NEIGHBOR_EMBEDDINGS = "UMAP TSNE SNE TSNEkhorn COSNE LargeVis PACMAP InfoTSNE DensMAP LocalMAP".split()
EVERY, STEPS = 5, 20


def is_ours(cls: type) -> bool:
    """Return whether cartograd defines a class."""
    return cls.__module__.partition(".")[0] == "cartograd"


def own_classes(name: str) -> list[type]:
    """Return the classes of an estimator's MRO that cartograd defines, itself included."""
    return [cls for cls in getattr(cartograd, name).__mro__ if is_ours(cls)]


def longest_mro() -> tuple[str, int]:
    """Return the neighbor embedding with the most classes of ours, and how many these are."""
    counts = {name: len(own_classes(name)) for name in NEIGHBOR_EMBEDDINGS if hasattr(cartograd, name)}
    name = max(counts, key=lambda one: counts[one])
    return name, counts[name]


def attributes_of_a_fit() -> list[str]:
    """Return the attributes of UMAP, seen every 5 of 20 steps and at the end, that are no parameter and no result."""
    seen: set[str] = set()
    model = cartograd.UMAP(random_state=0, max_iter=STEPS, check_interval=EVERY)
    model.set_params(callbacks=[lambda step, embedding, loss: seen.update(vars(model))])
    model.fit(load_digits().data.astype("float32"))
    seen.update(vars(model))
    return sorted(name for name in seen - set(model.get_params(deep=False)) if not name.endswith("_"))


def all_classes() -> list[type]:
    """Return every class of ours that modules define, after importing all of them."""
    found: dict[type, None] = {}
    for info in pkgutil.walk_packages(cartograd.__path__, "cartograd."):
        if ".kernels." in info.name or info.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(info.name)).values():
            if inspect.isclass(value) and is_ours(value):
                found[value] = None
    return list(found)


def overrides() -> list[str]:
    """Return the concrete methods of estimators, and of their bases, that a subclass defines anew."""
    estimators = [cls for cls in all_classes() if issubclass(cls, BaseEstimator)]
    family = {base for cls in estimators for base in cls.__mro__ if is_ours(base)}
    found = []
    for cls in family:
        if cls.__module__.rpartition(".")[2] == "custom":
            continue
        for name, value in vars(cls).items():
            if name.startswith("__") or not _is_method(value):
                continue
            above = [vars(base)[name] for base in cls.__mro__[1:] if is_ours(base) and name in vars(base)]
            if any(_is_method(one) and not getattr(one, "__isabstractmethod__", False) for one in above):
                found.append(f"{cls.__name__}.{name}")
    return sorted(found)


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def option_groups() -> dict[str, int]:
    """Return the number of fields of each options class, and of UMAP's parameters that are in none."""
    groups = [cls for cls in all_classes() if dataclasses.is_dataclass(cls) and cls.__name__.endswith("Options")]
    sizes = {cls.__name__: len(dataclasses.fields(cls)) for cls in groups}
    grouped = {field.name for cls in groups for field in dataclasses.fields(cls)}
    sizes["(UMAP's parameters in no group)"] = len(_parameters(cartograd.UMAP) - grouped)
    return sizes


def _parameters(cls: type) -> set[str]:
    return set(inspect.signature(cls).parameters)


def unexplained(cls: type) -> list[str]:
    """Return the parameters that `help` of an estimator does not explain."""
    lines = (inspect.getdoc(cls) or "").splitlines()
    told = set()
    for line, text in zip(lines, [*lines[1:], ""], strict=True):
        match = re.match(r"\s*(\w+(?:, \w+)*) : \S", line)
        if match and len(text.strip()) > 10 and not text.strip().startswith("See"):
            told |= set(match[1].split(", "))
    return sorted(_parameters(cls) - told)
