"""Where an affinity's distances come from: rows of data, a matrix of distances, or neighbours found before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy
import torch

from cartograd.core.checks import show
from cartograd.engine import Tensor
from cartograd.errors import InputError, UnsupportedError
from cartograd.neighbors import FaissConfig, distance_tiles, search, validate
from cartograd.neighbors.distances import KNOWN
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.precomputed import check_matrix
from cartograd.neighbors.rows import FileRows
from cartograd.neighbors.tiles import tile_rows

MetricLike: TypeAlias = str | Callable[[Any, Any], Any]
BackendLike: TypeAlias = str | FaissConfig
DeviceLike: TypeAlias = torch.device | str | None
Neighbours: TypeAlias = tuple[torch.Tensor, torch.Tensor]
TILE_ELEMENTS = 1 << 22
ROUNDING = 1e-5
"""Distances that a caller's function puts below zero by this share of the largest are zero."""


def check_source(metric: Any, backend: Any = "auto", name: str = "metric") -> None:
    """Refuse metrics and backends that the search does not know."""
    validate.check_metric(metric, KNOWN, name)
    if not (backend is None or isinstance(backend, FaissConfig)):
        validate.check_backend(backend)


def opened(X: Any, metric: MetricLike, device: DeviceLike) -> tuple[Any, Given]:
    """X, read once where it is a stream, and what its shape and kind are."""
    given = intake(X, "X", device)
    if metric == "precomputed":
        validate.check_square((given.rows.count, given.rows.width))
    if isinstance(X, torch.utils.data.DataLoader) and isinstance(given.rows, FileRows):
        X = given.rows.array
    return X, given


def neighbours(
    X: Any,
    k: int,
    metric: MetricLike,
    backend: BackendLike = "auto",
    device: DeviceLike = None,
    random_state: Any = None,
    verbose: bool = False,
) -> Neighbours:
    """The k nearest other rows of each row as torch tensors, (n, k) int64 and (n, k), nearest first."""
    found = search(X, k, metric=metric, backend=backend, device=device, random_state=random_state, verbose=verbose)
    indices, distances = (plain(part) for part in found)
    return indices.to(device or indices.device), not_negative(distances, metric).to(device or distances.device)


def not_negative(distances: torch.Tensor, metric: MetricLike) -> torch.Tensor:
    """The distances; those of a caller's function are refused where they are negative by more than rounding."""
    if isinstance(metric, str) or not float(distances.min()) < 0:
        return distances
    least, name = float(distances.min()), getattr(metric, "__name__", type(metric).__name__)
    if least < -ROUNDING * float(distances.abs().max()):
        raise InputError(
            f"metric {name!r} gave {least:g} for two of the rows; distances cannot be negative: for a similarity s use "
            "max(s) - s"
        )
    return distances.clamp(min=0)


def plain(values: Any) -> torch.Tensor:
    """A torch tensor without history, from NumPy, torch or our own."""
    if isinstance(values, Tensor):
        return values.data.detach()
    return values.detach() if isinstance(values, torch.Tensor) else torch.as_tensor(numpy.asarray(values))


def given_neighbours(knn: Any, k: int | None, device: DeviceLike = None) -> Neighbours:
    """Neighbours found before, checked, nearest first, the row itself left out by its id.

    Parameters
    ----------
    knn : tuple
        Indices (n, m) and distances (n, m). Where any row is among its own neighbours all are taken to be: rows that
        are not (equal rows can push each other out) lose their last neighbour instead.
    k : int or None
        How many of them to use, at most; None for all.
    device : torch.device or str, default=None
        Where to put them.
    """
    indices, distances = (part.to(device) for part in checked_lists(knn, "knn"))
    if not distances.is_floating_point() or distances.dtype in (torch.float16, torch.bfloat16):
        distances = distances.to(torch.float32)
    distances, order = torch.sort(distances, dim=1, stable=True)
    indices = indices.to(torch.int64).gather(1, order)
    own = indices == torch.arange(len(indices), device=indices.device)[:, None]
    if bool(own.any()):
        own[:, -1] |= ~own.any(1)
        keep = torch.sort((~own).to(torch.int8), dim=1, descending=True, stable=True).indices[:, :-1]
        indices, distances = indices.gather(1, keep), distances.gather(1, keep)
    k = indices.shape[1] if k is None else min(k, indices.shape[1])
    return indices[:, :k], distances[:, :k]


