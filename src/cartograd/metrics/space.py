"""A set of points and a metric: what every score asks of them, whatever they were handed in as.

`Measured` measures rows in float64; `Matrix` reads off distances that the caller has computed. *Raw* values order
pairs as distances do and are cheaper (for Euclidean distances, their squares).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.errors import UnsupportedError
from cartograd.neighbors import search, validate
from cartograd.neighbors.default_device import device_or_default
from cartograd.neighbors.distances import KNOWN
from cartograd.neighbors.intake import Given, intake
from cartograd.neighbors.measure import measured_pairs
from cartograd.neighbors.precomputed import check_matrix
from cartograd.neighbors.ready import make_ready
from cartograd.neighbors.rows import FileRows, SparseRows, TensorRows
from cartograd.neighbors.tiles import middle

MetricName = str | Callable[[Any, Any], Any]
Exact = torch.float64


@dataclass(frozen=True)
class Tile:
    """Raw values (r, m) float64 of some rows with some columns, infinite for a point and itself.

    ``both`` says that the tile also serves the columns as rows, since the metric is symmetric.
    """

    rows: slice
    columns: slice
    raw: torch.Tensor
    both: bool


class Space(ABC):
    """Points of which distances can be asked.

    Parameters
    ----------
    given : Given
        The points as they were handed in.
    metric : str or callable
        Its public name, or a function of two Tensors.
    """

    def __init__(self, given: Given, metric: MetricName) -> None:
        self.given, self.metric = given, metric
        self.count, self.device = given.rows.count, given.rows.device

    def neighbours(self, k: int, backend: Any = "exact", verbose: bool = False) -> torch.Tensor:
        """Ids (n, k) int64 of the k nearest of every point, itself left out; ties by id."""
        source = source_of(self.given)
        ids, _ = search(source, k, metric=self.metric, backend=backend, device=self.device, verbose=verbose)
        return torch.as_tensor(ids, device=self.device)

    @abstractmethod
    def raw_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Raw values of single pairs, (m,) float64."""

    @abstractmethod
    def distances(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Distances of single pairs, (m,) float64."""

    @abstractmethod
    def slack(self, ids: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """How far values of `tiles` near the raw values (r, k) of the points `ids` (r,) may be off."""

    @abstractmethod
    def settled(self) -> bool:
        """Whether values of `tiles` within `slack` of each other are ties; if not, `raw_pairs` tells them apart."""

    @abstractmethod
    def tiles(self) -> Iterator[Tile]:
        """All pairs of points, tile by tile."""

    @abstractmethod
    def tile_count(self) -> int:
        """How many tiles `tiles` gives."""

    def blocks(self) -> list[slice]:
        """The points in blocks, as many as a tile has rows; never a function of the thread count."""
        size = 1024 if self.device.type == "cpu" else 4096
        return [slice(start, min(start + size, self.count)) for start in range(0, self.count, size)]


class Measured(Space):
    """Rows of numbers under a metric of `cartograd.neighbors`, or one of the caller's own."""

    def __init__(self, given: Given, metric: MetricName, name: str) -> None:
        super().__init__(given, metric)
        self.ready = make_ready(given, None, metric, (name, name))
        self.rule, self.rows = self.ready.metric, self.ready.data
        centre = middle(self.rows) if self.rule.centred else torch.zeros((), device=self.device)
        self.centre = centre.to(Exact)

    def raw_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Measured by differences, in float64."""
        return measured_pairs(self.rule, self.rows, left, self.rows, right)

    def distances(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Measured by differences, of the rows as they were given."""
        return self.rule.finish(self.raw_pairs(left, right)) * self.ready.scale**-self.rule.degree

    def slack(self, ids: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """Twice the metric's own bound, or that of a sum where its tiles are exact."""
        if self.rule.slack is None:
            return torch.finfo(Exact).eps * (4 + math.sqrt(self.rows.width)) * raw.abs()
        values = self.rows.exact(ids) - self.centre
        return torch.stack([2 * self.rule.slack(values, column) for column in raw.unbind(1)], dim=1)

    def settled(self) -> bool:
        """True where tiles are no less exact than pairs."""
        return self.rule.slack is None

    def tiles(self) -> Iterator[Tile]:
        """Square tiles; those below the diagonal are left out where the metric is symmetric."""
        blocks = self.blocks()
        for i, rows in enumerate(blocks):
            own = self._values(rows)
            for columns in blocks[i:] if self.rule.symmetric else blocks:
                raw = self.rule.tile(own, own if columns == rows else self._values(columns))
                if columns == rows:
                    raw.fill_diagonal_(torch.inf)
                yield Tile(rows, columns, raw, self.rule.symmetric and columns != rows)

    def tile_count(self) -> int:
        """How many tiles `tiles` gives."""
        across = len(self.blocks())
        return across * (across + 1) // 2 if self.rule.symmetric else across**2

    def _values(self, part: slice) -> torch.Tensor:
        ids = torch.arange(part.start, part.stop, device=self.device)
        return self.rows.exact(ids) - self.centre


class Matrix(Space):
    """Distances that the caller has computed, (n, n)."""

    def __init__(self, given: Given, name: str) -> None:
        super().__init__(given, "precomputed")
        if given.sparse is not None:
            raise UnsupportedError(
                f"{name} is a sparse matrix of some distances, and this score needs all of them; give a dense matrix"
            )
        check_matrix(given.rows, name, square=True)

    def raw_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Entries of the matrix."""
        if isinstance(self.given.rows, TensorRows):
            return self.given.rows.data[left, right].to(Exact)
        step = max(1, (1 << 22) // self.count)
        parts = zip(left.split(step), right.split(step), strict=True)
        return torch.cat([self.given.rows.exact(a).gather(1, b[:, None]).squeeze(1) for a, b in parts])

    def distances(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Entries of the matrix."""
        return self.raw_pairs(left, right)

    def slack(self, ids: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """Nothing: what is read off is not rounded."""
        return torch.zeros_like(raw)

    def settled(self) -> bool:
        """Equal entries are ties."""
        return True

    def tiles(self) -> Iterator[Tile]:
        """Square tiles, all of them: the matrix need not be symmetric."""
        for rows in self.blocks():
            block = self.given.rows.block(rows.start, rows.stop)
            for columns in self.blocks():
                raw = block[:, columns].to(Exact, copy=True)
                if columns == rows:
                    raw.fill_diagonal_(torch.inf)
                yield Tile(rows, columns, raw, False)

    def tile_count(self) -> int:
        """How many tiles `tiles` gives."""
        return len(self.blocks()) ** 2


def space_of(given: Given, metric: MetricName, name: str) -> Space:
    """The points under a metric, read once and checked."""
    return Matrix(given, name) if metric == "precomputed" else Measured(given, metric, name)


def read(data: Any, name: str, metric: MetricName, device: torch.device | str | None) -> Given:
    """An argument recognised, its shape and its metric's name checked, nothing computed."""
    validate.check_metric(metric, KNOWN)
    given = intake(data, name, device_or_default(device))
    if metric == "precomputed":
        validate.check_square((given.rows.count, given.rows.width))
    return given


def source_of(given: Given) -> Any:
    """The points as `search` takes them, without a copy."""
    rows = given.rows
    if isinstance(rows, TensorRows):
        return rows.data
    return rows.matrix if isinstance(rows, SparseRows) else rows.array if isinstance(rows, FileRows) else rows


def picked(given: Given, ids: torch.Tensor, square: bool) -> Given:
    """Some of the points; where `square`, the distances among them."""
    if given.sparse is not None:
        matrix = given.sparse[ids.cpu().numpy()]
        matrix = matrix[:, ids.cpu().numpy()] if square else matrix
        return Given(SparseRows(matrix, given.rows.dtype, given.rows.device), given.kind, given.home)
    rows = given.rows.take(ids.to(given.rows.device))
    if square:
        rows = rows.index_select(1, ids.to(rows.device))
    return Given(TensorRows(rows), given.kind, given.home)
