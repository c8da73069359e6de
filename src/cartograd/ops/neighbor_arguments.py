"""What can be wrong with the arguments of `knn`, each with its message, checked before any work."""

from __future__ import annotations

import operator
from typing import Any

import torch

from cartograd.engine.accumulate import raw
from cartograd.engine.tensor import Tensor
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.ops.nearest import METRICS, default_tile


def whole_number(value: Any, name: str) -> int:
    """`value` as an int of at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UnsupportedError(f"knn: {name} must be a whole number, got {value!r} of type {type(value).__name__}")
    number = operator.index(value)
    if number < 1:
        raise OptionError(f"knn: {name} must be at least 1, got {name}={number}")
    return number


def count(k: Any, available: int, without_self: bool) -> int:
    """`k` as an int, no more than the neighbours a row can have."""
    if k is None:
        raise UnsupportedError("knn needs k, the number of neighbours: knn(X, k=15), say")
    wanted, largest = whole_number(k, "k"), available - without_self
    if wanted > largest:
        reason = " (a row is not its own neighbour)" if without_self else ""
        advice = f"use k <= {largest}" if largest >= 1 else "give more rows"
        raise OptionError(f"knn: k={wanted} is too large for {available} rows{reason}: {advice}")
    return wanted


def form(X: Any, distances: Any, others: dict[str, Any]) -> None:
    """Either points or a matrix of distances must be given, and the latter without what belongs to points."""
    if X is not None and distances is not None:
        raise UnsupportedError(
            "knn takes points, knn(X, k), or a matrix of distances, knn(distances=D, k=k), but both X and distances "
            "were given: leave one out"
        )
    if X is None and distances is None:
        raise UnsupportedError("knn needs points, knn(X, k), or a matrix of distances, knn(distances=D, k=k)")
    given = [name for name, value in others.items() if value is not None]
    if distances is not None and given:
        raise UnsupportedError(f"knn(distances=D, k=k) does not take {' or '.join(given)}, which is for points X")


def known_metric(metric: Any) -> str:
    """Refuse a metric that is not known by name."""
    if metric not in METRICS:
        raise OptionError(f"knn: unknown metric {metric!r}: known are {', '.join(METRICS)}")
    return str(metric)


def tile_rows(tile: Any, device: torch.device) -> int:
    """The tile that was asked for, or that fits the device."""
    return default_tile(device) if tile is None else whole_number(tile, "tile")


def table(value: Any, name: str, infinite: bool = False) -> Any:
    """`value` as a tensor of ours or of torch's; refused unless it is a table of float32 or float64 without NaN."""
    if not isinstance(value, (Tensor, torch.Tensor)):
        try:
            value = torch.as_tensor(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise UnsupportedError(f"knn: {name} cannot be read as a tensor: {error}") from None
    shape = tuple(value.shape)
    if len(shape) != 2:
        advice = f"; {name}.reshape(-1, 1) makes one column" if len(shape) == 1 else ""
        raise InputError(f"knn: {name} must have two dimensions (rows, columns), got shape {shape}{advice}")
    if 0 in shape:
        raise InputError(f"knn: {name} is empty, its shape is {shape}: give at least one row and one column")
    if value.dtype not in (torch.float32, torch.float64):
        raise InputError(f"knn: {name} must be float32 or float64, got {value.dtype}: convert it with {name}.float()")
    _require_numbers(raw(value).detach(), name, infinite)
    return value


def _require_numbers(values: torch.Tensor, name: str, infinite: bool) -> None:
    low, high = torch.aminmax(values)  # NaN if there is one
    if bool((low.isnan() if infinite else (high - low).isfinite().logical_not()).item()):
        bad = values.isnan() if infinite else values.isfinite().logical_not()
        if not bad.any():
            return  # their difference overflowed
        row, column = torch.nonzero(bad)[0].tolist()
        what = "NaN" if values[row, column].isnan() else "infinity"
        raise InputError(
            f"knn: {name} contains {what}, first at row {row}, column {column}: remove or impute such rows first"
        )


def fitting_queries(queries: Any, X: Any, without_self: bool) -> None:
    """Refuse queries that cannot be compared with X."""
    if queries.shape[1] != X.shape[1]:
        raise InputError(
            f"knn: queries have {queries.shape[1]} columns, but X has {X.shape[1]}; both need the same columns"
        )
    if queries.dtype != X.dtype or queries.device != X.device:
        raise InputError(
            f"knn: queries are {queries.dtype} on {queries.device}, but X is {X.dtype} on {X.device}: "
            "convert one with .to(other)"
        )
    if without_self:
        rows_are_columns(queries.shape[0], X.shape[0], "queries", "rows of X")


def rows_are_columns(rows: int, columns: int, what: str, those: str) -> None:
    """Row i can only be left out of its own list if there is a column i."""
    if rows > columns:
        raise OptionError(
            f"knn: exclude_self=True takes number i of the {what} to be number i of the {those}, but there are {rows} "
            f"{what} and {columns} {those}"
        )


def neighbour_ids(indices: Any, k: Any, rows: int, available: int, device: torch.device) -> torch.Tensor:
    """Neighbours found elsewhere, (rows, k), as int64 on `device`; refused where they name no row."""
    ids = raw(indices) if isinstance(indices, (Tensor, torch.Tensor)) else torch.as_tensor(indices)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool:
        raise UnsupportedError(f"knn: indices must be whole numbers, got {ids.dtype}")
    if ids.dim() != 2 or ids.shape[0] != rows or 0 in ids.shape:
        raise InputError(f"knn: indices must have shape ({rows}, k), one list for each row, got {tuple(ids.shape)}")
    if k is not None and whole_number(k, "k") != ids.shape[1]:
        raise OptionError(f"knn: k={k}, but indices name {ids.shape[1]} neighbours a row: leave k out, or cut indices")
    low, high = (int(bound) for bound in torch.aminmax(ids))
    if low < 0 or high >= available:
        raise InputError(f"knn: indices run from {low} to {high}, but X has {available} rows: use 0 to {available - 1}")
    return ids.to(device=device, dtype=torch.int64)
