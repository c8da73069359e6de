"""Sums that are the same to the last bit at any thread count."""

from __future__ import annotations

import math

import torch

PIECE = 4096


def total(values: torch.Tensor) -> float:
    """The sum of a vector, in float64.

    torch splits a sum to one number among its threads, and its rounding then depends on how many there are. Sums of
    pieces of fixed length do not, and those are added without any rounding.
    """
    values = values.to(torch.float64)
    whole = len(values) // PIECE * PIECE
    pieces = values[:whole].view(-1, PIECE).sum(dim=1)
    return math.fsum(pieces.tolist() + values[whole:].tolist())


def mean(values: torch.Tensor) -> float:
    """The mean of a vector, in float64."""
    return total(values) / len(values)


def row_totals(values: torch.Tensor) -> torch.Tensor:
    """The sum of each row (r, m): in pieces short enough that not even one row alone is split among threads."""
    return torch.stack([piece.sum(dim=1) for piece in values.split(4 * PIECE, dim=1)]).sum(dim=0)
