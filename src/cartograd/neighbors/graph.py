"""`Graph`: a weighted directed graph in compressed sparse rows, with the real degree of every row.

Everything here is built on sorting: edges are put in the order of their int64 key ``row * n + column``, so a result
never depends on the order in which threads or GPU blocks came by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cartograd.engine import Tensor
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors import components
from cartograd.neighbors.sparse_input import check_structure

MODES = ("mean", "union", "max", "sum")


@dataclass(frozen=True)
class Graph:
    """Edges i -> ``indices[indptr[i]:indptr[i + 1]]`` with their ``weights``, columns rising within each row.

    Parameters
    ----------
    indptr : torch.Tensor
        (n + 1,) int64, where each row begins.
    indices : torch.Tensor
        (e,) int64, the columns.
    weights : torch.Tensor
        (e,) floating point, finite and not negative.

    Examples
    --------
    >>> graph = Graph.from_knn([[1], [0], [1]], [[1.0], [1.0], [0.5]])
    >>> graph.symmetrise("mean").to_dense().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.25], [0.0, 0.25, 0.0]]
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor

    def __post_init__(self) -> None:
        _check(self.indptr, self.indices, self.weights)

    @classmethod
    def from_knn(cls, indices: Any, weights: Any) -> Graph:
        """Each row's k neighbours (n, k) and their distances or weights (n, k); an index of -1 is no edge."""
        columns, values = _tensor(indices), _tensor(weights)
        if columns.dim() != 2 or columns.shape != values.shape:
            raise InputError(
                f"neighbours and weights must both be (n, k), got {tuple(columns.shape)} and {tuple(values.shape)}"
            )
        rows = torch.arange(len(columns), device=columns.device)[:, None].expand(columns.shape)
        there = columns != -1
        return cls.from_edges(rows[there], columns[there], values[there], len(columns))

    @classmethod
    def from_edges(cls, rows: Any, columns: Any, weights: Any, n: int) -> Graph:
        """Single edges (e,) each; the weights of edges that are given twice are added."""
        rows, columns, values = _tensor(rows), _tensor(columns), _tensor(weights)
        if not (rows.shape == columns.shape == values.shape and rows.dim() == 1):
            raise InputError(
                "rows, columns and weights must be three vectors of one length, got shapes "
                f"{tuple(rows.shape)}, {tuple(columns.shape)}, {tuple(values.shape)}"
            )
        if not values.is_floating_point():
            values = values.to(torch.float32)
        _check_range(rows, n, "row")
        _check_range(columns, n, "column")
        keys, order = torch.sort(rows.to(torch.int64) * n + columns.to(torch.int64), stable=True)
        keys, values = _added(keys, values[order])
        return cls._from_keys(keys, values, n)

    @classmethod
    def _from_keys(cls, keys: torch.Tensor, weights: torch.Tensor, n: int) -> Graph:
        """Distinct keys row * n + column in rising order."""
        edges = torch.arange(n + 1, device=keys.device) * n
        return cls(torch.searchsorted(keys, edges), keys % max(n, 1), weights)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """A square ``scipy`` sparse matrix of any format."""
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"a graph needs a square matrix, got shape {tuple(matrix.shape)}")
        check_structure(matrix, "the matrix of a graph")
        coo = matrix.tocoo()
        return cls.from_edges(torch.from_numpy(coo.row), torch.from_numpy(coo.col), coo.data, coo.shape[0])

    @property
    def n(self) -> int:
        """How many rows."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """How many edges."""
        return len(self.indices)

    @property
    def device(self) -> torch.device:
        """Where it is held."""
        return self.indices.device

    def __repr__(self) -> str:
        return f"Graph(n={self.n}, n_edges={self.n_edges}, dtype={self.weights.dtype}, device={self.device})"

    def rows(self) -> torch.Tensor:
        """The row of each edge, (e,) int64."""
        ids = torch.arange(self.n, device=self.device)
        return torch.repeat_interleave(ids, self.degrees(), output_size=self.n_edges)

    def degrees(self) -> torch.Tensor:
        """Edges that leave each row, (n,) int64."""
        return self.indptr.diff()

    def row_sums(self) -> torch.Tensor:
        """The sum of each row's weights, (n,), summed in float64."""
        return _sums(self.weights, self.indptr).to(self.weights.dtype)

    def with_weights(self, weights: torch.Tensor) -> Graph:
        """The same edges with other weights, (e,)."""
        return Graph(self.indptr, self.indices, weights)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Graph:
        """On another device, or with weights of another type."""
        weights = self.weights.to(device=device or self.device, dtype=dtype or self.weights.dtype)
        return Graph(self.indptr.to(device or self.device), self.indices.to(device or self.device), weights)

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array``."""
        from scipy.sparse import csr_array

        parts = (self.weights, self.indices, self.indptr)
        return csr_array(tuple(part.cpu().numpy() for part in parts), shape=(self.n, self.n))

    def to_dense(self) -> torch.Tensor:
        """The (n, n) matrix."""
        dense = torch.zeros(self.n, self.n, dtype=self.weights.dtype, device=self.device)
        dense[self.rows(), self.indices] = self.weights
        return dense

    def transpose(self) -> Graph:
        """Every edge turned round."""
        keys, order = torch.sort(self.indices * self.n + self.rows(), stable=True)
        return Graph._from_keys(keys, self.weights[order], self.n)

    def symmetrise(self, mode: str = "mean") -> Graph:
        r"""A graph with :math:`P_{ij} = P_{ji}`.

        Parameters
        ----------
        mode : {"mean", "union", "max", "sum"}, default="mean"
            :math:`(P + P^T) / 2`; :math:`P + P^T - P \circ P^T`, the union of fuzzy sets; the larger; or
            :math:`P + P^T`.
        """
        if mode not in MODES:
            raise OptionError(f"unknown mode {mode!r}: known are {', '.join(MODES)}")
        if mode == "union" and self.n_edges and float(self.weights.max()) > 1:
            raise OptionError(f"mode 'union' takes weights of at most 1, got {float(self.weights.max()):g}; use 'mean'")
        rows = self.rows()
        keys = torch.cat([rows * self.n + self.indices, self.indices * self.n + rows])
        keys, order = torch.sort(keys, stable=True)
        first = _firsts(keys)
        place = torch.cumsum(first, 0) - 1
        there = torch.zeros(int(first.sum()), dtype=self.weights.dtype, device=self.device)
        back = torch.zeros_like(there)
        ahead = order < self.n_edges  # each key comes at most once ahead and once back: nothing is added in any order
        there[place[ahead]] = self.weights[order[ahead]]
        back[place[~ahead]] = self.weights[order[~ahead] - self.n_edges]
        return Graph._from_keys(keys[first], _combined(there, back, mode), self.n)

    def normalise(self, by: str = "row") -> Graph:
        """Weights that sum to one: in each ``"row"`` (rows without weight stay so), or in ``"total"``."""
        if by not in ("row", "total"):
            raise OptionError(f"by must be 'row' or 'total', got {by!r}")
        sums = _sums(self.weights, self.indptr)
        whole = sums[self.rows()] if by == "row" else _sums(sums, torch.tensor([0, self.n], device=self.device))
        weights = torch.where(whole > 0, self.weights.to(torch.float64) / whole.clamp(min=1e-300), 0.0)
        return self.with_weights(weights.to(self.weights.dtype))

    def subset(self, ids: Any) -> Graph:
        """The rows with these ids (distinct), as rows 0, 1, ..., and the edges among them."""
        ids = _tensor(ids)
        _check_range(ids, self.n, "row")
        if len(torch.unique(ids)) != len(ids):
            raise InputError("the ids of a subset must be distinct")
        new = torch.full((self.n,), -1, dtype=torch.int64, device=self.device)
        new[ids] = torch.arange(len(ids), device=self.device)
        rows, columns = new[self.rows()], new[self.indices]
        keep = (rows >= 0) & (columns >= 0)
        keys, order = torch.sort(rows[keep] * len(ids) + columns[keep], stable=True)
        return Graph._from_keys(keys, self.weights[keep][order], len(ids))

    def permute(self, order: Any) -> Graph:
        """Row i of the new graph is row ``order[i]`` of this one."""
        if len(order) != self.n:
            raise InputError(f"a permutation of {self.n} rows has {self.n} entries, got {len(order)}")
        return self.subset(order)

    def connected_components(self) -> tuple[int, torch.Tensor]:
        """How many parts hang together, edges taken in both directions, and the number of each row's part, (n,)."""
        return components.connected(self.rows(), self.indices, self.n)

    def join_components(self, points: Any, weight: float | None = None) -> Graph:
        """A graph in one piece: near components are joined by one edge each way.

        Each component is joined to the one with the nearest centre, through the pair of points that is nearest among
        those of either that lie closest to the other's centre, until one is left.

        Parameters
        ----------
        points : array-like, (n, d)
            Where the rows are.
        weight : float, default=None
            Weight of the new edges; None for the smallest positive weight there is.
        """
        count, labels = self.connected_components()
        if count == 1:
            return self
        left, right = components.bridges(labels, count, components.checked_points(points, self.n).to(self.device))
        if weight is None:
            positive = self.weights[self.weights > 0]
            weight = float(positive.min()) if len(positive) else 1.0
        added = torch.full((2 * len(left),), weight, dtype=self.weights.dtype, device=self.device)
        return Graph.from_edges(
            torch.cat([self.rows(), left, right]),
            torch.cat([self.indices, right, left]),
            torch.cat([self.weights, added]),
            self.n,
        )


