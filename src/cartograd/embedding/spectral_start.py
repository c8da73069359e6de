"""A start from the graph alone: the smoothest functions on it (Laplacian eigenmaps, Belkin and Niyogi 2003)."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from cartograd.affinity.counter import normal, stream
from cartograd.embedding.multilevel import smoothest
from cartograd.neighbors import Graph
from cartograd.neighbors.rows import Rows, TensorRows


def spectral_coordinates(graph: Graph, n_components: int, rows: Rows | None, seed: int) -> torch.Tensor:
    r"""The eigenvectors of the smallest positive eigenvalues of :math:`I - D^{-1/2} W D^{-1/2}`, (n, n_components).

    They are those of few hundred rows exactly, and of more to within a fraction of a degree (`smoothest`). A graph that
    falls into pieces is joined by edges between near pieces first where the rows are known (in memory); otherwise the
    pieces are laid out one by one and set side by side.

    Parameters
    ----------
    graph : Graph
        W; made symmetric by its mean with the transpose.
    n_components : int
        How many eigenvectors.
    rows : Rows or None
        The data, to join pieces by.
    seed : int
        Seed of whatever is random.
    """
    from scipy.sparse.csgraph import connected_components

    weights = _symmetric(graph)
    pieces, label = connected_components(weights, connection="strong")  # symmetric: as good as weak, without a copy
    if pieces > 1 and isinstance(rows, TensorRows):
        weights = _symmetric(graph.join_components(rows.data, weight=float(graph.weights.mean())))
        pieces, label = connected_components(weights, connection="strong")
    if pieces == 1:
        places = _eigenvectors(weights, n_components, seed)
    else:
        places = _side_by_side(weights, label, pieces, n_components, seed)
    return places.to(graph.device)


def _symmetric(graph: Graph) -> Any:
    """The mean with the transpose, as a ``scipy.sparse.csr_array`` of float64 without zeros."""
    weights = graph.to(dtype=torch.float64).to_scipy()
    most = max(graph.n, graph.n_edges)
    if most < 2**31:
        weights.indices, weights.indptr = weights.indices.astype(numpy.int32), weights.indptr.astype(numpy.int32)
    weights.eliminate_zeros()
    turned = weights.T.tocsr()
    same = all(
        numpy.array_equal(getattr(weights, part), getattr(turned, part)) for part in ("indptr", "indices", "data")
    )
    return weights if same else ((weights + turned) / 2).tocsr()


def _eigenvectors(weights: Any, n_components: int, seed: int) -> torch.Tensor:
    from threadpoolctl import threadpool_limits

    n = weights.shape[0]
    if n <= n_components + 1:
        return normal(stream(seed, "spectral start"), (n, n_components), torch.device("cpu"))
    with threadpool_limits(1):  # another number of threads would add in another order
        found = torch.from_numpy(numpy.ascontiguousarray(smoothest(weights, n_components, seed)))
    largest = found.abs().argmax(0)  # an eigenvector's sign is arbitrary: its largest entry is made positive
    return found * torch.sign(found[largest, torch.arange(n_components)])


def _side_by_side(weights: Any, label: Any, pieces: int, n_components: int, seed: int) -> torch.Tensor:
    """Each piece laid out alone, its size by its number of points, the pieces around a circle."""
    n = weights.shape[0]
    places = torch.zeros(n, n_components, dtype=torch.float64)
    angles = torch.arange(pieces, dtype=torch.float64) * (2 * torch.pi / pieces)
    centres = torch.zeros(pieces, n_components, dtype=torch.float64)
    centres[:, 0] = torch.cos(angles)
    if n_components > 1:
        centres[:, 1] = torch.sin(angles)
    members = numpy.split(numpy.argsort(label, kind="stable"), numpy.cumsum(numpy.bincount(label))[:-1])
    for piece, ids in enumerate(members):
        inside = _eigenvectors(weights[ids][:, ids], n_components, seed)
        inside = inside / inside.abs().max().clamp(min=1e-12)
        places[torch.from_numpy(ids)] = centres[piece] + inside * (len(ids) / n)
    return places
