"""What a caller may hand in, made into `Rows`; and the answer made into the kind of thing that was handed in."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from cartograd.core.checks import show
from cartograd.engine import Tensor
from cartograd.errors import InputError, UnsupportedError
from cartograd.neighbors import validate
from cartograd.neighbors.frames import convert, frame_numbers, is_frame
from cartograd.neighbors.rows import FileRows, Rows, SparseRows, TensorRows
from cartograd.neighbors.sparse_input import as_csr

SMALL_INTEGERS = {"bool", "int8", "uint8", "int16", "uint16"}
"""Integer kinds whose every value is a float32; wider ones are computed in float64."""


@dataclass(frozen=True)
class Given:
    """One data argument: its rows, and what it was.

    Parameters
    ----------
    rows : Rows
        The rows, on the device the search computes on.
    kind : str
        "numpy", "torch" or "tensor" (ours): what to answer with.
    home : torch.device
        The device to answer on.
    """

    rows: Rows
    kind: str
    home: torch.device

    @property
    def sparse(self) -> Any:
        """The ``scipy`` CSR matrix behind the rows, or `None`."""
        return self.rows.matrix if isinstance(self.rows, SparseRows) else None

    def answer(self, values: torch.Tensor) -> Any:
        """`values` as the kind of thing the data were."""
        if self.kind == "numpy":
            return values.cpu().numpy()
        values = values.to(self.home)
        return Tensor(values) if self.kind == "tensor" else values


def intake(data: Any, name: str, device: torch.device | str | None) -> Given:
    """Recognize `data`, check its shape and kind, and make `Rows` of it."""
    device = None if device is None else validate.check_device(device)
    if isinstance(data, Tensor):
        data, kind = data.data.detach(), "tensor"
    else:
        kind = "torch" if isinstance(data, torch.Tensor) else "numpy"
    if isinstance(data, torch.Tensor):
        return _from_tensor(data, name, device, kind)
    target = torch.device("cpu" if device is None else device)
    if isinstance(data, (torch.utils.data.DataLoader, Iterator)):
        return Given(*_from_loader(data, name, target), torch.device("cpu"))
    if isinstance(data, numpy.memmap):
        validate.check_shape(data.shape, name)
        return Given(FileRows(data, _float_of(data.dtype, name), target), "numpy", target)
    if hasattr(data, "tocsr"):
        return Given(_from_sparse(data, name, target), "numpy", target)
    return Given(TensorRows(_from_array(data, name).to(target)), "numpy", target)


def _from_tensor(data: torch.Tensor, name: str, device: torch.device | str | None, kind: str) -> Given:
    data = data.detach()
    validate.check_tensor_numbers(data, name)
    validate.check_shape(tuple(data.shape), name)
    small = data.dtype in (torch.float16, torch.bfloat16, torch.float32)
    small = small or str(data.dtype).removeprefix("torch.") in SMALL_INTEGERS
    home = data.device
    data = data.to(device=home if device is None else device, dtype=torch.float32 if small else torch.float64)
    return Given(TensorRows(data.contiguous()), kind, home)


def _from_array(data: Any, name: str) -> torch.Tensor:
    if isinstance(data, numpy.ma.MaskedArray):
        data = numpy.ma.filled(data.astype(numpy.float64) if data.dtype.kind in "biu" else data, numpy.nan)
    elif is_frame(data):
        data = frame_numbers(data, name)
    elif hasattr(data, "to_numpy"):  # a series of pandas or polars, without importing either
        data = convert(data.to_numpy, name, "to_numpy")
    elif isinstance(data, (list, tuple)) and any(isinstance(row, (torch.Tensor, Tensor)) for row in data):
        data = [numpy.asarray(row.detach().cpu()) if isinstance(row, torch.Tensor) else row for row in data]
    elif hasattr(data, "__array__") and not isinstance(data, numpy.ndarray):
        data = convert(lambda: numpy.asarray(data), name, "__array__")
    array = convert(lambda: validate.array_from(data, name), name, "numpy.asarray")
    if array.dtype == object and array.ndim == 2:
        array = _plain_numbers(array, name)
    dtype = _float_of(array.dtype, name)
    validate.check_shape(array.shape, name)
    array = numpy.ascontiguousarray(array, dtype=numpy.float64 if dtype == torch.float64 else numpy.float32)
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():  # we do not write to it either
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _plain_numbers(array: Any, name: str) -> Any:
    """An object array of plain numbers (a frame of mixed columns) as floats; with text among them as it is."""
    real = (int, float, numpy.number, numpy.bool_)
    odd = [value for value in array.flat if not isinstance(value, real) or isinstance(value, complex)]
    if not odd:
        return _widened(array, name)
    for value in odd:
        if not isinstance(value, (str, bytes, complex, type(None))):
            raise UnsupportedError(
                f"{name} holds {show(value)}, of type {type(value).__name__}: float() argument must be a string or a "
                "number"
            )
    return array


def _widened(array: Any, name: str) -> Any:
    """An object array of numbers as float64."""
    try:
        return array.astype(numpy.float64)
    except OverflowError:
        raise InputError(f"{name} holds a whole number beyond the range of float64; scale the data down") from None


def _from_sparse(data: Any, name: str, device: torch.device) -> SparseRows:
    matrix = convert(lambda: as_csr(data, name), name, "tocsr")
    dtype = _float_of(matrix.dtype, name)
    matrix = matrix.astype(numpy.float64 if dtype == torch.float64 else numpy.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return SparseRows(matrix, dtype, device)


def _from_loader(loader: Any, name: str, device: torch.device) -> tuple[FileRows, str]:
    """One pass over the loader, batch by batch, into a temporary file; and of what kind its batches are.

    A second pass over a loader that shuffles would give the rows other ids, so there is only one.
    """
    with tempfile.TemporaryFile(prefix="cartograd-rows-") as file:
        width, count, dtype, kind = 0, 0, torch.float32, "numpy"
        for batch in loader:
            piece, kind = _batch_array(batch, name)
            if count == 0:
                width, dtype = piece.shape[1], _float_of(piece.dtype, name)
            elif piece.shape[1] != width:
                raise InputError(f"{name}: a batch has {piece.shape[1]} columns where earlier ones had {width}")
            numpy.ascontiguousarray(piece, dtype=_numpy_float(dtype)).tofile(file)
            count += len(piece)
        if count == 0:
            raise InputError(f"{name} is empty: found 0 sample(s): the DataLoader gave no batch.")
        file.flush()
        mapped = numpy.memmap(file, dtype=_numpy_float(dtype), mode="r", shape=(count, width))
    return FileRows(mapped, dtype, device), kind  # the map keeps the nameless file alive


def _batch_array(batch: Any, name: str) -> tuple[Any, str]:
    if isinstance(batch, dict):
        batch = next(itertools.islice(batch.values(), 1))
    if isinstance(batch, (list, tuple)):
        batch = batch[0]
    kind = "tensor" if isinstance(batch, Tensor) else "torch" if isinstance(batch, torch.Tensor) else "numpy"
    batch = batch.data if isinstance(batch, Tensor) else batch
    if isinstance(batch, torch.Tensor):
        batch = batch.detach().to("cpu", torch.float32 if batch.dtype == torch.bfloat16 else batch.dtype).numpy()
    array = validate.array_from(batch, name)
    validate.check_numbers(array.dtype, name)
    validate.check_shape(array.shape, f"a batch of {name}")
    return array, kind


def _float_of(dtype: Any, name: str) -> torch.dtype:
    validate.check_numbers(dtype, name)
    dtype = numpy.dtype(dtype)
    small = dtype.name in SMALL_INTEGERS or (dtype.kind == "f" and dtype.itemsize <= 4)
    return torch.float32 if small else torch.float64


def _numpy_float(dtype: torch.dtype) -> Any:
    return numpy.float64 if dtype == torch.float64 else numpy.float32