def _check(indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> None:
    if not all(isinstance(part, torch.Tensor) and part.dim() == 1 for part in (indptr, indices, weights)):
        raise UnsupportedError("a Graph is made of three one-dimensional torch tensors: indptr, indices, weights")
    if indptr.dtype != torch.int64 or indices.dtype != torch.int64 or not weights.is_floating_point():
        raise UnsupportedError(
            "indptr and indices must be int64 and weights floating point, got "
            f"{indptr.dtype}, {indices.dtype}, {weights.dtype}"
        )
    if len(indices) != len(weights):
        raise InputError(f"{len(indices)} indices and {len(weights)} weights: there must be one weight for each edge")
    if len(indptr) == 0 or int(indptr[0]) != 0 or int(indptr[-1]) != len(indices) or bool((indptr.diff() < 0).any()):
        raise InputError("indptr must begin with 0, never fall, and end with the number of edges")
    _check_range(indices, len(indptr) - 1, "column")
    bad = ~(torch.isfinite(weights) & (weights >= 0))
    if bool(bad.any()):
        at = int(torch.nonzero(bad)[0])
        raise InputError(f"weights must be finite and not negative, got {float(weights[at]):g} at edge {at}")


def _check_range(ids: torch.Tensor, n: int, what: str) -> None:
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise UnsupportedError(f"{what} indices must be whole numbers, got {ids.dtype}")
    if len(ids):
        low, high = (int(value) for value in torch.aminmax(ids))
        if low < 0 or high >= n:
            raise InputError(f"{what} index {low if low < 0 else high} is out of range for a graph of {n} rows")


def _tensor(values: Any) -> torch.Tensor:
    if isinstance(values, Tensor):
        return values.data.detach()
    return values.detach() if isinstance(values, torch.Tensor) else torch.as_tensor(values)


def _firsts(keys: torch.Tensor) -> torch.Tensor:
    """Which of the sorted keys are the first of their kind."""
    first = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
    first[1:] = keys[1:] != keys[:-1]
    return first


def _added(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sorted keys made distinct, the values of equal ones added in their order."""
    first = _firsts(keys)
    if bool(first.all()):
        return keys, values
    starts = torch.nonzero(first).squeeze(1)
    bounds = torch.cat([starts, torch.tensor([len(keys)], device=keys.device)])
    return keys[first], _sums(values, bounds).to(values.dtype)


def _sums(values: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """Sums of consecutive runs in float64, each from left to right."""
    return torch.segment_reduce(values.to(torch.float64), "sum", offsets=bounds, initial=0.0)


def _combined(there: torch.Tensor, back: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "max":
        return torch.maximum(there, back)
    if mode == "union":
        return there + back - there * back
    return (there + back) / 2 if mode == "mean" else there + back
