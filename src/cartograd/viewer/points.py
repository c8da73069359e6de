"""The map itself, as every part of the viewer wants it: an (n, d) array of finite numbers, d at most 3."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from cartograd.engine import Tensor
from cartograd.errors import InputError

Points = NDArray[numpy.float64]


def plain_array(values: Any) -> Any:
    """Tensors (ours and torch's, on any device) and frames as numpy arrays; anything else as it is."""
    if isinstance(values, Tensor):
        values = values.data
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def map_points(embedding: Any) -> Points:
    """Check a map and return it as float64.

    Parameters
    ----------
    embedding : array-like or tensor
        (n, 1), (n, 2) or (n, 3); a vector is a map of one dimension.

    Returns
    -------
    numpy.ndarray
        (n, d) float64, finite.

    Examples
    --------
    >>> map_points([[0, 1], [2, 3]]).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    try:
        points = numpy.asarray(plain_array(embedding), dtype=numpy.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"embedding must be an array of numbers, got {type(embedding).__name__}: {error}") from error
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or not 1 <= points.shape[1] <= 3:
        raise InputError(
            f"embedding must have one row for each point and 1, 2 or 3 columns, got shape {points.shape}; "
            "of a map of more dimensions choose three: embedding[:, :3]"
        )
    if len(points) == 0:
        raise InputError("embedding has no rows: there is nothing to show")
    finite = numpy.isfinite(points).all(axis=1)
    if not finite.all():
        row = int(numpy.flatnonzero(~finite)[0])
        raise InputError(
            f"embedding has NaN or infinity in {int((~finite).sum())} rows, the first is row {row}: "
            f"{points[row].tolist()}; leave those rows out, of the data too"
        )
    return points


def spread(points: Points) -> Points:
    """Give a map of one dimension a second one, so that equal values do not hide each other.

    Point i goes to ``y_i = (u_i - 1/2) h(x_i)``, where h is the share of points near x_i relative to the densest
    place, and u the fractional parts of the multiples of the golden ratio: the outline is the histogram's.

    Examples
    --------
    >>> spread(numpy.zeros((2, 1)))[:, 1].round(2).tolist()
    [-0.0, 0.0]
    """
    x = points[:, 0]
    low, width = x.min(), float(numpy.ptp(x))
    bins = int(numpy.clip(numpy.sqrt(len(x)), 8, 200))
    cells = numpy.minimum(((x - low) / (width or 1.0) * bins).astype(numpy.int64), bins - 1)
    heights = numpy.convolve(numpy.bincount(cells, minlength=bins), [0.25, 0.5, 0.25], mode="same")
    turns = numpy.empty(len(x))
    turns[numpy.argsort(x, kind="stable")] = (numpy.arange(len(x)) + 0.5) * 0.6180339887498949 % 1.0
    return numpy.column_stack([x, (turns - 0.5) * heights[cells] / heights.max() * width * 0.4])
