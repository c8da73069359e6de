"""k nearest neighbours with a gradient: `knn`, of points or of a matrix of distances.

Which rows are neighbours is a choice, and has no derivative; how far away they are has one. So the search (`nearest`)
is not recorded; what is recorded are the distances of the pairs that it found (`neighbor_distances`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from cartograd.engine.accumulate import raw
from cartograd.engine.apply import wrap
from cartograd.ops import neighbor_arguments as check
from cartograd.ops.nearest import nearest, smallest
from cartograd.ops.neighbor_distances import neighbor_distances, picked_distances


class NearestNeighbors:
    """The type of `knn`: a function, and its `as_torch`."""

    __name__ = "knn"

    def __call__(
        self,
        X: Any = None,
        k: int | None = None,
        *,
        queries: Any = None,
        metric: str = "euclidean",
        indices: Any = None,
        exclude_self: bool | None = None,
        tile: int | None = None,
        distances: Any = None,
    ) -> tuple[Any, Any]:
        r"""Find the k nearest rows of every row, with distances that carry a gradient.

        With g the gradient of ``distances[i, m]`` and j = ``indices[i, m]``, for the Euclidean distance

        .. math:: \nabla x_i \mathrel{+}= g\,(x_i - x_j)/d, \qquad \nabla x_j \mathrel{-}= g\,(x_i - x_j)/d,

        and nothing where d = 0. The search is exact and done in tiles: memory is O(n (k + d) + tile^2), forward and
        backward; a matrix of all pairs never exists. Differentiable twice (then in O(n k d) memory).

        Parameters
        ----------
        X : Tensor, (n, d)
            The points, float32 or float64: ours, torch's (a Parameter too) or an array.
        k : int, default=None
            How many neighbours. May be left out where `indices` says so.
        queries : Tensor, (m, d), default=None
            Points whose neighbours among X are sought, with a gradient of their own; None for those of X itself.
        metric : str, default="euclidean"
            "euclidean", "sqeuclidean", "manhattan" or "cosine".
        indices : Tensor, (m, k), default=None
            Neighbours already known, of another search for instance; nothing is searched then.
        exclude_self : bool, default=None
            Whether row i is left out of its own neighbours, by its number. None: yes for the neighbours of X among
            itself, no with `queries` or `distances`; if True with those, row i of them is number i of the others.
        tile : int, default=None
            tile^2 pairs are compared at a time; None for what suits the device. The result does not depend on it.
        distances : Tensor, (n, m), default=None
            Instead of X, a matrix of which the k smallest of each row are picked. Its gradient is g at those places.

        Returns
        -------
        indices : Tensor, (n, k) int64
            Neighbours of each row, nearest first; of equally near ones the smaller index first.
        distances : Tensor, (n, k)
            Their distances.

        Examples
        --------
        >>> import cartograd
        >>> X = cartograd.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]], requires_grad=True)
        >>> indices, distances = cartograd.knn(X, k=1)
        >>> indices.tolist(), distances.tolist()
        ([[1], [2], [1]], [[5.0], [1.0], [1.0]])
        >>> distances.sum().backward()
        >>> X.grad.tolist()[0]  # (x_0 - x_1) / 5
        [-0.6000000238418579, -0.800000011920929]
        """
        given = (X, k, queries, metric, indices, exclude_self, tile, distances)
        ids, found = _run(neighbor_distances, picked_distances, *given)
        return wrap(ids), found

    def as_torch(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """The same function of torch tensors, with the same arguments, which torch's own autograd differentiates."""
        of_points, of_matrix = neighbor_distances.as_torch(), picked_distances.as_torch()

        def knn(
            X: Any = None,
            k: int | None = None,
            *,
            queries: Any = None,
            metric: str = "euclidean",
            indices: Any = None,
            exclude_self: bool | None = None,
            tile: int | None = None,
            distances: Any = None,
        ) -> tuple[Tensor, Tensor]:
            return _run(of_points, of_matrix, X, k, queries, metric, indices, exclude_self, tile, distances)

        knn.__doc__ = self.__call__.__doc__
        return knn

    def __repr__(self) -> str:
        return "<function cartograd.knn(X, k), or knn(distances=D, k=k)>"


knn = NearestNeighbors()


def _run(
    of_points: Callable[..., Any],
    of_matrix: Callable[..., Any],
    X: Any,
    k: Any,
    queries: Any,
    metric: Any,
    indices: Any,
    exclude_self: bool | None,
    tile: Any,
    distances: Any,
) -> tuple[Any, Any]:
    check.form(X, distances, {"queries": queries, "indices": indices})
    metric = check.known_metric(metric)
    if distances is not None:
        matrix = check.table(distances, "distances", infinite=True)
        if exclude_self:
            check.rows_are_columns(matrix.shape[0], matrix.shape[1], "rows", "columns")
        k = check.count(k, matrix.shape[1], bool(exclude_self))
        ids = smallest(raw(matrix).detach(), k, bool(exclude_self), check.tile_rows(tile, matrix.device))
        return ids, of_matrix(matrix, ids)
    points = check.table(X, "X")
    without_self = queries is None if exclude_self is None else bool(exclude_self)
    askers = None
    if queries is not None:
        askers = check.table(queries, "queries")
        check.fitting_queries(askers, points, without_self)
    tile = check.tile_rows(tile, points.device)
    data = raw(points).detach()
    rows = data if askers is None else raw(askers).detach()
    if indices is not None:
        ids = check.neighbour_ids(indices, k, len(rows), len(data), data.device)
    else:
        ids = nearest(data, rows, check.count(k, len(data), without_self), metric, without_self, tile)
    return ids, of_points(points, ids, askers, metric, tile)
