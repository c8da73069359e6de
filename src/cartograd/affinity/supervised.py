"""Labels brought into UMAP's graph: edges between rows of different classes are weakened."""

from __future__ import annotations

import math
from typing import Any

import torch

from cartograd.affinity import checks
from cartograd.affinity.data import plain
from cartograd.affinity.fuzzy import fuzzy_union, positive_edges
from cartograd.errors import InputError
from cartograd.neighbors import Graph

UNKNOWN = -1


def far_distance(target_weight: float) -> float:
    r"""How far apart different classes are for a weight of the labels between 0 and 1, as umap-learn has it.

    .. math:: 2.5 / (1 - w), \quad 10^{12} \text{ for } w = 1
    """
    weight = checks.number(target_weight, "target_weight", 0.0, high=1.0)
    return 2.5 / (1.0 - weight) if weight < 1.0 else 1e12


def categorical_intersection(graph: Graph, labels: Any, far_dist: float = 5.0, unknown_dist: float = 1.0) -> Graph:
    r"""The fuzzy intersection of a graph with the one in which rows of one class are equal.

    .. math:: P_{ij} \leftarrow P_{ij} \cdot \begin{cases} e^{-u} & \text{a label is unknown} \\
        e^{-f} & \text{the labels differ} \\ 1 & \text{they are the same} \end{cases}

    and then every row's largest weight is made 1 again, and the fuzzy union taken (`reset_local_connectivity`).

    Parameters
    ----------
    graph : Graph
        A symmetric affinity of UMAP's.
    labels : array-like, (n,)
        The class of each row, whole numbers; -1 for unknown.
    far_dist : float, default=5.0
        f, how far apart different classes are.
    unknown_dist : float, default=1.0
        u, how far a row of unknown class is from all.
    """
    classes = _checked_labels(labels, graph.n).to(graph.device)
    far = checks.number(far_dist, "far_dist", 0.0)
    unknown = checks.number(unknown_dist, "unknown_dist", 0.0)
    left, right = classes[graph.rows()], classes[graph.indices]
    factor = torch.where(left == right, 1.0, math.exp(-far))
    factor = torch.where((left == UNKNOWN) | (right == UNKNOWN), math.exp(-unknown), factor)
    return reset_local_connectivity(graph.with_weights(graph.weights * factor.to(graph.weights.dtype)))


def reset_local_connectivity(graph: Graph) -> Graph:
    """Each row divided by its largest weight, so that it is certainly connected to one other; then the fuzzy union."""
    graph = positive_edges(graph)
    rows = graph.rows()
    largest = torch.zeros(graph.n, dtype=graph.weights.dtype, device=graph.device)
    largest = largest.scatter_reduce(0, rows, graph.weights, "amax")
    return fuzzy_union(graph.with_weights(graph.weights / largest[rows]))


def _checked_labels(labels: Any, n: int) -> torch.Tensor:
    classes = plain(labels)
    if classes.dim() != 1 or len(classes) != n:
        raise InputError(f"labels must be one for each of the {n} rows, got shape {tuple(classes.shape)}")
    if classes.is_floating_point():
        whole = torch.isfinite(classes) & (classes == classes.round())
        if not bool(whole.all()):
            at = int(torch.nonzero(~whole)[0])
            raise InputError(f"labels must be whole numbers (-1 for unknown), got {float(classes[at]):g} at row {at}")
    return classes.to(torch.int64)
