r"""The leading singular values and directions of centred rows: the arithmetic behind principal components."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.affinity.counter import normal, stream
from cartograd.embedding.covariance import (
    Centred,
    centred,
    covariance,
    gram_product,
    inner_products,
    transposed_product,
    triangle,
)
from cartograd.embedding.eigen import EXTRA, is_few, iterate, largest_eigenpairs
from cartograd.neighbors.rows import FileRows, Rows

SMALL = 1 << 18
"""Elements up to which a matrix is decomposed as a whole."""
STREAMED_WIDTH = 2048
"""Up to this width the covariance of rows in a file is formed: it takes one walk over them, iterating takes many."""
TOLERANCE = {torch.float32: 1e-7, torch.float64: 1e-10}
"""The error allowed in a direction, by the precision of the data."""
DRIVERS = (None, "gesvd", "gesvdj", "gesvda")


@dataclass(frozen=True)
class Leading:
    r"""The leading part of :math:`s (X - 1 \mu^T) = U S V^T`.

    Parameters
    ----------
    data : Centred
        The rows, with :math:`\mu` and s.
    values : torch.Tensor
        (c,), falling: the diagonal of S.
    directions : torch.Tensor
        (c, d): rows of :math:`V^T`, the largest entry of each positive.
    """

    data: Centred
    values: torch.Tensor
    directions: torch.Tensor


def leading(rows: Rows, wanted: int, seed: int, tolerance: float | None = None, driver: str | None = None) -> Leading:
    r"""The `wanted` leading singular values and right singular vectors of the rows about their mean.

    Small data are decomposed as a whole. Otherwise the space of the leading directions comes from the eigenvectors of
    the covariance (or, with fewer rows than columns, of all inner products), or, where few are wanted of many, by
    iterating without forming it; within that space, singular values and directions are those of the data themselves and
    not of a squared matrix.

    Parameters
    ----------
    rows : Rows
        The rows, (n, d).
    wanted : int
        How many, at most min(n, d).
    seed : int
        Seed of the first guess.
    tolerance : float, default=None
        The error allowed in a direction where it is iterated; None for that of the precision of the rows.
    driver : str, default=None
        The ``driver`` of ``torch.linalg.svd``, on CUDA.
    """
    data = centred(rows)
    return Leading(data, *decomposed(data, wanted, seed, tolerance, driver))


def decomposed(
    data: Centred, wanted: int, seed: int, tolerance: float | None = None, driver: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of rows about any centre: values (wanted,) and directions (wanted, d)."""
    n, d = data.shape
    if n * d <= SMALL:
        _, values, directions = svd(data.block(0, n), driver)
    elif _is_iterated(data.rows, wanted):
        values, directions = _within(data, _iterated(data, wanted, seed, tolerance), driver)
    elif d <= n:
        values, directions = _within(data, _from_covariance(data, wanted, seed), driver)
    else:
        values, directions = _from_inner_products(data, wanted, seed, driver)
    return values[:wanted], upright(directions[:wanted])


def upright(directions: torch.Tensor) -> torch.Tensor:
    """Directions (c, d) with signs such that the largest entry of each is positive (scikit-learn's convention)."""
    largest = directions.abs().argmax(1, keepdim=True)
    return directions * torch.where(directions.gather(1, largest) < 0, -1.0, 1.0).to(directions.dtype)


def svd(matrix: torch.Tensor, driver: str | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The thin decomposition U, S, V^T; the driver is torch's and means something on CUDA alone."""
    U, S, Vt = torch.linalg.svd(matrix, full_matrices=False, driver=driver if matrix.is_cuda else None)
    return U, S, Vt


def guess(size: int, wanted: int, seed: int, device: torch.device) -> torch.Tensor:
    """Random numbers to iterate from, (size, wanted + EXTRA)."""
    return normal(stream(seed, "eigenvectors"), (size, min(wanted + EXTRA, size)), device)


def _is_iterated(rows: Rows, wanted: int) -> bool:
    if not is_few(wanted, min(rows.count, rows.width)):
        return False
    return not isinstance(rows, FileRows) or rows.width > STREAMED_WIDTH


def _iterated(data: Centred, wanted: int, seed: int, tolerance: float | None) -> torch.Tensor:
    tolerance = TOLERANCE[data.rows.dtype] if tolerance is None else tolerance
    first = guess(data.rows.width, wanted, seed, data.rows.device)
    return iterate(lambda V: gram_product(data, V), first, wanted, tolerance).vectors


def _from_covariance(data: Centred, wanted: int, seed: int) -> torch.Tensor:
    """The leading eigenvectors of the covariance and a few more, (d, m)."""
    more = min(wanted + EXTRA, data.rows.width)
    first = guess(data.rows.width, more, seed, data.rows.device)
    return largest_eigenpairs(covariance(data), more, first, TOLERANCE[data.rows.dtype]).vectors


def _within(data: Centred, basis: torch.Tensor, driver: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Singular values and directions of the rows within the space of a basis (d, m)."""
    _, values, turned = svd(triangle(data, basis), driver)
    return values, turned @ basis.T


def _from_inner_products(
    data: Centred, wanted: int, seed: int, driver: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""From the left: with U the eigenvectors of :math:`X X^T`, :math:`X^T U = Q R` and the values are those of R."""
    more = min(wanted + EXTRA, data.rows.count)
    first = guess(data.rows.count, more, seed, data.rows.device)
    left = largest_eigenpairs(inner_products(data), more, first, TOLERANCE[data.rows.dtype]).vectors
    Q, R = torch.linalg.qr(transposed_product(data, left))
    turned, values, _ = svd(R, driver)
    return values, (Q @ turned).T
