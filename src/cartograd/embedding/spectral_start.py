"""A start from the graph alone: the smoothest functions on it (Laplacian eigenmaps, Belkin and Niyogi 2003)."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from cartograd.affinity.counter import normal, stream
from cartograd.neighbors import Graph
from cartograd.neighbors.rows import Rows, TensorRows

DENSE_UP_TO = 600
TOLERANCE = 1e-4
ITERATIONS = 200


def spectral_coordinates(graph: Graph, n_components: int, rows: Rows | None, seed: int) -> torch.Tensor:
    r"""The eigenvectors of the smallest positive eigenvalues of :math:`I - D^{-1/2} W D^{-1/2}`, (n, n_components).

    A graph that falls into pieces is joined by edges between near pieces first where the rows are known (in memory);
    otherwise the pieces are laid out one by one and set side by side.

    Parameters
    ----------
    graph : Graph
        W; made symmetric by its mean with the transpose.
    n_components : int
        How many eigenvectors.
    rows : Rows or None
        The data, to join pieces by.
    seed : int
        Seed of the first guess.
    """
    graph = graph.symmetrise("mean")
    pieces, label = graph.connected_components()
    if pieces > 1 and isinstance(rows, TensorRows):
        graph = graph.join_components(rows.data, weight=float(graph.weights.mean()))
        pieces = 1
    if pieces == 1:
        return _eigenvectors(graph, n_components, seed)
    return _side_by_side(graph, label, pieces, n_components, seed)


def _eigenvectors(graph: Graph, n_components: int, seed: int) -> torch.Tensor:
    n = graph.n
    start = normal(stream(seed, "spectral start"), (n, n_components + 1), graph.device)
    if n <= n_components + 1:
        return start[:, :n_components]
    W = graph.to(dtype=torch.float64).to_scipy()
    root = numpy.sqrt(numpy.asarray(W.sum(axis=1)).ravel()).clip(min=1e-12)
    vectors = _dense(W, root, n_components) if n <= DENSE_UP_TO else _iterated(W, root, start.cpu().numpy())
    found = torch.from_numpy(numpy.ascontiguousarray(vectors)).to(graph.device)
    largest = found.abs().argmax(0)  # an eigenvector's sign is arbitrary: its largest entry is made positive
    return found * torch.sign(found[largest, torch.arange(found.shape[1], device=graph.device)])


def _dense(W: Any, root: Any, n_components: int) -> Any:
    L = numpy.eye(len(root)) - W.toarray() / root[:, None] / root
    _, vectors = torch.linalg.eigh(torch.from_numpy(L))
    return vectors[:, 1 : n_components + 1].numpy()


def _iterated(W: Any, root: Any, start: Any) -> Any:
    """LOBPCG for the largest eigenvalues of the normalised weights, the known first one held fixed."""
    import warnings

    from scipy.sparse import diags_array
    from scipy.sparse.linalg import lobpcg
    from threadpoolctl import threadpool_limits

    scale = diags_array(1 / root)
    operator = scale @ W @ scale
    # one thread: another number of them would add in another order; and a start need not have converged
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        values, vectors = lobpcg(
            operator, start[:, 1:], Y=root[:, None], tol=TOLERANCE, maxiter=ITERATIONS, largest=True
        )
    return vectors[:, numpy.argsort(-values)]


def _side_by_side(graph: Graph, label: torch.Tensor, pieces: int, n_components: int, seed: int) -> torch.Tensor:
    """Each piece laid out alone, its size by its number of points, the pieces around a circle."""
    places = torch.zeros(graph.n, n_components, dtype=torch.float64, device=graph.device)
    angles = torch.arange(pieces, dtype=torch.float64, device=graph.device) * (2 * torch.pi / pieces)
    centres = torch.zeros(pieces, n_components, dtype=torch.float64, device=graph.device)
    centres[:, 0] = torch.cos(angles)
    if n_components > 1:
        centres[:, 1] = torch.sin(angles)
    for piece in range(pieces):
        ids = torch.nonzero(label == piece)[:, 0]
        inside = _eigenvectors(graph.subset(ids), n_components, seed)
        inside = inside / inside.abs().max().clamp(min=1e-12)
        places[ids] = centres[piece] + inside * (len(ids) / graph.n)
    return places
