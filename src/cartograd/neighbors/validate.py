"""Everything that can be wrong with the arguments of a search, each with its message, checked before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from cartograd.core.checks import count, number, shorten, show
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors.rows import Rows

BACKENDS = ("auto", "exact", "cells", "faiss", "nndescent")


def check_count(k: Any, available: int, without_self: bool) -> int:
    """`k` as an int between 1 and the number of neighbours a row can have."""
    wanted = count(k, "k")
    largest = available - 1 if without_self else available
    if wanted > largest:
        reason = " (a row is not its own neighbour)" if without_self else ""
        advice = f"use k <= {largest}" if largest >= 1 else "give more rows"
        raise OptionError(f"k={wanted} is too large for {available} rows{reason}: {advice}")
    return wanted


def check_metric(metric: Any, known: Iterable[str], name: str = "metric") -> None:
    """Refuse a metric that is neither known by name nor callable."""
    if isinstance(metric, str):
        names = sorted(known)
        if metric not in names:
            known_names = ", ".join(names)
            raise OptionError(f"unknown {name} {show(metric)}: known are {known_names}, or a function of two Tensors")
    elif not callable(metric):
        raise UnsupportedError(
            f"{name} must be a name or a function of two Tensors, got {show(metric)} of type {type(metric).__name__}"
        )


def check_backend(backend: Any, name: str = "backend") -> None:
    """Refuse a backend that is not known by name."""
    if not isinstance(backend, str):
        raise UnsupportedError(
            f"{name} must be a name or a FaissConfig, got {show(backend)} of type {type(backend).__name__};"
            f" known names are {', '.join(BACKENDS)}"
        )
    if backend not in BACKENDS:
        raise OptionError(f"unknown {name} {show(backend)}: known are {', '.join(BACKENDS)}")


def check_served(backend: str, metric: Any, served: Iterable[str]) -> None:
    """Refuse a metric that the chosen backend does not serve."""
    names = sorted(served)
    if not isinstance(metric, str) or metric not in names:
        shown = metric if isinstance(metric, str) else "a function"
        raise OptionError(
            f"backend {backend!r} does not serve metric {shown!r}, only {', '.join(names)}; use backend='exact'"
        )


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse anything but a table with at least one row and one column."""
    if len(shape) == 1:
        raise InputError(
            f"{name} must have two dimensions (rows, columns), got one, of length {shape[0]}. Reshape your data: "
            f"{name}.reshape(-1, 1) for one column, {name}.reshape(1, -1) for one row"
        )
    if len(shape) != 2:
        raise InputError(
            f"{name} must have two dimensions (rows, columns), got shape {tuple(shape)}; flatten each row first, "
            f"with {name}.reshape(len({name}), -1)"
        )
    if shape[0] == 0:
        raise InputError(f"{name} is empty: found 0 sample(s) (shape={tuple(shape)}) while a minimum of 1 is required.")
    if shape[1] == 0:
        raise InputError(f"{name} has 0 feature(s) (shape={tuple(shape)}) while a minimum of 1 is required.")


def check_numbers(dtype: Any, name: str) -> None:
    """Refuse arrays whose elements are not real numbers (NumPy dtypes)."""
    kind = numpy.dtype(dtype).kind
    if kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {dtype}; use {name}.real or stack both parts")
    if kind not in "biuf":
        raise InputError(
            f"{name} must hold numbers, got dtype {dtype}; convert with {name}.astype('float32'), "
            "and encode text or categories as columns of numbers first"
        )


def check_tensor_numbers(data: torch.Tensor, name: str) -> None:
    """Refuse tensors whose elements are not real numbers, one beside the other."""
    if data.dtype.is_complex:
        raise InputError(
            f"Complex data not supported: {name} has dtype {data.dtype}; use {name}.real or stack both parts"
        )
    if data.is_quantized:
        raise UnsupportedError(f"{name} is a quantized tensor; use {name}.dequantize()")
    if data.is_nested or data.layout != torch.strided:
        raise UnsupportedError(f"{name} is a tensor of layout {data.layout}; use {name}.to_dense(), or scipy.sparse")
    if data.is_meta:
        raise UnsupportedError(f"{name} is on the meta device and holds no values")


