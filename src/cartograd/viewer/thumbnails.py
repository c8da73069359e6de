"""Pictures of the rows, made small enough to travel inside the page."""

from __future__ import annotations

from typing import Any

import numpy

from cartograd.errors import InputError
from cartograd.viewer.points import plain_array

LARGEST_SIDE = 96
LARGEST_TOTAL = 512 * 2**20


def thumbnails(images: Any, count: int) -> Any:
    """Images as (n, h, w, 1|3|4) uint8, no side above 96 pixels.

    Larger ones are shrunk by whole factors, each pixel the mean of its square. Numbers in [0, 1] become 0 to 255;
    others are stretched so that the smallest of all becomes 0 and the largest 255.

    Parameters
    ----------
    images : array-like or tensor
        (n, h, w), (n, h, w, 1), (n, h, w, 3) or (n, h, w, 4).
    count : int
        How many rows the map has.

    Examples
    --------
    >>> thumbnails([[[0.0, 1.0]]], 1).tolist()
    [[[[0], [255]]]]
    """
    array = numpy.asarray(plain_array(images))
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[3] not in (1, 3, 4) or len(array) != count or 0 in array.shape:
        raise InputError(
            f"images must be one picture for each of the map's {count} rows, (n, h, w), (n, h, w, 3) or (n, h, w, 4), "
            f"got shape {numpy.shape(images)}"
        )
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not numpy.isfinite(array).all()):
        raise InputError(f"images must be finite numbers, got {array.dtype}")
    low, high = _range(array)
    factor = -(-max(array.shape[1:3]) // LARGEST_SIDE)
    total = count * (array.shape[1] // factor) * (array.shape[2] // factor) * array.shape[3]
    if total > LARGEST_TOTAL:
        raise InputError(
            f"the thumbnails would take {total / 2**20:.0f} MiB of the page, at most {LARGEST_TOTAL // 2**20} are "
            "embedded: give smaller images or fewer rows"
        )
    # a piece at a time: the images may be larger than memory allows to copy as floats
    step = max(1, 2**24 // int(numpy.prod(array.shape[1:])))
    pieces = [_small(array[start : start + step], factor, low, high) for start in range(0, count, step)]
    return numpy.concatenate(pieces)


def _range(array: Any) -> tuple[float, float]:
    if array.dtype == numpy.uint8:
        return 0.0, 255.0
    low, high = float(array.min()), float(array.max())
    if array.dtype == bool or (low >= 0.0 and high <= 1.0):
        return 0.0, 1.0
    return low, high if high > low else low + 1.0


def _small(images: Any, factor: int, low: float, high: float) -> Any:
    if factor == 1 and images.dtype == numpy.uint8:
        return numpy.ascontiguousarray(images)
    count, height, width, channels = images.shape
    height, width = max(1, height // factor), max(1, width // factor)
    cut = images[:, : height * factor, : width * factor].astype(numpy.float32)
    rows, columns = min(factor, cut.shape[1]), min(factor, cut.shape[2])
    squares = cut.reshape(count, height, rows, width, columns, channels).mean(axis=(2, 4))
    return numpy.rint((squares - low) * (255.0 / (high - low))).clip(0, 255).astype(numpy.uint8)
