"""The pieces a graph falls into, and the edges that would join them."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.errors import InputError
from cartograd.neighbors.distances import METRICS
from cartograd.neighbors.exact import search_exactly
from cartograd.neighbors.intake import intake
from cartograd.neighbors.rows import TensorRows
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.validate import scan

CLOSEST = 256
"""Points of a component, those closest to the other's centre, among which the nearest pair is sought."""


def connected(rows: torch.Tensor, columns: torch.Tensor, n: int) -> tuple[int, torch.Tensor]:
    """The number of components and each row's component, (n,) int64, numbered in the order of their first rows.

    Every row points at a row of its component with a smaller or equal id. In each round an edge makes the larger
    of its two ends' targets point at the smaller one, and pointers are followed to their ends; minima do not depend on
    the order in which they are taken.
    """
    target = torch.arange(n, device=rows.device)
    while True:
        left, right = target[rows], target[columns]
        low, high = torch.minimum(left, right), torch.maximum(left, right)
        if bool((low == high).all()):
            break
        target = target.scatter_reduce(0, high, low, reduce="amin")
        target = _followed(target)
    roots = torch.unique(target, sorted=True)
    return len(roots), torch.searchsorted(roots, target)


def _followed(target: torch.Tensor) -> torch.Tensor:
    while True:
        further = target[target]
        if torch.equal(further, target):
            return target
        target = further


def checked_points(points: Any, n: int) -> torch.Tensor:
    """Points as a finite (n, d) tensor."""
    rows = intake(points, "points", None).rows
    if rows.count != n:
        raise InputError(f"points has {rows.count} rows, but the graph has {n}")
    scan(rows, "points", tile_rows(rows.width))
    return rows.block(0, n)


def bridges(labels: torch.Tensor, count: int, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of rows (left, right) whose edges join all components into one."""
    pairs: list[tuple[int, int]] = []
    while count > 1:
        order = torch.argsort(labels, stable=True)
        bounds = [0, *torch.bincount(labels, minlength=count).cumsum(0).tolist()]
        members = [order[bounds[c] : bounds[c + 1]] for c in range(count)]
        centres = torch.stack([points[ids].to(torch.float64).mean(0) for ids in members])
        nearest = search_exactly(TensorRows(centres), 1, METRICS["sqeuclidean"], own=_all(centres))[0][:, 0].tolist()
        chosen = sorted({(min(a, b), max(a, b)) for a, b in enumerate(nearest)})
        pairs += [_nearest_pair(points, members[a], members[b], centres[a], centres[b]) for a, b in chosen]
        joined = torch.tensor(chosen, device=labels.device)
        count, merged = connected(joined[:, 0], joined[:, 1], count)
        labels = merged[labels]
    both = torch.tensor(pairs, device=labels.device)
    return both[:, 0], both[:, 1]


def _all(rows: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(rows), device=rows.device)


def _nearest_pair(
    points: torch.Tensor, a: torch.Tensor, b: torch.Tensor, centre_a: torch.Tensor, centre_b: torch.Tensor
) -> tuple[int, int]:
    a, b = _closest(points, a, centre_b), _closest(points, b, centre_a)
    apart = torch.cdist(points[a], points[b], compute_mode="donot_use_mm_for_euclid_dist")
    at = int(apart.argmin())
    return int(a[at // len(b)]), int(b[at % len(b)])


def _closest(points: torch.Tensor, ids: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The `CLOSEST` of some points to a place, in rising order of ids."""
    if len(ids) <= CLOSEST:
        return ids
    apart = (points[ids].to(torch.float64) - place).square().sum(1)
    return ids[torch.argsort(apart, stable=True)[:CLOSEST].sort().values]
