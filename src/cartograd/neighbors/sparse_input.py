"""scipy's sparse matrices as CSR arrays whose indices all lie within the matrix.

scipy's compiled loops trust the index arrays of a matrix: one index outside of it, and a conversion or a product reads
or writes memory that belongs to something else. The arrays are therefore checked before any such loop runs.
"""

from __future__ import annotations

from typing import Any

import numpy

from cartograd.errors import InputError
from cartograd.neighbors import validate


def as_csr(data: Any, name: str) -> Any:
    """Return a sparse matrix of any format as a ``csr_array`` that shares its memory where it is CSR already.

    Parameters
    ----------
    data : scipy sparse array or matrix
        The matrix; not changed.
    name : str
        What messages call it.
    """
    from scipy.sparse import csr_array

    validate.check_shape(tuple(data.shape), name)
    check_structure(data, name)
    try:
        matrix = data.tocsr()
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise InputError(f"{name} is a damaged sparse matrix, which cannot be converted to CSR: {error}") from error
    check_structure(matrix, name)
    stored = int(matrix.indptr[-1])  # a new array: the flags of `matrix` may be older than its indices
    return csr_array((matrix.data[:stored], matrix.indices[:stored], matrix.indptr), shape=matrix.shape)


def check_structure(matrix: Any, name: str) -> None:
    """Refuse a sparse matrix whose index arrays do not fit its shape; formats without such arrays pass."""
    kind = getattr(matrix, "format", None)
    rows, columns = (int(size) for size in matrix.shape)
    if kind == "csr":
        check_compressed(matrix.indptr, matrix.indices, len(matrix.data), (rows, columns), name)
    elif kind == "csc":
        check_compressed(matrix.indptr, matrix.indices, len(matrix.data), (columns, rows), name)
    elif kind == "bsr":
        high, wide = matrix.blocksize
        check_compressed(matrix.indptr, matrix.indices, len(matrix.data), (rows // high, columns // wide), name)
    elif kind == "coo":
        for axis, coordinates in enumerate(matrix.coords):
            _check_within(coordinates, matrix.shape[axis], f"coords[{axis}]", name)
            _check_length(len(coordinates), len(matrix.data), f"coords[{axis}]", name)


def check_compressed(indptr: Any, indices: Any, stored: int, shape: tuple[int, int], name: str) -> None:
    """Refuse row pointers or column indices that do not fit a CSR matrix.

    Parameters
    ----------
    indptr, indices : numpy array
        The pointers and the columns.
    stored : int
        How many values the matrix stores.
    shape : tuple of int
        Rows (or columns, of a CSC matrix) and the bound of the indices.
    name : str
        What messages call the matrix.
    """
    count, bound = shape
    _check_length(len(indptr), count + 1, "indptr", name)
    _check_within(indptr, len(indices) + 1, "indptr", name)
    if indptr[0] != 0 or bool((indptr[1:] < indptr[:-1]).any()):
        raise _damaged(name, "indptr must begin with 0 and never fall")
    _check_length(len(indices), stored, "indices", name)
    _check_within(indices[: int(indptr[-1])], bound, "indices", name)


def _check_within(values: Any, bound: int, what: str, name: str) -> None:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise _damaged(name, f"{what} must hold whole numbers in one dimension, got {values.dtype} {values.shape}")
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= bound):
        outside = int(numpy.argmax((values < 0) | (values >= bound)))
        raise _damaged(name, f"{what}[{outside}] is {values[outside]}, outside of 0 to {bound - 1}")


def _check_length(length: int, expected: int, what: str, name: str) -> None:
    if length != expected:
        raise _damaged(name, f"{what} has {length} entries and not {expected}")


def _damaged(name: str, reason: str) -> InputError:
    return InputError(f"{name} is a damaged sparse matrix: {reason}; build it again from its values")
