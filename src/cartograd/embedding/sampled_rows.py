"""The gradients and losses of LargeVis and InfoTSNE by the kernels for the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
import torch

from cartograd.affinity.counter import stream
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
    """

    def __init__(self, graph: Graph, kind: Kind, seed: int) -> None:
        self.n, self.kind, self.seed = graph.n, kind, seed
        self.edges: tuple[Any, ...] = (
            graph.indptr.numpy(),
            graph.indices.to(torch.int32).numpy(),
            graph.weights.to(torch.float32).numpy(),
        )
        size = -(-self.n // PARTS)
        self.parts = [(start, min(start + size, self.n)) for start in range(0, self.n, size)]
        self.theirs = numpy.empty((len(self.parts), self.n, 2), dtype=numpy.float32)

    def gradient(self, Z: torch.Tensor, step: int, pull: float, strength: float) -> torch.Tensor:
        """The gradient at Z (n, 2), with the factors of attraction and repulsion."""
        kernel, places, out = cpu.load(MODULE).pull, Z.numpy(), torch.empty_like(Z)
        c, factor, new = numpy.float32(self.kind.c), numpy.float32(4 * pull), out.numpy()
        each_range(lambda start, stop: kernel(*self.edges, places, new, start, stop, c, factor), self.n)
        self._push(places, new, step, strength / self.n)
        for part in self.theirs:
            out += torch.from_numpy(part)
        return out

    def losses(self, Z: torch.Tensor, step: int) -> tuple[float, float]:
        """The losses of attraction and repulsion, without their factors."""
        kernel, places, c = cpu.load(MODULE).pull_loss, Z.numpy(), numpy.float32(self.kind.c)
        attraction = sum(each_range(lambda start, stop: kernel(*self.edges, places, start, stop, c), self.n))
        return attraction, self._push(places, numpy.empty_like(places), step, 0.0) / self.n

    def _push(self, places: Any, out: Any, step: int, factor: float) -> float:
        """Repulsion into `out` and `theirs`; the sum of its losses."""
        kernel, key = cpu.load(MODULE).push, numpy.uint64(stream(self.seed, "negatives", step))
        more = (key, self.kind.count, self.kind.contrast, numpy.float32(factor))

        def piece(part: int) -> float:
            return float(kernel(places, out, self.theirs[part], *self.parts[part], *more))

        return sum(spread(piece, range(len(self.parts))))
