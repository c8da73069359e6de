"""k-means by Lloyd's iterations from greedy k-means++ seeds, the same to the last bit at any thread count."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from cartograd.metrics.space import Exact
from cartograd.metrics.sums import mean, total

TILE_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Clusters:
    """A clustering: class numbers (n,) int64, centres (c, d), and the sum of squared distances to them."""

    labels: torch.Tensor
    centres: torch.Tensor
    inertia: float


def kmeans(
    points: torch.Tensor,
    n_clusters: int,
    *,
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 1e-4,
    seed: int = 0,
    start: torch.Tensor | None = None,
) -> Clusters:
    r"""Find centres that make :math:`\sum_i \min_c |x_i - m_c|^2` small.

    Parameters
    ----------
    points : torch.Tensor
        (n, d) float64.
    n_clusters : int
        How many.
    n_init : int, default=10
        How many times to start anew; the best is kept.
    max_iter : int, default=300
        The most iterations of one start.
    tol : float, default=1e-4
        Stop when the centres' squared moves add up to less than this share of the points' mean variance.
    seed : int, default=0
        Of the private generator.
    start : torch.Tensor, default=None
        Centres to start from, once, instead of random ones.
    """
    centre = torch.tensor([mean(column) for column in points.unbind(1)], dtype=Exact, device=points.device)
    points = points - centre  # squared distances by products keep their digits there
    tolerance = tol * total(points.square().sum(dim=1)) / points.numel()
    generator = torch.Generator().manual_seed(seed)
    starts = [_seeds(points, n_clusters, generator) for _ in range(n_init)] if start is None else [start - centre]
    found = [_lloyd(points, centres, max_iter, tolerance) for centres in starts]
    best = min(found, key=lambda clusters: clusters.inertia)
    return Clusters(best.labels, best.centres + centre, best.inertia)


def _seeds(points: torch.Tensor, n_clusters: int, generator: torch.Generator) -> torch.Tensor:
    """Greedy k-means++: of a few points drawn in proportion to their squared distance, the one that helps most."""
    trials = 2 + int(math.log(n_clusters))
    first = torch.randint(len(points), (1,), generator=generator).to(points.device)
    centres = points.index_select(0, first)
    closest = _squared(points, centres)[:, 0]
    for _ in range(1, n_clusters):
        heaps = torch.cumsum(closest, 0)
        draws = torch.rand(trials, dtype=Exact, generator=generator).to(points.device) * heaps[-1]
        ids = torch.searchsorted(heaps, draws).clamp_(max=len(points) - 1)
        options = torch.minimum(closest, _squared(points, points.index_select(0, ids)).T)
        best = int(options.sum(dim=1).argmin())
        closest = options[best]
        centres = torch.cat([centres, points[ids[best]][None]])
    return centres


def _lloyd(points: torch.Tensor, centres: torch.Tensor, max_iter: int, tolerance: float) -> Clusters:
    labels, apart = _assigned(points, centres)
    for _ in range(max_iter):
        moved = _means(points, centres, labels, apart)
        shift = total((moved - centres).square().flatten())
        before, centres = labels, moved
        labels, apart = _assigned(points, centres)
        if shift <= tolerance or torch.equal(labels, before):
            break
    return Clusters(labels, centres, total(apart))


def _assigned(points: torch.Tensor, centres: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest centre of every point, and its squared distance."""
    parts = points.split(max(1, TILE_ELEMENTS // (len(centres) + points.shape[1])))
    found = [_squared(part, centres).min(dim=1) for part in parts]
    return torch.cat([best.indices for best in found]), torch.cat([best.values for best in found])


def _means(points: torch.Tensor, centres: torch.Tensor, labels: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
    """The means of the clusters; an empty one is put where a point is farthest from its centre."""
    order = torch.argsort(labels, stable=True)
    lengths = torch.bincount(labels, minlength=len(centres))
    step = max(1, TILE_ELEMENTS // len(points))
    columns = [points[:, start : start + step].index_select(0, order) for start in range(0, points.shape[1], step)]
    sums = [torch.segment_reduce(part, "sum", lengths=lengths, axis=0) for part in columns]
    means = torch.cat(sums, dim=1) / lengths.clamp(min=1)[:, None]
    empty = torch.nonzero(lengths == 0).squeeze(1)
    if len(empty):
        means[empty] = points[torch.argsort(apart, descending=True, stable=True)[: len(empty)]]
    return means


def _squared(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Squared distances (n, c)."""
    cross = points @ centres.T
    return (points.square().sum(dim=1)[:, None] + centres.square().sum(dim=1)[None, :] - 2 * cross).clamp_(min=0)
