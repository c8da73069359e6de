"""Fuzzy sets of neighbours, as UMAP makes them: memberships of each row's neighbours, and their union."""

from __future__ import annotations

import math

import torch

from cartograd.affinity.rootsearch import bracket, falling_root
from cartograd.kernels import gpu
from cartograd.neighbors import Graph

MIN_SCALE = 1e-3
"""The least width, as a share of the mean distance: without it duplicates would cut a row off from all others."""
TOLERANCE = 1e-5
CHUNK_ELEMENTS = 1 << 19
KERNEL_COLUMNS = 1024
"""Rows up to this wide are worked on by one program of the kernel for the GPU each."""


def smooth_distances(
    distances: torch.Tensor, local_connectivity: float, overall: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Each row's reach :math:`\rho_i` and width :math:`\sigma_i`.

    .. math:: \sum_j \exp(-\max(d_{ij} - \rho_i, 0) / \sigma_i) = \log_2(k)

    over the k - 1 neighbours given: UMAP counts the row itself as one of k. :math:`\rho_i` is the smallest distance
    above zero, or that number `local_connectivity` of them, interpolated where it is not whole (from 0 below one).
    :math:`\sigma_i` is at least 1e-3 of the mean of the row's distances, or of all where :math:`\rho_i` is 0; both
    means count the distance 0 of the row to itself, as umap-learn does.

    Parameters
    ----------
    distances : torch.Tensor
        (n, k - 1), to the nearest other rows, rising.
    local_connectivity : float
        Which neighbour is certainly connected.
    overall : float, default=None
        The mean of all distances; None for that of the ones given.

    Returns
    -------
    rho, sigma : torch.Tensor
        (n,) float64 each.
    """
    k = distances.shape[1] + 1
    step = max(1, (CHUNK_ELEMENTS if distances.device.type == "cpu" else 1 << 26) // k // 64) * 64  # whole registers
    # a running sum, since a plain one is added in another order by another number of threads
    total = torch.cumsum(distances.sum(1, dtype=torch.float64), 0)[-1] / (len(distances) * k)
    mean = total if overall is None else torch.full_like(total, overall)
    reach, width = [], []
    for part in distances.split(step):
        rho, sigma = _smooth_chunk(part.to(torch.float64), local_connectivity, mean)
        reach.append(rho)
        width.append(sigma)
    return torch.cat(reach), torch.cat(width)


def _smooth_chunk(
    distances: torch.Tensor, local_connectivity: float, overall: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    k = distances.shape[1] + 1
    rho = _reach(distances, local_connectivity)
    excess = (distances - rho[:, None]).clamp_(min=0)
    target = math.log2(k)

    def residual(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = torch.exp(u)[:, None] * excess
        E = torch.exp(-scaled)
        # where the exponent overflows there is no weight, and no slope
        return E.sum(1) - target, -(torch.where(E > 0, scaled, 0.0) * E).sum(1)

    if distances.is_cuda and k <= KERNEL_COLUMNS and gpu.served(distances):
        sigma = gpu.load("widths").smooth(distances, rho, target)
    else:
        sigma = torch.exp(-falling_root(residual, *bracket(excess)))
        sigma = torch.where(excess.amax(1) > 0, sigma, 0.0)  # all within reach: no width is too small
    mean = torch.where(rho > 0, distances.sum(1) / k, overall)
    return rho, torch.maximum(sigma, MIN_SCALE * mean)


def _reach(distances: torch.Tensor, local_connectivity: float) -> torch.Tensor:
    """rho: the `local_connectivity`-th smallest positive distance of each row, the largest where there are too few."""
    positive = (distances > 0).sum(1)
    zeros = distances.shape[1] - positive  # distances rise, so the positive ones begin here
    index = math.floor(local_connectivity)
    part = local_connectivity - index

    def nth(number: int) -> torch.Tensor:
        """The number-th positive distance; 0 for the zeroth; the largest where there are fewer."""
        if number == 0:
            return torch.zeros_like(distances[:, 0])
        place = (zeros + number - 1).clamp(max=distances.shape[1] - 1)
        return distances.gather(1, place[:, None])[:, 0]

    rho = nth(index)
    if part > TOLERANCE or index == 0:
        rho = rho + part * (nth(index + 1) - rho)
    return torch.where(positive >= local_connectivity, rho, distances[:, -1])


def memberships(distances: torch.Tensor, rho: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    r"""Logarithms of :math:`\exp(-\max(d_{ij} - \rho_i, 0) / \sigma_i)`, (n, k) float64; 0 where sigma is 0."""
    excess = (distances.to(torch.float64) - rho[:, None]).clamp_(min=0)
    return -excess / torch.where(sigma > 0, sigma, torch.inf)[:, None]


def fuzzy_union(graph: Graph, mix: float = 1.0) -> Graph:
    r"""Membership in either direction: :math:`\mu (P + P^T - P \circ P^T) + (1 - \mu) P \circ P^T`.

    Parameters
    ----------
    graph : Graph
        P, weights between 0 and 1.
    mix : float, default=1.0
        :math:`\mu`: 1 for the union of fuzzy sets, 0 for their intersection.
    """
    union = graph.symmetrise("union")
    if mix == 1.0:
        return positive_edges(union)
    product = graph.symmetrise("sum").weights - union.weights
    return positive_edges(union.with_weights((mix * union.weights + (1 - mix) * product).clamp_(min=0)))


def positive_edges(graph: Graph) -> Graph:
    """The graph without edges of weight 0."""
    there = graph.weights > 0
    kept = torch.cat([torch.zeros(1, dtype=torch.int64, device=graph.device), torch.cumsum(there, 0)])
    return Graph(kept[graph.indptr], graph.indices[there], graph.weights[there])
