"""Labels of a supervised map: any kind made into numbers, unknown ones into -1."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from cartograd.affinity import categorical_intersection
from cartograd.affinity.supervised import far_distance
from cartograd.errors import InputError
from cartograd.neighbors import Graph


def known_labels(y: Any, n: int) -> torch.Tensor:
    """The class of each row as a number, (n,) int64; -1 where it is unknown: -1, None or NaN."""
    values = _array(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        raise InputError(f"y must have one label for each of the {n} rows, got shape {values.shape}")
    if values.dtype.kind in "biu":
        unknown = values.astype(numpy.int64) == -1
    elif values.dtype.kind == "f":
        unknown = numpy.isnan(values) | (values == -1)
    else:
        unknown = numpy.array([_is_unknown(one) for one in values.tolist()])
    codes = numpy.full(n, -1, dtype=numpy.int64)
    known = values[~unknown]
    codes[~unknown] = numpy.unique(known.astype(str) if values.dtype == object else known, return_inverse=True)[1]
    return torch.from_numpy(codes)


def _array(y: Any) -> Any:
    if hasattr(y, "detach"):
        y = y.detach().cpu()
        return (y.to(torch.float32) if y.dtype == torch.bfloat16 else y).numpy()
    if isinstance(y, numpy.ma.MaskedArray):
        values: Any = y.data.astype(object)
        values[numpy.ma.getmaskarray(y)] = None
        return values
    try:
        return numpy.asarray(y)
    except ValueError:
        raise InputError("y must have one label for each row, got lists of different lengths") from None


def _is_unknown(label: Any) -> bool:
    """None, NaN (which is not equal to itself), pandas.NA (which cannot tell), or -1."""
    try:
        return label is None or bool(label != label) or bool(label == -1)
    except TypeError:
        return True


def intersected(graph: Graph, labels: torch.Tensor, target_weight: float) -> Graph:
    """The graph with edges between different classes weakened, as umap-learn weakens them."""
    return categorical_intersection(graph, labels.to(graph.device), far_dist=far_distance(target_weight))
