"""Losses between two affinities, and affinities given as they are."""

from __future__ import annotations

from typing import Any

import torch

from cartograd.affinity.data import plain
from cartograd.errors import InputError
from cartograd.neighbors import Graph
from cartograd.neighbors.rows import Rows


def square_loss(P: Any, Q: Any) -> Any:
    r""":math:`\sum_{ij} (P_{ij} - Q_{ij})^2`; P dense or a `Graph`, Q a dense Tensor."""
    dense = P.to_dense() if isinstance(P, Graph) else plain(P)
    return ((Q - dense.to(Q.dtype)) ** 2).sum()


def cross_entropy_loss(P: Any, Q: Any, log: bool = False) -> Any:
    r""":math:`-\sum_{ij} P_{ij} \log Q_{ij}` over the pairs with P above 0; `log` says that Q is a logarithm."""
    if isinstance(P, Graph):
        values, weights = Q[P.rows(), P.indices], P.weights.to(Q.dtype)
    else:
        dense = plain(P).to(Q.dtype)
        there = dense > 0
        values, weights = Q[there], dense[there]
    return -(weights * (values if log else torch.log(values))).sum()


LOSSES = {"square_loss": square_loss, "cross_entropy_loss": cross_entropy_loss}


def given_affinity(rows: Any) -> torch.Tensor:
    """A square matrix of affinities given as the data, checked."""
    matrix = plain(rows.toarray() if hasattr(rows, "toarray") else rows)
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f'affinity_in="precomputed" takes the square matrix P, got shape {tuple(matrix.shape)}')
    if bool((matrix < 0).any()):
        row, column = torch.nonzero(matrix < 0)[0].tolist()
        raise InputError(f"affinities cannot be negative, got {float(matrix[row, column]):g} at ({row}, {column})")
    return matrix


def all_columns(rows: Rows, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Affinities of new rows to all training rows as neighbours: indices (m, n) and weights (m, n)."""
    weights = rows.block(0, rows.count).to(dtype)
    return torch.arange(rows.width, device=rows.device).expand(rows.count, -1), weights
