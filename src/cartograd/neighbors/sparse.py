"""Exact search among the rows of a sparse matrix, by sparse products in row tiles of float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

from cartograd.neighbors.best import SPARE, lowest_by_id
from cartograd.neighbors.distances import PRODUCT_METRICS

SERVED = (*PRODUCT_METRICS, "jaccard")
"""Metrics that need only dot products and row sums. Others are searched in dense tiles."""

TILE_ELEMENTS = 1 << 24


def prepared(matrix: Any, metric: str) -> Any:
    """The matrix whose row products give the metric: float64, of unit rows for cosine and angular, 0/1 for jaccard."""
    matrix = matrix.astype(numpy.float64)
    if metric == "jaccard":
        matrix.data = (matrix.data != 0).astype(numpy.float64)
        matrix.eliminate_zeros()
    elif metric in ("cosine", "angular"):
        matrix = _unit(matrix)
    return matrix


def _unit(matrix: Any) -> Any:
    """Rows of length one; a row of zeros gets a last column of its own (see `UnitRows`)."""
    from scipy import sparse

    largest = numpy.maximum(abs(matrix).max(axis=1).toarray().ravel(), 0)
    zero = largest == 0
    scaled = sparse.diags_array(1 / numpy.where(zero, 1, largest)) @ matrix  # squares of huge values stay finite
    length = numpy.sqrt(numpy.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    unit = sparse.diags_array(1 / numpy.where(zero, 1, length)) @ scaled
    return sparse.hstack([unit, sparse.csr_array(zero.astype(numpy.float64)[:, None])], format="csr")


class SparseSearch:
    """The k nearest rows of `data` of each row of `queries`, both as `prepared` made them.

    Parameters
    ----------
    data, queries : scipy CSR
        What is searched, and for what.
    k : int
        How many neighbours.
    metric : str
        One of `SERVED`.
    own : numpy array, default=None
        For each query the id of the row that is left out.
    """

    def __init__(self, data: Any, queries: Any, k: int, metric: str, own: Any = None) -> None:
        self.data, self.queries, self.k, self.own = data, queries, k, own
        self.jaccard = metric == "jaccard"
        self.step = max(16, TILE_ELEMENTS // data.shape[0])
        self.raw = torch.empty(queries.shape[0], k, dtype=torch.float64)
        self.ids = torch.empty(queries.shape[0], k, dtype=torch.int64)

    def tiles(self) -> int:
        """How many tiles `run` works through."""
        return -(-self.queries.shape[0] // self.step)

    def run(self) -> Iterator[int]:
        """Work through the row tiles; `ids` and `raw` hold the answer at the end."""
        transposed = self.data.T.tocsr()  # once: a product with a CSC matrix converts it every time
        sums, score = (_sizes, _jaccard) if self.jaccard else (_squares, _squared)
        data_sums = sums(self.data)
        for start in range(0, self.queries.shape[0], self.step):
            piece = self.queries[start : start + self.step]
            dots = (piece @ transposed).toarray()
            own_sums = sums(piece)
            scores = torch.from_numpy(score(dots, own_sums[:, None], data_sums[None, :]))
            if self.own is not None:
                scores[torch.arange(len(scores)), torch.from_numpy(self.own[start : start + self.step])] = torch.inf
            self._keep(start, piece, scores, torch.from_numpy(own_sums))
            yield 1

    def _keep(self, start: int, piece: Any, scores: torch.Tensor, own_sums: torch.Tensor) -> None:
        count = min(self.k + SPARE, scores.shape[1])
        edge = torch.kthvalue(scores, self.k, dim=1).values
        slack = torch.zeros_like(edge) if self.jaccard else 1e-14 * (3 * own_sums + 2 * edge.clamp(min=0))
        chosen = torch.sort(lowest_by_id(scores, self.k, count, slack), dim=1).values
        raw = scores.gather(1, chosen)
        if not self.jaccard:
            raw = torch.where(raw < torch.inf, self._measured(piece, chosen), torch.inf)
        raw, order = torch.sort(raw, dim=1, stable=True)
        rows = slice(start, start + len(scores))
        self.raw[rows], self.ids[rows] = raw[:, : self.k], chosen.gather(1, order[:, : self.k])

    def _measured(self, piece: Any, chosen: torch.Tensor) -> torch.Tensor:
        left = numpy.repeat(numpy.arange(len(chosen)), chosen.shape[1])
        right = chosen.reshape(-1).numpy()
        parts = [
            _squares(piece[left[start : start + (1 << 16)]] - self.data[right[start : start + (1 << 16)]])
            for start in range(0, len(left), 1 << 16)
        ]
        return torch.from_numpy(numpy.concatenate(parts)).reshape(chosen.shape)


Score = Callable[[Any, Any, Any], Any]


def _squares(matrix: Any) -> Any:
    return numpy.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()


def _sizes(matrix: Any) -> Any:
    return numpy.asarray(matrix.sum(axis=1)).ravel()


def _squared(dots: Any, a: Any, b: Any) -> Any:
    return a + b - 2 * dots


def _jaccard(dots: Any, a: Any, b: Any) -> Any:
    either = a + b - dots
    return numpy.where(either > 0, 1 - dots / numpy.maximum(either, 1), 0.0)
