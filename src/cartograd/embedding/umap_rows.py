"""UMAP's layout by the kernel for the CPU: the gradient at a step, many steps at once, the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from cartograd.affinity.counter import later, stream
from cartograd.embedding.edge_clock import GRID, shares
from cartograd.embedding.kernel_rows import each_range, in_words
from cartograd.embedding.sharing import OwnEdges
from cartograd.kernels import cpu
from cartograd.neighbors import Graph

MODULE = "umap_layout"


@dataclass(frozen=True)
class Forces:
    """What the forces depend on beside the step.

    Parameters
    ----------
    seed : int
        Of the negatives.
    rate : int
        Negatives for each acting edge.
    a, b : float
        The curve.
    pull, push : float
        The factors of attraction and repulsion.
    """

    seed: int
    rate: int
    a: float
    b: float
    pull: float
    push: float


class UmapRows:
    """The edges of a symmetric graph that act at least once in so many steps, as the kernel takes them.

    Parameters
    ----------
    graph : Graph
        On the CPU.
    steps : int
        How many there will be.
    part : OwnEdges, default=None
        Where the graph is that of the rows of one process: what it must know of the others'.
    """

    def __init__(self, graph: Graph, steps: int, part: OwnEdges | None = None) -> None:
        rates = shares(graph.weights, None if part is None else part.largest)
        kept = torch.floor(rates * steps) >= 1
        rows = graph.rows()[kept]
        counts = torch.bincount(rows, minlength=graph.n)
        self.n, self.part = graph.n, part
        self.own = None if part is None else part.own
        self.before = 0 if part is None else part.edges_before(len(rows))
        self.edges: tuple[Any, ...] = (
            torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)]).numpy(),
            rows.to(torch.int32).numpy(),
            graph.indices[kept].to(torch.int32).numpy(),
            (rates[kept] * GRID).to(torch.int32).numpy().view(numpy.uint32),
        )

    def gradient(self, Z: torch.Tensor, step: int, forces: Forces) -> torch.Tensor:
        """Return the gradient of both terms at the points Z, (n, c)."""
        points = in_words(Z)
        out = torch.empty_like(points)
        self._move(points, out, step, forces)
        return out[:, : Z.shape[1]].contiguous()

    def advance(
        self, Z: torch.Tensor, first: int, rates: Sequence[float], forces: Forces, reached: Callable[..., None]
    ) -> None:
        """Steps of gradient descent with these learning rates, from step `first` on; Z is moved in place.

        After each step `reached` is called with the number of steps taken and where the points then are: in Z or
        in another tensor, which the next step but one will overwrite.
        """
        old, c = in_words(Z), Z.shape[1]
        new = torch.empty_like(old)
        for step, rate in enumerate(rates, first):
            self._move(old, new, step, forces, rate)
            old, new = new, old
            reached(step + 1, old[:, :c])
        if old is not Z:
            reached(first + len(rates), Z.copy_(old[:, :c]))

    def losses(self, Z: torch.Tensor, step: int, forces: Forces) -> tuple[float, float]:
        """The losses of attraction and repulsion, without their factors."""
        kernel, places, key = cpu.load(MODULE).losses, in_words(Z).numpy(), self._key(forces, step)
        a, b = numpy.float32(forces.a), numpy.float32(forces.b)
        parts = each_range(
            lambda start, stop: kernel(*self.edges, places, start, stop, step, key, forces.rate, a, b),
            self.n,
            self.own,
        )
        attraction, repulsion = (sum(part[kind] for part in parts) for kind in (0, 1))
        return attraction / 2, repulsion  # each edge is there in both directions

    def _move(self, Z: torch.Tensor, out: torch.Tensor, step: int, forces: Forces, rate: float | None = None) -> None:
        """Write where the points are after a step into `out`, or without a learning rate the gradient."""
        kernel, old, new = cpu.load(MODULE).move, Z.numpy(), out.numpy()
        numbers = [numpy.float32(part) for part in (forces.a, forces.b, forces.pull, forces.push)]
        rates = (rate is not None, numpy.float32(rate or 0.0))
        more = (step, self._key(forces, step), forces.rate, *numbers, *rates)
        each_range(lambda start, stop: kernel(*self.edges, old, new, start, stop, *more), self.n, self.own)
        if self.part is not None and rate is not None:
            self.part.share(out)  # the rows of other processes, moved by them

    def _key(self, forces: Forces, step: int) -> Any:
        """The key of the step's negatives; numbers are counted from the first edge of all on."""
        return numpy.uint64(later(stream(forces.seed, "negatives", step), self.before * forces.rate))
