"""Rows of any shape as a table, and the scale in which an encoder reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy
import torch

from cartograd.embedding.stream import _rows_of
from cartograd.engine import Tensor
from cartograd.errors import InputError
from cartograd.neighbors.rows import Rows
from cartograd.neighbors.tiles import tile_rows


class Flattened:
    """Data whose rows are made flat, and the shape that each had.

    Parameters
    ----------
    X : array-like, (n, ...)
        Arrays or tensors of two and more dimensions, nested lists, or batches of them; anything else stays as it is.

    Attributes
    ----------
    table : object
        What is left of X: (n, d).
    shape : tuple of int or None
        The shape of one row; None where X has two dimensions, and before the first batch is read.
    """

    def __init__(self, X: Any) -> None:
        self.shape: tuple[int, ...] | None = None
        if isinstance(X, (list, tuple)) and _depth(X) > 2:
            X = numpy.asarray(X)
        batched = isinstance(X, (torch.utils.data.DataLoader, Iterator))
        self.table = (self._flat(_rows_of(batch)) for batch in X) if batched else self._flat(X)

    def _flat(self, part: Any) -> Any:
        arrays = isinstance(part, (numpy.ndarray, torch.Tensor, Tensor))
        if not arrays or part.ndim <= 2 or 0 in part.shape:
            return part
        self.shape = tuple(int(size) for size in part.shape[1:])
        return part.reshape(part.shape[0], math.prod(self.shape))


def _depth(value: Any) -> int:
    """How deep lists are nested, by their first items."""
    depth = 0
    while isinstance(value, (list, tuple)) and len(value):
        depth, value = depth + 1, value[0]
    return depth + len(getattr(value, "shape", ()))


def fitting_shape(given: tuple[int, ...] | None, fitted: tuple[int, ...]) -> None:
    """Refuse rows of another shape than those fitted; flat ones of as many numbers are taken for them."""
    if given is not None and given != fitted:
        raise InputError(f"X has rows of shape {given}, but the encoder was trained on rows of shape {fitted}")


def standard_scale(rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Centre and scale of every column, (d,) float64 each.

    .. math:: x'_j = (x_j - \mu_j) / \max(\sigma_j, \bar\sigma), \qquad \bar\sigma^2 = \frac{1}{d} \sum_j \sigma_j^2

    Columns that vary less than the others are not blown up: they count as little for the encoder as they do for the
    distances of rows. All are 1 where nothing varies.
    """
    step = tile_rows(rows.width)
    pieces = [(start, min(start + step, rows.count)) for start in range(0, rows.count, step)]
    mean = sum((rows.block(*piece).to(torch.float64) / rows.count).sum(0) for piece in pieces)
    assert isinstance(mean, torch.Tensor)
    largest = max(float((rows.block(*piece) - mean).abs().max()) for piece in pieces)
    largest = largest if largest > 0 else 1.0  # squares of extreme values would leave the range
    squares = sum((((rows.block(*piece) - mean) / largest).square() / rows.count).sum(0) for piece in pieces)
    assert isinstance(squares, torch.Tensor)
    scale = torch.maximum(squares, squares.mean()).sqrt() * largest
    return mean, torch.where(scale > 0, scale, 1.0)
