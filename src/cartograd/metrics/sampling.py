"""Random pairs and triples of points, the same on every device."""

from __future__ import annotations

import torch


def pairs(count: int, most: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs i < j of `count` points where there are at most `most`; else so many, drawn with replacement."""
    if count * (count - 1) // 2 <= most:
        left, right = torch.triu_indices(count, count, offset=1)
        return left, right
    generator = torch.Generator().manual_seed(seed)
    left = torch.randint(count, (most,), generator=generator)
    return left, _another(left, count, generator)


def triplets(count: int, wanted: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """So many triples of three different points, drawn with replacement, all equally likely."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(count, (wanted,), generator=generator)
    second = _another(first, count, generator)
    third = torch.randint(count - 2, (wanted,), generator=generator)
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    third = third + (third >= low).to(torch.int64)  # step over the two that are taken, the lower one first
    return first, second, third + (third >= high).to(torch.int64)


def _another(taken: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    other = torch.randint(count - 1, (len(taken),), generator=generator)
    return other + (other >= taken).to(torch.int64)
