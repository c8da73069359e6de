"""Repulsion from sampled points that moves both ends of each pair, added up in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cartograd.neighbors.workers import spread

PIECE_PAIRS = 1 << 18


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
    step = max(1, PIECE_PAIRS // max(m, 1))

    def piece(start: int) -> tuple[torch.Tensor, torch.Tensor]:
        columns = others[start : start + step]
        apart = Z[start : start + step, None, :] - Z.index_select(0, columns.reshape(-1)).reshape(*columns.shape, -1)
        force = (2 * slope(apart.square().sum(2)))[:, :, None] * apart
        return force.sum(1), scattered(force.reshape(-1, Z.shape[1]), columns.reshape(-1), n)

    parts = list(spread(piece, range(0, n, step)))
    gradient = torch.cat([own for own, _ in parts])
    for _, theirs in parts:
        gradient -= theirs
    return gradient


def scattered(values: torch.Tensor, places: torch.Tensor, n: int) -> torch.Tensor:
    """Sums of the values (m, c) that go to each of n places, in the order of m, (n, c)."""
    if values.device.type == "cpu":
        return torch.zeros(n, values.shape[1], dtype=values.dtype).scatter_add_(
            0, places[:, None].expand(-1, values.shape[1]), values
        )
    order = torch.argsort(places, stable=True)  # atomics would add in another order each time
    counts = torch.bincount(places, minlength=n)
    offsets = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])
    return torch.segment_reduce(values[order], "sum", offsets=offsets, axis=0, initial=0.0)
