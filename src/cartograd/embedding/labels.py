"""Labels of a supervised map: any kind made into numbers, unknown ones into -1."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy
import torch

from cartograd.affinity import categorical_intersection
from cartograd.affinity.supervised import far_distance
from cartograd.distributed import Ranks
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
        _refuse_numbers(values[~unknown])
    else:
        unknown = numpy.array([_is_unknown(one) for one in values.tolist()])
    codes = numpy.full(n, -1, dtype=numpy.int64)
    known = values[~unknown]
    codes[~unknown] = numpy.unique(known.astype(str) if values.dtype == object else known, return_inverse=True)[1]
    return torch.from_numpy(codes)


def _refuse_numbers(values: Any) -> None:
    """Refuse numbers that are no classes: whole numbers stored as floats are."""
    broken = values[values != numpy.round(values)]
    if len(broken):
        raise InputError(
            f"y must hold classes (whole numbers or names), got numbers such as {float(broken[0]):g}: a continuous y "
            "is not served yet; leave y out, or bin it, for example with pandas.qcut(y, 10, labels=False)"
        )


def labels_of_distinct(labels: torch.Tensor, inverse: torch.Tensor, n: int) -> torch.Tensor:
    """Return the labels of n different rows: that of all equal rows whose label is known, -1 where they disagree.

    Parameters
    ----------
    labels : torch.Tensor
        (m,) int64, of all rows; -1 for unknown.
    inverse : torch.Tensor
        (m,) int64, which different row each row is.
    n : int
        How many different rows there are.
    """
    known, rows = labels[labels >= 0], inverse.cpu()[labels >= 0]
    least = torch.full((n,), torch.iinfo(torch.int64).max).scatter_reduce_(0, rows, known, "amin")
    most = torch.full((n,), -1, dtype=torch.int64).scatter_reduce_(0, rows, known, "amax")
    return torch.where(least == most, most, -1)


def labels_of_all(ranks: Ranks, y: Any) -> Any:
    """The labels of all processes, in the order of their ranks, each having been given its own: numbers or words."""
    values = _array(y)
    kind = {"b": 0, "i": 0, "u": 0, "f": 1}.get(values.dtype.kind, 2)
    most = max(one for (one,) in ranks.agree("kinds of labels", kind))
    if most < 2:
        plain = torch.from_numpy(values.astype(numpy.float64 if most else numpy.int64))
        return ranks.gathered(plain, f"labels of shape {tuple(plain.shape[1:])}").numpy()
    words = json.dumps([None if _is_unknown(one) else str(one) for one in values.reshape(-1).tolist()]).encode()
    sizes = [size for (size,) in ranks.agree("words of labels", len(words))]
    every = ranks.gathered(torch.tensor(list(words), dtype=torch.uint8), "words of labels").split(sizes)
    return numpy.array([one for part in every for one in json.loads(bytes(part.tolist()))], dtype=object)


def check_same_labels(ranks: Ranks, y: Any) -> None:
    """Refuse labels that differ between processes which were all given the same rows."""
    codes = [code for (code,) in ranks.agree("labels", zlib.crc32(repr(_array(y).tolist()).encode()))]
    other = [rank for rank, code in enumerate(codes) if code != codes[0]]
    if other:
        raise InputError(
            f"y is not the same in process 0 and process {other[0]}: all have the same rows, and need all y"
        )


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
