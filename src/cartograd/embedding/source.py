"""The data of a fit: its rows, each kind of row once, ready to be searched."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch

from cartograd.affinity.data import MetricLike, not_negative, plain
from cartograd.embedding.memory import return_freed
from cartograd.embedding.rowkeys import Distinct, Register, distinct_rows, row_keys
from cartograd.neighbors import search
from cartograd.neighbors.compiled_queries import CompiledQueries, query_cells
from cartograd.neighbors.query_cells import QueryCells
from cartograd.neighbors.rows import FileRows, Rows, SparseRows, TensorRows
from cartograd.neighbors.searching import EXACT_UP_TO, EXACT_UP_TO_ON_GPU
from cartograd.neighbors.tiles import tile_rows

TRUE_DISTANCE = {"sqeuclidean": "euclidean", "sqhyperbolic": "sqhyperbolic"}
"""Metrics that are squares, and what gives the distance itself; the root of a squared hyperbolic one is taken."""


@dataclass(frozen=True)
class Source:
    """Rows that a map is made of.

    Parameters
    ----------
    rows : Rows
        The different rows (or all, where duplicates are kept).
    register : Register
        Their keys, by which rows are recognised later.
    distinct : Distinct or None
        Which of them each row given is; None where all were kept.
    metric : str or callable
        How they are compared.
    largest : float
        The largest absolute value in them.
    """

    rows: Rows
    register: Register
    distinct: Distinct | None
    metric: MetricLike
    largest: float

    @property
    def n(self) -> int:
        """The number of different rows."""
        return self.rows.count

    def neighbours(self, k: int, backend: Any, seed: int, verbose: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest other rows of each and their distances, never squared: (n, k) int64 and (n, k)."""
        return _distances(self, None, k, backend, seed, verbose)

    def neighbours_of(self, rows: Rows, k: int, backend: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest of these rows to each of other rows, and their distances.

        What a row gets does not depend on how many are asked with it: few rows are searched exactly, many by cells.
        """
        if backend not in (None, "auto") or not isinstance(rows, TensorRows):
            return _distances(self, rows, k, backend, seed, False)
        if self._has_cells() and rows.dtype == self.rows.dtype:
            return self._cells(k, seed).nearest(rows.data, k)
        few = self.n <= (EXACT_UP_TO if self.rows.device.type == "cpu" else EXACT_UP_TO_ON_GPU)
        return _distances(self, rows, k, "exact" if few else backend, seed, False)

    def _has_cells(self) -> bool:
        """Whether new rows are searched by cells: for many dense rows of moderate size, and Euclidean distances."""
        moderate = 1e-6 < self.largest < 1e6
        many = self.n > (EXACT_UP_TO if self.rows.device.type == "cpu" else EXACT_UP_TO_ON_GPU)
        return many and moderate and self.metric in ("sqeuclidean", "euclidean") and isinstance(self.rows, TensorRows)

    def _cells(self, k: int, seed: int) -> CompiledQueries | QueryCells:
        """The cells of these rows, made when first asked for; not a part of what is saved."""
        made: dict[tuple[int, int], CompiledQueries | QueryCells] = vars(self).setdefault("_made", {})
        if (k, seed) not in made:
            made.clear()
            made[k, seed] = query_cells(searchable(self.rows), k, seed)
        return made[k, seed]


def make_source(rows: Rows, metric: MetricLike, merge: bool) -> Source:
    """The source of these rows; with `merge` equal ones are taken together (never those of a matrix of distances)."""
    keys = row_keys(rows)
    distinct = distinct_rows(keys) if merge and metric != "precomputed" else None
    if distinct is not None:
        rows, keys = picked(rows, distinct.first), keys[distinct.first]
    return Source(rows, Register.of(keys), distinct, metric, largest_value(rows))


def owned(source: Source) -> Source:
    """The source with rows in memory of its own: what a caller does to his array later is not to change the map.

    Of a matrix of distances the values are not needed again, and a file is the caller's to keep.
    """
    shared = isinstance(source.rows, TensorRows) and source.distinct is None and source.metric != "precomputed"
    return_freed(source.rows)
    return replace(source, rows=TensorRows(searchable(source.rows).clone())) if shared else source


def largest_value(rows: Rows) -> float:
    """The largest absolute value in the rows."""
    if isinstance(rows, SparseRows):
        return float(abs(rows.matrix.data).max()) if rows.matrix.nnz else 0.0
    step = tile_rows(rows.width)
    return max(float(rows.block(s, min(s + step, rows.count)).abs().max()) for s in range(0, rows.count, step))


def picked(rows: Rows, ids: torch.Tensor) -> Rows:
    """Some of the rows as a source of their own, of the same kind: in memory, sparse, or in a temporary file."""
    if isinstance(rows, SparseRows):
        return SparseRows(rows.matrix[ids.cpu().numpy()], rows.dtype, rows.device)
    if not isinstance(rows, FileRows):
        return TensorRows(rows.take(ids))
    with tempfile.TemporaryFile(prefix="cartograd-rows-") as file:
        for part in ids.split(tile_rows(rows.width)):
            rows.take(part).cpu().numpy().tofile(file)
        file.flush()
        dtype = numpy.float64 if rows.dtype == torch.float64 else numpy.float32
        mapped = numpy.memmap(file, dtype=dtype, mode="r", shape=(len(ids), rows.width))
    return FileRows(mapped, rows.dtype, rows.device)


def searchable(rows: Rows) -> Any:
    """What `search` takes for these rows, without a copy."""
    if isinstance(rows, TensorRows):
        return rows.data
    return rows.matrix if isinstance(rows, SparseRows) else rows.array  # type: ignore[attr-defined]


def _distances(
    source: Source, queries: Rows | None, k: int, backend: Any, seed: int, verbose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    metric = TRUE_DISTANCE.get(source.metric, source.metric) if isinstance(source.metric, str) else source.metric
    indices, distances = search(
        searchable(source.rows),
        k,
        metric=metric,
        backend="auto" if backend is None else backend,
        queries=None if queries is None else searchable(queries),
        device=source.rows.device,
        random_state=seed,
        verbose=verbose,
    )
    indices, distances = (plain(part).to(source.rows.device) for part in (indices, distances))
    distances = not_negative(distances, metric)
    return indices, distances.sqrt() if metric == "sqhyperbolic" else distances
