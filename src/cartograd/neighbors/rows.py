"""Where the rows of a data set come from: memory, a file, a sparse matrix; and the two maps laid over them.

A search never sees an array, only `Rows`: how many there are, how wide, and two ways to read them. So the same code
runs on a tensor, on a memory-mapped file that is larger than the memory, and on a sparse matrix.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy
import torch

from cartograd.neighbors.free_memory import check_dense_piece


class Rows(Protocol):
    """The rows of a data set, read in pieces.

    Attributes
    ----------
    count, width : int
        The shape (n, d).
    dtype : torch.dtype
        ``torch.float32`` or ``torch.float64``: what the pieces are given in.
    device : torch.device
        Where the pieces are given.
    """

    count: int
    width: int
    dtype: torch.dtype
    device: torch.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, (stop - start, d). May share memory with the data: never write into it."""
        ...

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, (len(ids), d), always a new tensor."""
        ...

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids in float64, with no rounding of their own."""
        ...


class TensorRows:
    """Rows held in memory, on the CPU or on a GPU."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data
        self.count, self.width = data.shape
        self.dtype, self.device = data.dtype, data.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, without a copy."""
        return self.data[start:stop]

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids."""
        return self.data.index_select(0, ids)

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids in float64."""
        return self.take(ids).to(torch.float64)


class FileRows:
    """Rows of a memory-mapped array: only the piece asked for is read and converted."""

    def __init__(self, array: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.array = array
        self.count, self.width = array.shape
        self.dtype, self.device = dtype, device
        self._numpy_dtype = numpy.float64 if dtype == torch.float64 else numpy.float32

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, read from the file."""
        return self._convert(self.array[start:stop])

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, read from the file."""
        return self._convert(self.array[ids.cpu().numpy()])

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids in float64."""
        return self.take(ids).to(torch.float64)

    def _convert(self, piece: Any) -> torch.Tensor:
        return torch.from_numpy(numpy.array(piece, dtype=self._numpy_dtype, order="C")).to(self.device)


class SparseRows:
    """Rows of a ``scipy`` CSR matrix, made dense a piece at a time."""

    def __init__(self, matrix: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.matrix = matrix
        self.count, self.width = matrix.shape
        self.dtype, self.device = dtype, device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, dense."""
        return self._dense(self.matrix[start:stop])

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, dense."""
        return self._dense(self.matrix[ids.cpu().numpy()])

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids in float64."""
        return self.take(ids).to(torch.float64)

    def _dense(self, piece: Any) -> torch.Tensor:
        check_dense_piece(piece.shape[0], piece.shape[1], self.device)
        return torch.from_numpy(piece.toarray()).to(device=self.device, dtype=self.dtype)


class WideRows:
    """Rows of float32 given in float64, to be compared with rows of float64."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.count, self.width, self.dtype, self.device = rows.count, rows.width, torch.float64, rows.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop in float64."""
        return self.rows.block(start, stop).to(torch.float64)

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids in float64."""
        return self.rows.exact(ids)

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids in float64."""
        return self.rows.exact(ids)


class ScaledRows:
    """Rows times a power of two, so that squares of very large or very small values stay in range."""

    def __init__(self, rows: Rows, factor: float) -> None:
        self.rows, self.factor = rows, factor
        self.count, self.width, self.dtype, self.device = rows.count, rows.width, rows.dtype, rows.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, scaled."""
        return self.rows.block(start, stop) * self.factor

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, scaled."""
        return self.rows.take(ids).mul_(self.factor)

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, scaled, in float64."""
        return self.rows.exact(ids).mul_(self.factor)


class UnitRows:
    r"""Rows divided by their length: :math:`|u - v|^2 = 2 (1 - \cos(x, y))`, so cosine search is Euclidean search.

    A row of zeros has no direction. It gets a column of its own, at a right angle to every other row: its cosine
    distance to any other row is 1, and to another row of zeros it is 0.
    """

    def __init__(self, rows: Rows, with_zeros: bool) -> None:
        self.rows, self.with_zeros = rows, with_zeros
        self.count, self.width = rows.count, rows.width + int(with_zeros)
        self.dtype, self.device = rows.dtype, rows.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, of length one."""
        return self._unit(self.rows.block(start, stop))

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, of length one."""
        return self._unit(self.rows.take(ids))

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows with these ids, brought to length one in float64."""
        return self._unit(self.rows.exact(ids))

    def _unit(self, piece: torch.Tensor) -> torch.Tensor:
        length = torch.linalg.vector_norm(piece, dim=1, keepdim=True)
        zero = length == 0
        unit = piece / torch.where(zero, torch.ones_like(length), length)
        return torch.cat([unit, zero.to(unit.dtype)], dim=1) if self.with_zeros else unit


class PickedRows:
    """Some of the rows of another source, under new ids 0, 1, ..."""

    def __init__(self, rows: Rows, ids: torch.Tensor) -> None:
        self.rows, self.ids = rows, ids
        self.count, self.width, self.dtype, self.device = len(ids), rows.width, rows.dtype, rows.device

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop of those picked."""
        return self.rows.take(self.ids[start:stop])

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """The picked rows with these new ids."""
        return self.rows.take(self.ids[ids])

    def exact(self, ids: torch.Tensor) -> torch.Tensor:
        """The picked rows with these new ids in float64."""
        return self.rows.exact(self.ids[ids])
