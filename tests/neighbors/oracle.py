"""The answer by definition: all distances in float64, a stable sort, ties by index. Slow and plain on purpose."""

import numpy as np
from scipy.spatial import distance

SCIPY_NAMES = {"euclidean": "euclidean", "sqeuclidean": "sqeuclidean", "manhattan": "cityblock", "cosine": "cosine",
               "hamming": "hamming"}  # fmt: skip


def all_distances(A, B, metric):
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    if metric in SCIPY_NAMES:
        return distance.cdist(A, B, SCIPY_NAMES[metric])
    if metric == "jaccard":
        return distance.cdist(A != 0, B != 0, "jaccard")
    if metric == "angular":
        return np.arccos(np.clip(1 - distance.cdist(A, B, "cosine"), -1, 1)) / np.pi
    if metric == "sqhyperbolic":
        room = (1 - (A**2).sum(1))[:, None] * (1 - (B**2).sum(1))[None, :]
        return np.arccosh(1 + 2 * distance.cdist(A, B, "sqeuclidean") / room) ** 2
    raise AssertionError(metric)


def neighbours(X, k, metric="euclidean", queries=None):
    """Indices and distances; a row is not its own neighbour unless queries are given."""
    D = all_distances(X if queries is None else queries, X, metric)
    if queries is None:
        np.fill_diagonal(D, np.inf)
    indices = np.argsort(D, axis=1, kind="stable")[:, :k]
    return indices, np.take_along_axis(D, indices, axis=1)


def recall(found, true):
    """The mean share of true neighbours found."""
    return float(np.mean([len(set(f) & set(t)) / len(t) for f, t in zip(found.tolist(), true.tolist(), strict=True)]))
