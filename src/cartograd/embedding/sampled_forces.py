"""Repulsion from sampled points that moves both ends of each pair, added up in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cartograd.neighbors.workers import spread

PIECE_PAIRS, GPU_PIECE_PAIRS = 1 << 18, 1 << 26


def push_both_ends(
    Z: torch.Tensor, others: torch.Tensor, slope: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    r"""The gradient of :math:`\sum_{i} f_i(s_{i1}, s_{i2}, \dots)` of squared distances to sampled points, (n, c).

    .. math:: \nabla z_i \mathrel{+}= 2 f_{it} (z_i - z_j), \qquad \nabla z_j \mathrel{-}= 2 f_{it} (z_i - z_j),
        \qquad j = \text{others}_{it}

    Parameters
    ----------
    Z : torch.Tensor
        (n, c) points.
    others : torch.Tensor
        (n, m) int64, the points sampled for each.
    slope : callable
        Gives the derivatives f (r, m) of the loss by the squared distances (r, m) of some rows.
    """
    n, m = others.shape
    step = max(1, (PIECE_PAIRS if Z.device.type == "cpu" else GPU_PIECE_PAIRS) // max(m, 1))
    planes = Z.T.contiguous()  # a coordinate at a time: (r, m) matrices are twice as fast as (r, m, c) ones

    def piece(start: int) -> tuple[torch.Tensor, torch.Tensor]:
        columns = others[start : start + step]
        flat = columns.reshape(-1)
        apart = [own[start : start + step, None] - own.index_select(0, flat).view(columns.shape) for own in planes]
        squared = apart[0].square()
        for part in apart[1:]:
            squared.addcmul_(part, part)
        strength = slope(squared).mul_(2)
        forces = torch.stack([part.mul_(strength) for part in apart])
        return forces.sum(2), scattered(forces.view(len(planes), -1), flat, n)

    parts = list(spread(piece, range(0, n, step)))
    gradient = torch.cat([own for own, _ in parts], 1)
    for _, theirs in parts:
        gradient -= theirs
    return gradient.T.contiguous()


def scattered(values: torch.Tensor, places: torch.Tensor, n: int) -> torch.Tensor:
    """Sums of the values (c, m) that go to each of n places, in the order of m, (c, n)."""
    if values.device.type == "cpu":
        sums = torch.zeros(len(values), n, dtype=values.dtype)
        for total, part in zip(sums, values, strict=True):
            total.scatter_add_(0, places, part)
        return sums
    order = torch.argsort(places, stable=True)  # atomics would add in another order each time
    counts = torch.bincount(places, minlength=n)
    offsets = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)]).expand(len(values), -1)
    return torch.segment_reduce(values[:, order], "sum", offsets=offsets, axis=1, initial=0.0)
