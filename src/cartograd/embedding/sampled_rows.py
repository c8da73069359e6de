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
from cartograd.embedding.kernel_rows import each_range, in_words
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
        self.room: Any = None
        self.edges: tuple[Any, ...] = (
            graph.indptr.numpy(),
            graph.indices.to(torch.int32).numpy(),
            graph.weights.to(torch.float32).numpy(),
        )
        cuts = [(max(a, self.own.start), min(b, self.own.stop)) for a, b in pairwise(row_bounds(self.n, PARTS))]
        self.parts = [(start, stop) for start, stop in cuts if start < stop]
        self.places = [place for place, (start, stop) in enumerate(cuts) if start < stop]

    def gradient(self, Z: torch.Tensor, step: int, pull: float, strength: float) -> torch.Tensor:
        """Return the gradient at Z, (n, c), with the factors of attraction and repulsion."""
        points = in_words(Z)
        kernel, places, out = cpu.load(MODULE).pull, points.numpy(), torch.empty_like(points)
        c, factor, new = numpy.float32(self.kind.c), numpy.float32(4 * pull), out.numpy()
        each_range(lambda start, stop: kernel(*self.edges, places, new, start, stop, c, factor), self.n, self.own)
        received = self._push(places, new, step, strength / self.n)[1]
        theirs = self._summed(received) if self.parts else torch.zeros_like(points)
        out[self.own] += theirs if self.part is None else self.part.sums_of_own(theirs, "forces on others")
        return out[:, : Z.shape[1]].contiguous()

    def _summed(self, received: Any) -> torch.Tensor:
        """What all parts do to the rows of others, added up as a tree of `PARTS` places."""
        by_place = dict(zip(self.places, map(torch.from_numpy, received), strict=True))
        return tree_sum([by_place.get(place) for place in range(PARTS)])

    def losses(self, Z: torch.Tensor, step: int) -> tuple[float, float]:
        """The losses of attraction and repulsion, without their factors."""
        kernel, places, c = cpu.load(MODULE).pull_loss, in_words(Z).numpy(), numpy.float32(self.kind.c)
        attraction = sum(each_range(lambda start, stop: kernel(*self.edges, places, start, stop, c), self.n, self.own))
        return attraction, self._push(places, numpy.empty_like(places), step, 0.0)[0] / self.n

    def _push(self, places: Any, out: Any, step: int, factor: float) -> tuple[float, Any]:
        """Add the repulsion to `out`; return the sum of its losses, and what each part does to other rows."""
        received = self._received(places.shape[1])
        kernel, key = cpu.load(MODULE).push, numpy.uint64(stream(self.seed, "negatives", step))
        more = (key, self.kind.count, self.kind.contrast, numpy.float32(factor))

        def piece(part: int) -> float:
            return float(kernel(places, out, received[part], *self.parts[part], *more))

        return sum(spread(piece, range(len(self.parts)))), received

    def _received(self, columns: int) -> Any:
        """Return room for what each part does to all rows, (parts, n, columns)."""
        if self.room is None or self.room.shape[2] != columns:
            self.room = numpy.empty((len(self.parts), self.n, columns), dtype=numpy.float32)
        return self.room
