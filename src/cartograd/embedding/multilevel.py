r"""The smoothest functions on a graph, by smaller and smaller graphs.

Rows are gathered around seeds until few enough are left for an exact solution. That is carried back: on every graph,
the solution of the next smaller one is spread over the rows gathered, smoothed by a polynomial of the graph, and the
best functions in the space that spans are picked (Rayleigh and Ritz). Long waves cost nothing on a small graph, short
ones a few products on a large one, so the number of products does not grow with the number of rows, as it does for
Lanczos's method, nor with the closeness of the eigenvalues to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
import torch

from cartograd.affinity.counter import hashed, normal, stream

SMALLEST = 400
"""Rows of a graph that is solved exactly."""
MORE = 5
"""Functions carried beside those wanted: the next ones then stand in the way less."""
DEGREE = 20
"""Of the polynomial on each graph."""
ROUNDS = 3
"""Polynomials on each graph but the given one, which is larger than all others together and gets one."""
NEAREST = 1 - 1e-9
"""What is damped ends below one by so much at least."""


@dataclass(frozen=True)
class Level:
    """A graph and how its rows are gathered in the next smaller one.

    Parameters
    ----------
    weights : scipy.sparse.csr_array
        W, (n, n) symmetric float64; loops count towards a row's degree.
    group : numpy.ndarray
        The row of the next graph that each row belongs to, (n,); empty for the last one.
    """

    weights: Any
    group: Any

    def roots(self) -> Any:
        """The square roots of the degrees, (n,)."""
        return numpy.sqrt(numpy.asarray(self.weights.sum(axis=1)).ravel()).clip(min=1e-12)


def smoothest(weights: Any, wanted: int, seed: int) -> Any:
    r"""The eigenvectors of the `wanted` smallest positive eigenvalues of :math:`I - D^{-1/2} W D^{-1/2}`, (n, wanted).

    Parameters
    ----------
    weights : scipy.sparse.csr_array
        W, (n, n) symmetric, not negative, in one piece.
    wanted : int
        How many, below n.
    seed : int
        Seed of the choice of seeds.
    """
    carried = wanted + 1 + MORE
    levels = _levels(weights, max(SMALLEST, 4 * carried), seed)
    found = _exactly(levels[-1], carried)
    for number, level in reversed(list(enumerate(levels[:-1]))):
        found = found[level.group]
        if found.shape[1] < carried:  # a graph of fewer rows than that has no more functions
            found = numpy.c_[
                found, _noise(len(found), carried - found.shape[1], stream(seed, "more functions", number))
            ]
        found = _finer(level, found, ROUNDS if number else 1)
    return (found * levels[0].roots()[:, None])[:, 1 : wanted + 1]


def _noise(rows: int, columns: int, key: int) -> Any:
    return normal(key, (rows, columns), torch.device("cpu")).numpy()


def _levels(weights: Any, smallest: int, seed: int) -> list[Level]:
    levels: list[Level] = []
    while weights.shape[0] > smallest:
        key = stream(seed, "multilevel", len(levels))
        group = gathered(weights, key)
        if 2 * (int(group.max()) + 1) > len(group):  # many rows that have but few others beside them, as in a star
            group = gathered(weights, key, hubs_first=True)
        count = int(group.max()) + 1
        if count > 0.9 * len(group):
            break
        levels.append(Level(weights, group))
        weights = _summed(weights, group, count)
    return [*levels, Level(weights, numpy.empty(0, numpy.int64))]


def gathered(weights: Any, key: int, hubs_first: bool = False) -> Any:
    """Groups of a row and rows beside it: the number of each row's group, (n,).

    Rows whose random rank is above that of all rows beside them become seeds; those beside a seed are taken; the rest
    goes on. Every taken row then joins the seed it has the strongest edge to.

    Parameters
    ----------
    weights : scipy.sparse.csr_array
        The graph, (n, n).
    key : int
        The stream of random numbers that the ranks are drawn from.
    hubs_first : bool, default=False
        Whether a row with more edges ranks above one with fewer.
    """
    n = weights.shape[0]
    row = numpy.repeat(numpy.arange(n, dtype=weights.indices.dtype), numpy.diff(weights.indptr))
    other = row != weights.indices
    row, column, weight = row[other], weights.indices[other], weights.data[other]
    bounds = numpy.searchsorted(row, numpy.arange(n + 1))
    order = torch.argsort(hashed(key, torch.arange(n)), stable=True).numpy()
    if hubs_first:
        order = order[numpy.argsort(numpy.diff(bounds)[order], kind="stable")]
    rank = numpy.empty(n, numpy.int32)
    rank[order] = numpy.arange(1, n + 1, dtype=numpy.int32)
    is_seed = numpy.zeros(n, bool)
    while rank.any():
        new = rank > _largest(rank[column], bounds)
        is_seed |= new
        rank[new | (_largest(new[column].view(numpy.int8), bounds) > 0)] = 0
    reach = numpy.where(is_seed[column], weight, -1.0)
    best = numpy.flatnonzero(reach == _largest(reach, bounds)[row])[::-1]
    target = numpy.arange(n)
    target[row[best]] = column[best]  # of equally strong edges the first in the row, which is written last
    target[is_seed] = numpy.flatnonzero(is_seed)
    return (numpy.cumsum(is_seed) - 1)[target]


def _largest(values: Any, bounds: Any) -> Any:
    """The largest of each run of values; zero for an empty one."""
    if len(values) == 0:
        return numpy.zeros(len(bounds) - 1, values.dtype)
    found = numpy.maximum.reduceat(values, numpy.minimum(bounds[:-1], len(values) - 1))
    found[bounds[:-1] == bounds[1:]] = 0
    return found


def _summed(weights: Any, group: Any, count: int) -> Any:
    """The graph of the groups: weights between, and within, two groups are added."""
    from scipy.sparse import csr_array

    n, kind = len(group), weights.indices.dtype
    bounds = numpy.append(0, numpy.cumsum(numpy.bincount(group, minlength=count))).astype(kind)
    member = csr_array((numpy.ones(n), group.astype(kind), numpy.arange(n + 1, dtype=kind)), shape=(n, count))
    members = csr_array((numpy.ones(n), numpy.argsort(group, kind="stable").astype(kind), bounds), shape=(count, n))
    return members @ (weights @ member)


def _normalised(level: Level) -> tuple[Any, Any]:
    """:math:`D^{-1/2} W D^{-1/2}` and the square roots of D."""
    roots = level.roots()
    matrix = level.weights.copy()
    matrix.data /= numpy.repeat(roots, numpy.diff(matrix.indptr)) * roots[matrix.indices]
    return matrix, roots


def _exactly(level: Level, count: int) -> Any:
    """The smoothest functions f, (n, count); :math:`D^{1/2} f` are eigenvectors."""
    matrix, roots = _normalised(level)
    _, vectors = numpy.linalg.eigh(matrix.toarray())
    return vectors[:, ::-1][:, :count] / roots[:, None]


def _finer(level: Level, found: Any, rounds: int) -> Any:
    """Functions on this graph, (n, m), made smoother."""
    matrix, roots = _normalised(level)
    single = matrix.astype(numpy.float32)
    values, X = _picked(matrix, found * roots[:, None])
    for _ in range(rounds):
        X = _damped(single, X.astype(numpy.float32), min(float(values[-1]), NEAREST))
        values, X = _picked(matrix, X.astype(numpy.float64))
    return X / roots[:, None]


def _picked(matrix: Any, X: Any) -> tuple[Any, Any]:
    """The largest eigenvalues within the space of X (n, m), falling, and their vectors, in float64."""
    X = X / numpy.sqrt(numpy.square(X).sum(0)).clip(min=1e-300)
    size, turn = numpy.linalg.eigh(X.T @ X)
    new = size > 1e-10 * size[-1]
    X = X @ (turn[:, new] / numpy.sqrt(size[new]))
    values, turn = numpy.linalg.eigh(X.T @ (matrix @ X))
    return values[::-1], X @ turn[:, ::-1]


def _damped(matrix: Any, X: Any, edge: float) -> Any:
    """A Chebyshev polynomial of the matrix times X: small between -1 and `edge`, growing fast above."""
    centre, half = numpy.float32((edge - 1) / 2), numpy.float32((edge + 1) / 2)
    before, X = X, (matrix @ X - centre * X) / half
    for _ in range(DEGREE - 1):
        after = matrix @ X
        after -= centre * X
        after *= 2 / half
        after -= before
        before, X = X, after
    return X
