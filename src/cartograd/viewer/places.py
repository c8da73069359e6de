"""Where the name of a category belongs: at the densest place of its points."""

from __future__ import annotations

import itertools
from typing import Any

import numpy

MOST_CELLS = {1: 64, 2: 32, 3: 16}
"""Cells an axis, at most, of the histogram that finds the densest place, by the map's dimension."""


def densest_places(points: Any, codes: Any, count: int) -> Any:
    """The densest place of each of `count` categories.

    A histogram of the category's m points over their middle 96 %, of ``2 m^(1/3)`` cells an axis, is smoothed by
    (1, 2, 1) along each. The cells that hang together with its highest and are a quarter as high are the category's
    main cluster; its mean is the place, or the nearest of its cells where the mean lies outside, as in a ring.

    Parameters
    ----------
    points : numpy.ndarray
        (n, d) places of the points.
    codes : numpy.ndarray
        (n,) each point's category; `count` is none.
    count : int
        How many categories there are.

    Returns
    -------
    numpy.ndarray
        (count, d) float64; NaN for a category without points.

    Examples
    --------
    >>> points = numpy.array([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [9.0, 9.0]])
    >>> densest_places(points, numpy.zeros(4, dtype=int), 1).round(2).tolist()
    [[0.03, 0.03]]
    """
    order = numpy.argsort(codes, kind="stable")
    ends = numpy.searchsorted(codes[order], numpy.arange(count + 1))
    places = numpy.full((count, points.shape[1]), numpy.nan)
    for code, (start, stop) in enumerate(itertools.pairwise(ends)):
        if stop > start:
            places[code] = _densest(points[order[start:stop]])
    return places


def _densest(points: Any) -> Any:
    from scipy.ndimage import label

    dimensions = points.shape[1]
    cells = int(numpy.clip(2 * len(points) ** (1 / 3), 4, MOST_CELLS[dimensions]))
    low, high = numpy.quantile(points, [0.02, 0.98], axis=0)
    width = numpy.maximum((high - low) / cells, numpy.finfo(numpy.float64).tiny)
    spots = numpy.clip((points - low) / width, 0, cells - 1).astype(numpy.int64)
    flat = numpy.ravel_multi_index(tuple(spots.T), (cells,) * dimensions)
    heights = numpy.bincount(flat, minlength=cells**dimensions).reshape((cells,) * dimensions).astype(numpy.float64)
    for axis in range(dimensions):
        heights = _smoothed(heights, axis)
    cluster, _ = label(heights >= 0.25 * heights.max(), structure=numpy.ones((3,) * dimensions))
    main = cluster == cluster.flat[int(heights.argmax())]
    mean = points[main.flat[flat]].mean(axis=0)
    inside = tuple(numpy.clip((mean - low) / width, 0, cells - 1).astype(numpy.int64))
    if main[inside]:
        return mean
    centres = low + (numpy.argwhere(main) + 0.5) * width
    return centres[((centres - mean) ** 2).sum(axis=1).argmin()]


def _smoothed(heights: Any, axis: int) -> Any:
    padded = numpy.pad(heights, [(1, 1) if at == axis else (0, 0) for at in range(heights.ndim)])
    size = heights.shape[axis]
    before, after = padded.take(range(size), axis), padded.take(range(2, size + 2), axis)
    return before + 2 * heights + after
