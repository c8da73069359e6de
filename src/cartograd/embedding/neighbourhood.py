"""The neighbours a map is made of: searched or given, their distances in a scale of their own."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import EntropicAffinity, joint_probabilities
from cartograd.affinity.data import given_neighbours
from cartograd.errors import InputError, OptionError
from cartograd.neighbors import Graph

FARTHEST = 1e15
"""Distances are cut off at this many times the usual one, so that their squares stay in range."""


@dataclass(frozen=True)
class Neighbourhood:
    """Each row's nearest rows.

    Parameters
    ----------
    indices : torch.Tensor
        (n, k) int64.
    distances : torch.Tensor
        (n, k), divided by `scale`, rising.
    scale : float
        The median distance of the last neighbour: affinities do not depend on it, float32 does.
    """

    indices: torch.Tensor
    distances: torch.Tensor
    scale: float

    @classmethod
    def of(cls, indices: torch.Tensor, distances: torch.Tensor) -> Neighbourhood:
        """Neighbours as a search gives them."""
        last = distances[:, -1].to(torch.float64)
        last = last[last > 0]
        scale = float(last.median()) if len(last) else 1.0
        near = (distances.to(torch.float64) / scale).clamp_(max=FARTHEST)
        return cls(indices, near.to(distances.dtype), scale)

    def squared(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices and squared distances, as the entropic affinities want them."""
        return self.indices, self.distances.square()


def found_or_given(
    knn: Any, n: int, k: int | None, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """`precomputed_knn`, checked against the number of rows, the k nearest of it; None where there is none.

    Parameters
    ----------
    knn : tuple or None
        Indices and distances, (n, m) each.
    n : int
        How many rows there are.
    k : int or None
        How many neighbours are needed; None for as many as there are.
    device : torch.device, default=None
        Where to put them; None for where they are.
    """
    if knn is None:
        return None
    indices, distances = given_neighbours(knn, None, device)
    if len(indices) != n:
        raise InputError(f"precomputed_knn is of {len(indices)} rows, but X has {n}")
    if k is not None and indices.shape[1] < k:
        raise OptionError(
            f"precomputed_knn has {indices.shape[1]} neighbours for each row other than itself, and {k} are needed; "
            "search for more, or use a smaller perplexity or n_neighbors"
        )
    return indices[:, :k], distances[:, :k]


def fitting_neighbours(wanted: int, n: int, name: str = "n_neighbors", with_self: bool = False) -> int:
    """At most as many neighbours as there are, with a warning where that is fewer than asked for."""
    most = n if with_self else n - 1
    if wanted <= most:
        return wanted
    warnings.warn(f"{name}={wanted} is too large for {n} different rows: {most} used", UserWarning, stacklevel=2)
    return most


def fitting_perplexity(perplexity: float, n: int) -> float:
    """The perplexity, or where the different rows are too few for it a third of their number, with a warning.

    One that was chosen and does not fit the number of rows given has been refused before.
    """
    if perplexity <= n - 1:
        return float(perplexity)
    most = max(1.0, (n - 1) / 3)
    warnings.warn(
        f"perplexity={perplexity:g} is too large for {n} different rows: {most:.3g} used", UserWarning, stacklevel=2
    )
    return most


def neighbours_for(perplexity: float, n: int, sparsity: bool | None) -> int:
    """How many neighbours an entropic affinity looks at: three times the perplexity, or all."""
    return n - 1 if sparsity is False else min(n - 1, math.ceil(3 * perplexity))


def entropic_graph(near: Neighbourhood, perplexity: float) -> Graph:
    """t-SNE's joint probabilities of the neighbours: symmetric, their sum is one."""
    return joint_probabilities(EntropicAffinity(perplexity, sparsity=True)(None, knn=near.squared()))
