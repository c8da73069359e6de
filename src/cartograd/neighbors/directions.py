"""The directions in which rows differ most."""

from __future__ import annotations

import torch

ROUNDS = 2
"""Of subspace iteration: rough directions do, since nothing but time depends on them."""


def leading(rows: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """About the `count` leading right singular vectors of centred rows, (d, count), by subspace iteration."""
    V = torch.randn(rows.shape[1], count, generator=generator)
    for _ in range(ROUNDS):
        V = torch.linalg.qr(rows.T @ (rows @ V)).Q
    return V
