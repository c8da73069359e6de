"""Squared distances of all pairs, recorded by the engine: the plain way, beside which the tiles are checked."""

from __future__ import annotations

from typing import Any

import torch


def off_diagonal_distances(Z: Any) -> Any:
    """Squared distances of each point to every other, (n, n - 1), of a Tensor (n, c)."""
    n = len(Z)
    columns = torch.arange(n - 1, device=Z.device).expand(n, -1)
    columns = columns + (columns >= torch.arange(n, device=Z.device)[:, None])
    return ((Z[:, None, :] - Z[columns]) ** 2).sum(2)
