"""New rows of a UMAP map by the kernel for the CPU: the same descent as in torch, a row at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch

from cartograd.affinity.counter import stream
from cartograd.embedding.kernel_rows import in_words, served
from cartograd.embedding.placement import Placement
from cartograd.kernels import cpu
from cartograd.neighbors.workers import spread

MODULE = "umap_placing"
RANGE = 512
"""New rows that go to a thread at once."""


@dataclass(frozen=True)
class Descent:
    """How new rows descend.

    Parameters
    ----------
    a, b : float
        The curve.
    strength : float
        The factor of the repulsion.
    count : int
        Points that a row is pushed away from at each step.
    rates : list of float
        The length of each step.
    """

    a: float
    b: float
    strength: float
    count: int
    rates: list[float]


def by_kernel(fitted: Placement, weights: torch.Tensor) -> bool:
    """Whether the kernel places new rows in this map; that does not depend on how many they are."""
    places = fitted.places
    same = served(fitted.source.n, places.shape[1], places.dtype, places.device) and weights.dtype == torch.float32
    return same and cpu.usable()


def settled(
    Z: torch.Tensor,
    fitted: Placement,
    indices: torch.Tensor,
    weights: torch.Tensor,
    shares: torch.Tensor,
    keys: torch.Tensor,
    descent: Descent,
) -> torch.Tensor:
    """Return the coordinates of new rows, (m, c).

    Parameters
    ----------
    Z : torch.Tensor
        (m, c) where they start; may be overwritten.
    fitted : Placement
        The map.
    indices, weights : torch.Tensor
        (m, k) their neighbours in it, and how strongly each attracts.
    shares : torch.Tensor
        (m,) the weight of each of the draws.
    keys : torch.Tensor
        (m, 2) what the draws of a row are found by.
    descent : Descent
        The forces and steps.
    """
    kernel = cpu.load(MODULE).settle
    c, points = Z.shape[1], (in_words(Z), in_words(fitted.places))
    arrays = [part.contiguous().numpy() for part in (*points, indices, weights, shares, keys[:, 0])]
    streams = [stream(fitted.seed, "placement", step) & ((1 << 64) - 1) for step in range(len(descent.rates))]
    steps = numpy.array(streams, dtype=numpy.uint64), numpy.array(descent.rates, dtype=numpy.float32)

    def move(start: int) -> None:
        stop = min(start + RANGE, len(Z))
        kernel(*arrays, *steps, descent.count, start, stop, descent.a, descent.b, descent.strength)

    for _ in spread(move, range(0, len(Z), RANGE)):
        pass
    return torch.from_numpy(arrays[0])[:, :c].contiguous()
