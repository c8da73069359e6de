r"""Draws on a ring: random rows for each, such that every row also knows by whom it is drawn.

The rows lie on a ring in a random order, the same for the whole fit. Draw s of a step is, for every row, the one
:math:`b_s` places further, with :math:`b_s` uniform in 1 ... n - 1 and found by hashing (key of the step, s). A row's
draws are as even and as independent, of each other and from step to step, as those of
`cartograd.embedding.sampling.Complement` that leave out the row itself. Of all rows together they are not: those of a
step share the :math:`b_s`, so each row is drawn exactly once by a draw, by the row :math:`b_s` places back. Both sums
of a row are then over places known to it, and nobody writes into the row of another.

Here in torch, as the twin of `cartograd.kernels.gpu.negatives`.
"""

from __future__ import annotations

import torch

from cartograd.affinity.counter import below, hashed, stream

PIECE_PAIRS = 1 << 24


def ring_order(n: int, seed: int, device: torch.device) -> torch.Tensor:
    """The rows in the order of the ring, (n,) int64."""
    return torch.argsort(hashed(stream(seed, "ring"), torch.arange(n, device=device)))  # hashes of one key all differ


def shifts(key: int, count: int, n: int, device: torch.device) -> torch.Tensor:
    """How many places further each draw of a step is, (count,) int64; off the even by at most n 2^-32."""
    return below(key, torch.arange(count, device=device), n - 1) + 1


def drawn(order: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The others that each row draws, (n, count) int64."""
    n = len(order)
    others = torch.empty(n, len(shift), dtype=torch.int64, device=order.device)
    others[order] = order[(torch.arange(n, device=order.device)[:, None] + shift) % n]
    return others


def loss(Z: torch.Tensor, order: torch.Tensor, shift: torch.Tensor, contrastive: bool) -> torch.Tensor:
    r"""The loss of the repulsion, a float64 scalar.

    :math:`\frac1n \sum_{ij} \log \frac{2 + s_{ij}}{1 + s_{ij}}` of LargeVis, or InfoTSNE's
    :math:`\frac1n \sum_i \log \sum_j w_{ij}` with w = 1 / (1 + s).
    """
    n, around = len(Z), Z[order]
    total = torch.zeros((), dtype=torch.float64, device=Z.device)
    size = max(1, PIECE_PAIRS // max(len(shift), 1))
    for start in range(0, n, size):
        places = torch.arange(start, min(start + size, n), device=Z.device)
        s = (around[places, None] - around[(places[:, None] + shift) % n]).square().sum(2)
        lost = torch.log((1 / (1 + s)).sum(1)) if contrastive else torch.log(2 + s) - torch.log1p(s)
        total = total + lost.sum(dtype=torch.float64)
    return total / n


def pushes(Z: torch.Tensor, order: torch.Tensor, shift: torch.Tensor, contrastive: bool) -> torch.Tensor:
    """The gradient of the loss, (n, c), in the precision of Z."""
    n, around = len(Z), Z[order]
    places = torch.arange(n, device=Z.device)[:, None]
    further, back = (places + shift) % n, (places - shift) % n
    apart, behind = around[:, None] - around[further], around[:, None] - around[back]
    s, t = apart.square().sum(2), behind.square().sum(2)
    if contrastive:
        w, v = 1 / (1 + s), 1 / (1 + t)
        share = 2 / w.sum(1, keepdim=True)
        slope, theirs = -share * w * w, -share[back, 0] * v * v
    else:
        slope, theirs = -2 / ((1 + s) * (2 + s)), -2 / ((1 + t) * (2 + t))
    gradient = torch.empty_like(Z)
    gradient[order] = ((slope[:, :, None] * apart).sum(1) + (theirs[:, :, None] * behind).sum(1)) / n
    return gradient
