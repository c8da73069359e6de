"""From the map back to the data: rows in between the rows whose places are near."""

from __future__ import annotations

import torch

from cartograd.embedding.placement import Placement, ordered_sum
from cartograd.errors import UnsupportedError
from cartograd.neighbors import search

PIECE = 1 << 22


def rows_at(fitted: Placement, Z: torch.Tensor, k: int) -> torch.Tensor:
    r"""The row that belongs at each of these places, (m, d).

    .. math:: x = \sum_{j} w_j x_j / \sum_j w_j, \qquad w_j = 1 / |z - z_j|^2

    over the k nearest fitted places (Shepard, 1968): at a fitted place it is the row that was fitted there (one of
    them, or their mean, where several are), and in between it changes smoothly.

    Parameters
    ----------
    fitted : Placement
        Where the training rows are.
    Z : torch.Tensor
        (m, c) places.
    k : int
        How many fitted places are used.
    """
    if fitted.source.metric == "precomputed":
        raise UnsupportedError("inverse_transform needs the rows, and this map was made of distances alone")
    rows = fitted.source.rows
    k = min(k, rows.count)
    places = fitted.places
    indices, distances = search(places, k, queries=Z.to(places.dtype), exclude_self=False, device=places.device)
    here = distances[:, :1] == 0
    weights = torch.where(here, (distances == 0).to(distances.dtype), (distances[:, :1] / distances) ** 2)
    weights = (weights / ordered_sum(weights)[:, None]).to(rows.dtype)
    piece = max(1, PIECE // (k * rows.width))
    parts = []
    for start in range(0, len(Z), piece):
        ids = indices[start : start + piece]
        near = rows.take(ids.reshape(-1)).reshape(*ids.shape, rows.width)
        parts.append(ordered_sum(near * weights[start : start + piece, :, None]))
    return torch.cat(parts)
