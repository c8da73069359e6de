"""The gradients and losses of LargeVis and InfoTSNE by the kernels for the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy
import torch

from cartograd.affinity.counter import stream
from cartograd.distributed import Part, row_bounds
from cartograd.distributed.part import tree_sum
from cartograd.embedding.kernel_rows import each_range
from cartograd.kernels import cpu
from cartograd.neighbors import Graph
from cartograd.neighbors.workers import spread

MODULE = "sampled_layout"
PARTS = 8
"""Parts of the rows, each of which adds up what it does to all others by itself."""


@dataclass(frozen=True)
class Kind:
    """Which of the two methods.

    Parameters
    ----------
    c : float
        Of the attraction's loss P log(c + s).
    contrast : bool
        Whether the repulsion is InfoTSNE's.
    count : int
        Random rows for each.
    """

    c: float
    contrast: bool
    count: int


class SampledRows:
    """A symmetric graph as the kernels take it.

    Parameters
    ----------
    graph : Graph
        On the CPU.
    kind : Kind
        The method.
    seed : int
        Of the random rows.
    part : Part, default=None
        Where the graph is that of the rows of one process.
    """

    def __init__(self, graph: Graph, kind: Kind, seed: int, part: Part | None = None) -> None:
        self.n, self.kind, self.seed, self.part = graph.n, kind, seed, part
        self.own = slice(0, self.n) if part is None else part.own
        self.edges: tuple[Any, ...] = (
            graph.indptr.numpy(),
            graph.indices.to(torch.int32).numpy(),
            graph.weights.to(torch.float32).numpy(),
        )
        cuts = [(max(a, self.own.start), min(b, self.own.stop)) for a, b in pairwise(row_bounds(self.n, PARTS))]
        self.parts = [(start, stop) for start, stop in cuts if start < stop]
        self.places = [place for place, (start, stop) in enumerate(cuts) if start < stop]
        self.theirs = numpy.empty((len(self.parts), self.n, 2), dtype=numpy.float32)

    def gradient(self, Z: torch.Tensor, step: int, pull: float, strength: float) -> torch.Tensor:
        """The gradient at Z (n, 2), with the factors of attraction and repulsion."""
        kernel, places, out = cpu.load(MODULE).pull, Z.numpy(), torch.empty_like(Z)
        c, factor, new = numpy.float32(self.kind.c), numpy.float32(4 * pull), out.numpy()
        each_range(lambda start, stop: kernel(*self.edges, places, new, start, stop, c, factor), self.n, self.own)
        self._push(places, new, step, strength / self.n)
        theirs = self._summed() if self.parts else torch.zeros_like(Z)
        out[self.own] += theirs if self.part is None else self.part.sums_of_own(theirs, "forces on others")
        return out

    def _summed(self) -> torch.Tensor:
        """What all parts do to the rows of others, added up as a tree of `PARTS` places."""
        by_place = dict(zip(self.places, map(torch.from_numpy, self.theirs), strict=True))
        return tree_sum([by_place.get(place) for place in range(PARTS)])

    def losses(self, Z: torch.Tensor, step: int) -> tuple[float, float]:
        """The losses of attraction and repulsion, without their factors."""
        kernel, places, c = cpu.load(MODULE).pull_loss, Z.numpy(), numpy.float32(self.kind.c)
        attraction = sum(each_range(lambda start, stop: kernel(*self.edges, places, start, stop, c), self.n, self.own))
        return attraction, self._push(places, numpy.empty_like(places), step, 0.0) / self.n

    def _push(self, places: Any, out: Any, step: int, factor: float) -> float:
        """Repulsion into `out` and `theirs`; the sum of its losses."""
        kernel, key = cpu.load(MODULE).push, numpy.uint64(stream(self.seed, "negatives", step))
        more = (key, self.kind.count, self.kind.contrast, numpy.float32(factor))

        def piece(part: int) -> float:
            return float(kernel(places, out, self.theirs[part], *self.parts[part], *more))

        return sum(spread(piece, range(len(self.parts))))
