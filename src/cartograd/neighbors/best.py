"""The k best found so far for every row, and the rule by which ties are broken: the smaller id wins.

Tiles are offered in rising order of their column ids. Inside a list equal values stand in the order of their ids, and
a stable sort of "old list, then new candidates in the order of their ids" keeps it so. `torch.topk` promises nothing
about ties; where more candidates lie within rounding of the k-th than were kept, `lowest_by_id` decides instead.
"""

from __future__ import annotations

import torch

SPARE = 6
"""Candidates kept per tile beyond k, so that rounding in the tile cannot push a true neighbour out."""


class Best:
    """Running lists of the k nearest: ``raw`` (n, k) float64 rising along a row, ``ids`` (n, k) int64."""

    def __init__(self, count: int, k: int, device: torch.device) -> None:
        self.raw = torch.full((count, k), torch.inf, dtype=torch.float64, device=device)
        self.ids = torch.full((count, k), -1, dtype=torch.int64, device=device)

    def worst(self, rows: slice) -> torch.Tensor:
        """The k-th best raw value so far of each row, (r,)."""
        return self.raw[rows, -1]

    def merge(self, rows: torch.Tensor, raw: torch.Tensor, ids: torch.Tensor) -> None:
        """Offer candidates to some rows: each list in rising order of ids, all above the ids offered before."""
        k = self.raw.shape[1]
        values = torch.cat([self.raw.index_select(0, rows), raw], dim=1)
        names = torch.cat([self.ids.index_select(0, rows), ids], dim=1)
        values, order = torch.sort(values, dim=1, stable=True)
        self.raw.index_copy_(0, rows, values[:, :k])
        self.ids.index_copy_(0, rows, names.gather(1, order[:, :k]))


def lowest_by_id(scores: torch.Tensor, k: int, count: int, slack: torch.Tensor) -> torch.Tensor:
    """Positions (r, count) of the lowest scores, those within `slack` of the k-th lowest taken by position."""
    width = scores.shape[1]
    edge = torch.kthvalue(scores, k, dim=1).values
    sure = scores < (edge - slack)[:, None]
    near = scores <= (edge + slack)[:, None]
    position = torch.arange(width, device=scores.device)
    key = position + torch.where(sure, 0, torch.where(near, width, 2 * width))
    return key.topk(count, dim=1, largest=False).indices


def lowest(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Positions (r, k) of the k lowest of exact scores, in rising order; of equal ones the first."""
    if k == scores.shape[1]:
        return torch.arange(k, device=scores.device).expand(len(scores), k)
    values, positions = scores.topk(k + 1, dim=1, largest=False)
    tied = torch.nonzero(values[:, k] == values[:, k - 1]).squeeze(1)
    positions = positions[:, :k]
    if len(tied):
        positions[tied] = lowest_by_id(scores[tied], k, k, torch.zeros_like(values[tied, k]))
    return torch.sort(positions, dim=1).values
