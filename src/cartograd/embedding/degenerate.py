"""A map of data in which all rows are equal: there is nothing to show, and yet a picture is asked for."""

from __future__ import annotations

import warnings

import torch

from cartograd.affinity.counter import normal, stream, uniform
from cartograd.neighbors.rows import Rows

RADIUS = 1e-2


def disc_of_equal_rows(rows: Rows, n_components: int, seed: int) -> torch.Tensor:
    """Points spread evenly over a small disc (ball), (n, n_components), with a warning."""
    warnings.warn(
        f"all {rows.count} rows are equal: the map is a small disc of random places and shows nothing",
        UserWarning,
        stacklevel=5,
    )
    direction = normal(stream(seed, "disc"), (rows.count, n_components), rows.device)
    direction /= torch.linalg.vector_norm(direction, dim=1, keepdim=True).clamp(min=1e-12)
    radius = uniform(stream(seed, "disc radius"), (rows.count, 1), rows.device) ** (1 / n_components)
    return (RADIUS * radius * direction).to(rows.dtype)