def checked_lists(knn: Any, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return neighbor lists as tensors; refuse what is no pair of indices (n, k) and distances (n, k)."""
    if not isinstance(knn, (tuple, list)) or len(knn) != 2:
        raise UnsupportedError(f"{name} must be the pair (indices, distances), (n, k) each, got {show(knn)}")
    indices, distances = (_numbers(part, name) for part in knn)
    _check_lists(indices, distances, name)
    return indices, distances


def _numbers(part: Any, name: str) -> torch.Tensor:
    try:
        values = plain(part)
    except (TypeError, ValueError, RuntimeError):
        raise UnsupportedError(f"{name} must be two tables of numbers, got {show(part)} in it") from None
    if values.is_complex():
        raise UnsupportedError(f"{name} must be two tables of real numbers, got complex ones")
    return values


def _check_lists(indices: torch.Tensor, distances: torch.Tensor, name: str) -> None:
    if indices.dim() != 2 or indices.shape != distances.shape or not indices.numel():
        raise InputError(
            f"{name} must be indices (n, k) and distances (n, k), got shapes "
            f"{tuple(indices.shape)} and {tuple(distances.shape)}"
        )
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise UnsupportedError(f"the indices of {name} must be whole numbers, got {indices.dtype}")
    low, high = (int(value) for value in torch.aminmax(indices))
    if low < 0 or high >= len(indices):
        raise InputError(f"{name} names row {low if low < 0 else high}, but there are {len(indices)} rows")
    bad = ~(torch.isfinite(distances) & (distances >= 0))
    if bool(bad.any()):
        row, column = torch.nonzero(bad)[0].tolist()
        raise InputError(
            f"the distances of {name} must be finite and not negative, got {float(distances[row, column]):g} "
            f"at row {row}, column {column}"
        )


def tiles(X: Any, given: Given, metric: MetricLike, device: DeviceLike) -> Iterator[tuple[int, torch.Tensor]]:
    """All distances in row tiles: pairs (first row, distances (r, n))."""
    n = given.rows.count
    step = max(1, TILE_ELEMENTS // n)
    if metric != "precomputed":
        yield from distance_tiles(X, metric=metric, device=device, rows=min(step, tile_rows(given.rows.width)))
        return
    if given.sparse is not None:
        raise UnsupportedError("a dense affinity needs all distances: give a dense matrix, or use sparsity=True")
    check_matrix(given.rows, "X", square=True)
    for start in range(0, n, step):
        yield start, given.rows.block(start, min(start + step, n))


def distance_matrix(X: Any, given: Given, metric: MetricLike, device: DeviceLike) -> torch.Tensor:
    """All distances, (n, n) float64, for methods that solve for the whole matrix at once."""
    n = given.rows.count
    matrix = torch.empty(n, n, dtype=torch.float64, device=given.rows.device)
    for start, tile in tiles(X, given, metric, device):
        matrix[start : start + len(tile)] = tile
    matrix = not_negative(matrix, metric)
    if isinstance(metric, str) and metric != "precomputed":
        matrix = (matrix + matrix.T) / 2  # tiles round d(x, y) and d(y, x) apart in the last digit
    return matrix


def kth_smallest(C: torch.Tensor, k: int) -> torch.Tensor:
    """The distance of each row's k-th neighbour, the row itself not counted, (n,)."""
    other = C.clone().fill_diagonal_(torch.inf)
    return torch.kthvalue(other, k, dim=1).values


def like(X: Any, given: Given, dense: torch.Tensor) -> Any:
    """A dense answer in the precision of the data: ours where X is ours, a torch tensor otherwise."""
    dense = dense.to(given.rows.dtype)
    return Tensor(dense) if isinstance(X, Tensor) else dense
