"""t-SNE's repulsion over all pairs by a compiled kernel: large maps of up to three dimensions, float32, on a CPU."""

from __future__ import annotations

import torch

from cartograd.kernels import cpu
from cartograd.neighbors.workers import spread

MODULE = "student_pairs"
QUERIES = 128
"""Queries that go to a thread at once."""


def student_sums(queries: torch.Tensor, points: torch.Tensor, own: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same as `cartograd.embedding.forces.exact.student_sums`, which is the oracle.

    Parameters
    ----------
    queries, points : torch.Tensor
        (m, c) and (n, c) float32, c at most 3.
    own : bool
        Whether the queries are points; pairs of a row with itself, whose similarity is 1, are then left out.
    """
    kernel = cpu.load(MODULE).student_sums
    sums, pulls = queries.new_empty(len(queries)), torch.empty_like(queries, memory_format=torch.contiguous_format)
    arrays = [part.T.contiguous().numpy() for part in (queries, points)]

    def move(start: int) -> None:
        kernel(*arrays, sums.numpy(), pulls.numpy(), start, min(start + QUERIES, len(queries)))

    for _ in spread(move, range(0, len(queries), QUERIES)):
        pass
    return sums - 1 if own else sums, pulls
