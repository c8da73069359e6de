"""Arrays in memory as columns: matrices, images, structured arrays."""

from __future__ import annotations

from typing import Any

import numpy

from cartograd.errors import DataFileError
from cartograd.io.raw import Raw
from cartograd.io.values import encodable

LARGEST_THUMBNAIL = 128


def raw_of_array(array: Any, name: str = "X") -> Raw:
    """A matrix (n, d), images (n, height, width[, channels]), or a structured array with named columns."""
    if array.dtype.names:
        return Raw({field: text_of(array[field]) for field in array.dtype.names})
    if array.dtype.kind not in "biuf":
        raise DataFileError(f"array {name!r} is of {array.dtype}; features must be real numbers")
    if array.ndim < 2:
        raise DataFileError(f"array {name!r} has shape {array.shape}; a table has two axes, rows and columns")
    thumbnails = images_of(array)
    matrix = array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)
    parts = [f"x{place}" for place in range(matrix.shape[1])]
    return Raw({name: matrix}, parts={name: parts}, features=[name], thumbnails=thumbnails)


def images_of(array: Any) -> Any:
    """The array itself where it can be shown as small pictures, otherwise None."""
    if array.dtype != numpy.uint8 or array.ndim not in (3, 4):
        return None
    sized = all(1 < side <= LARGEST_THUMBNAIL for side in array.shape[1:3])
    return array if sized and (array.ndim == 3 or array.shape[3] == 3) else None


def text_of(array: Any) -> Any:
    """NumPy's fixed-width text as objects; any other column as it is."""
    if array.dtype.kind == "S":
        array = numpy.char.decode(array, "utf-8", "replace")
    if array.dtype.kind != "U":
        return array
    column = numpy.empty(len(array), dtype=object)
    column[:] = [encodable(cell) if cell else None for cell in array.tolist()]
    return column
