"""Labels, whatever they were handed in as: checked, numbered, and -1 known for what it is."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from cartograd.engine import Tensor
from cartograd.errors import InputError

UNKNOWN = -1
"""The label of a row whose class is not known."""


def read_labels(labels: Any, count: int, name: str = "labels") -> Any:
    """One label for each of `count` rows, as a NumPy array (n,) of numbers, truth values or strings."""
    if isinstance(labels, Tensor):
        labels = labels.data
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu()
    array = numpy.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    if array.ndim != 1:
        raise InputError(
            f"{name} must have one dimension, one label a row, got shape {array.shape}; use {name}.ravel()"
        )
    if len(array) != count:
        raise InputError(f"{name} has {len(array)} entries and the data have {count} rows; give one label for each row")
    if array.dtype.kind == "f" and not numpy.isfinite(array).all():
        bad = int((~numpy.isfinite(array)).argmax())
        raise InputError(f"{name} contains {array[bad]} at row {bad}; mark rows of unknown class with -1")
    return array


def encoded(array: Any, name: str = "labels") -> tuple[torch.Tensor, int]:
    """Class numbers 0, 1, ... of labels in rising order, (n,) int64 on the CPU, and how many classes there are."""
    try:
        classes, codes = numpy.unique(array, return_inverse=True)
    except TypeError:
        raise InputError(
            f"{name} mixes kinds that cannot be compared, as text and None; make them all of one"
        ) from None
    return torch.from_numpy(codes.reshape(-1).astype(numpy.int64)), len(classes)


def known_rows(array: Any, name: str = "labels") -> torch.Tensor:
    """Ids of the rows whose label is not -1, (m,) int64 on the CPU."""
    known = array != UNKNOWN if array.dtype.kind in "iuf" else numpy.ones(len(array), dtype=bool)
    if not known.any():
        raise InputError(f"{name} are all -1, which means unknown; at least some rows need a class")
    return torch.from_numpy(numpy.flatnonzero(known))