def check_device(device: Any, name: str = "device") -> torch.device:
    """Return `device` as torch's; refuse one that does not exist or cannot be used here."""
    if type(device) is not int and not isinstance(device, (str, torch.device)):
        raise OptionError(f"{name} must be the name of a device, got {show(device)}; use 'auto' or 'cpu'")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError, ValueError) as error:
        reason = shorten(str(error).partition("\n")[0])
        raise OptionError(f"{name} {show(device)} cannot be used here ({reason}); use 'auto' or 'cpu'") from None
    if chosen.type == "meta":
        raise OptionError(f"{name} 'meta' holds no values; use 'auto' or 'cpu'")
    return chosen


def array_from(data: Any, name: str) -> Any:
    """`data` as a NumPy array, with a message of our own where its rows differ in length."""
    if data is None:
        raise UnsupportedError(
            f"{name} is None; give an array, a tensor, a data frame, a sparse matrix or a DataLoader"
        )
    if isinstance(data, (str, bytes)):
        raise UnsupportedError(f"{name} is a string; read the file first, with numpy.load or a data frame library")
    try:
        return numpy.asarray(data)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name} cannot be read as a table of numbers, its rows may differ in length: {error}"
        ) from None


def check_width(width: int, expected: int, name: str = "queries") -> None:
    """Refuse rows of another width than those of X."""
    if width != expected:
        raise InputError(
            f"{name} has {width} columns, but X has {expected}; both need the same columns in the same order"
        )


def check_square(shape: tuple[int, ...]) -> None:
    """Refuse a precomputed distance matrix that is not square."""
    if shape[0] != shape[1]:
        raise InputError(
            f"metric='precomputed' takes the square matrix of all distances, got shape {tuple(shape)}; "
            "for rows and columns of data choose another metric"
        )


def scan(rows: Rows, name: str, tile: int, look: Callable[[torch.Tensor], None] | None = None) -> float:
    """Read all rows once; refuse NaN and infinity by the first bad cell; return the largest absolute value."""
    largest = 0.0
    for start in range(0, rows.count, tile):
        block = rows.block(start, min(start + tile, rows.count))
        low, high = (float(value) for value in torch.aminmax(block))
        if not (low > -numpy.inf and high < numpy.inf):
            _refuse_cell(block, start, name)
        largest = max(largest, -low, high)
        if look is not None:
            look(block)
    return largest


def scan_sparse(matrix: Any, name: str) -> float:
    """The same for the stored values of a ``scipy`` CSR matrix."""
    bad = ~numpy.isfinite(matrix.data)
    if bad.any():
        at = int(bad.argmax())
        row = int(numpy.searchsorted(matrix.indptr, at, side="right")) - 1
        _refuse_value(float(matrix.data[at]), row, int(matrix.indices[at]), name)
    return float(abs(matrix.data).max()) if len(matrix.data) else 0.0


def _refuse_cell(block: torch.Tensor, start: int, name: str) -> None:
    row, column = torch.nonzero(~torch.isfinite(block))[0].tolist()
    _refuse_value(float(block[row, column]), start + row, column, name)


def _refuse_value(value: float, row: int, column: int, name: str) -> None:
    what = "NaN" if numpy.isnan(value) else "infinity"
    raise InputError(
        f"Input {name} contains {what}: first at row {row}, column {column}. Remove or impute such rows first"
    )


def check_distances(block: torch.Tensor) -> None:
    """Refuse a block of precomputed distances that has negative ones."""
    if float(block.min()) < 0:
        row, column = torch.nonzero(block < 0)[0].tolist()
        raise InputError(
            f"Negative values in data: precomputed distances cannot be negative, got {float(block[row, column]):g} in "
            f"column {column}; for similarities s use max(s) - s"
        )


def check_share(recall: Any) -> None:
    """Refuse a recall that is no share."""
    number(recall, "recall", 0.0, strict=True, high=1.0)


def check_queries(data: Rows, queries: Rows | None, precomputed: bool, without_self: bool) -> None:
    """Refuse queries of another width, or more of them than rows where query i is row i."""
    if queries is None:
        return
    if precomputed:
        check_width(queries.width, data.count)
    else:
        check_width(queries.width, data.width)
    if without_self and queries.count > data.count:
        raise OptionError(
            f"exclude_self=True takes query i to be row i of X, but there are {queries.count} queries and "
            f"{data.count} rows"
        )
