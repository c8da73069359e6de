"""Distances that the engine can differentiate, for affinities of data (or of a map) that move."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.affinity.data import MetricLike
from cartograd.engine import Tensor, is_grad_enabled, primitive
from cartograd.errors import OptionError
from cartograd.neighbors import validate

SERVED = ("sqeuclidean", "euclidean", "manhattan", "cosine", "precomputed")


def is_recorded(X: Any) -> bool:
    """Whether the engine will be asked for a gradient with respect to X."""
    return isinstance(X, Tensor) and X.requires_grad and is_grad_enabled()


@primitive()
def squared_distances(x: torch.Tensor) -> torch.Tensor:
    """out[i, j] = |x_i - x_j|^2.   d/dx_i = 2 sum_j (g_ij + g_ji)(x_i - x_j), at equal points too"""
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()


@squared_distances.vjp("x")
def _(g: Any, x: Any) -> Any:
    both = g + g.mT
    return 2 * (x * both.sum(1, keepdim=True) - torch.matmul(both, x))


@squared_distances.example
def _(make: Any) -> Any:
    return (make(4, 2),)


def recorded_distances(X: Tensor, metric: MetricLike) -> Tensor:
    """All distances between the rows of X, (n, n), as a Tensor whose gradient leads to X."""
    check_recorded(X, metric)
    if metric == "precomputed":
        return X
    if callable(metric):
        return metric(X[:, None, :], X[None, :, :])
    if metric == "sqeuclidean":
        return squared_distances(X)
    if metric == "cosine":
        unit = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
        return squared_distances(unit) / 2
    points: Any = X
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(points, points, 1.0 if metric == "manhattan" else 2.0, compute_mode=mode)  # type: ignore[return-value]


def check_recorded(X: Tensor, metric: MetricLike) -> None:
    """Refuse what cannot be differentiated."""
    validate.check_shape(tuple(X.shape), "X")
    if isinstance(metric, str) and metric not in SERVED:
        raise OptionError(
            f"metric {metric!r} has no gradient here: for a Tensor that requires grad use {', '.join(SERVED)} or a "
            "function of two Tensors, or give X.detach()"
        )


def off_diagonal(C: Any, start: int = 0) -> Any:
    """Rows start, start + 1, ... of a matrix (r, n) without their diagonal, (r, n - 1)."""
    rows, n = C.shape
    others = torch.arange(n - 1, device=C.device).expand(rows, n - 1)
    own = torch.arange(start, start + rows, device=C.device)[:, None]
    return torch.gather(C, 1, others + (others >= own))


def with_diagonal(rows: Any, value: float) -> Any:
    """The inverse of `off_diagonal` for a whole matrix: (n, n - 1) to (n, n) with `value` on the diagonal."""
    n = rows.shape[0]
    column = torch.full((n, 1), value, dtype=rows.dtype, device=rows.device)
    wide = torch.cat([column, rows], 1)  # place 0 of each row is the diagonal's
    place = torch.arange(n, device=rows.device)
    own = place[:, None]
    source = torch.where(place == own, 0, torch.where(place < own, place + 1, place))
    return torch.gather(wide, 1, source)
