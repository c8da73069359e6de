"""t-SNE's attraction by compiled kernels: large graphs, maps of up to three dimensions, float32, on a CPU."""

from __future__ import annotations

import numpy
import torch

from cartograd.embedding.kernel_rows import each_range, in_words
from cartograd.kernels import cpu
from cartograd.neighbors import Graph

MODULE = "csr_attraction"


class CompiledEdges:
    """A symmetric graph made ready for many rounds of gathering; half the memory of the graph's own numbers.

    `cartograd.embedding.forces.edges` is the oracle.

    Parameters
    ----------
    graph : Graph
        P, on the CPU.
    """

    def __init__(self, graph: Graph) -> None:
        self.n = graph.n
        self._indptr = graph.indptr.numpy()
        self._columns = graph.indices.numpy().astype(numpy.uint32)
        self._weights = graph.weights.to(torch.float32).numpy()

    def attraction(self, Z: torch.Tensor) -> torch.Tensor:
        r"""The gradient of :math:`\sum P_{ij} \log(1 + s_{ij})`, (n, c), for Z (n, c) float32."""
        points = in_words(Z).contiguous()
        gradient = torch.empty_like(points)
        kernel, rows, out = cpu.load(MODULE).pull, points.numpy().view(numpy.uint64), gradient.numpy()
        each_range(lambda *part: kernel(self._indptr, self._columns, self._weights, rows, out, *part), self.n)
        return gradient[:, : Z.shape[1]].contiguous()

    def loss(self, Z: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum P_{ij} \log(1 + s_{ij})`, a float64 scalar, for Z (n, c) float32."""
        sums = torch.empty(self.n, dtype=torch.float64)
        kernel, rows, out = cpu.load(MODULE).loss, in_words(Z).contiguous().numpy().view(numpy.uint64), sums.numpy()
        each_range(lambda *part: kernel(self._indptr, self._columns, self._weights, rows, out, *part), self.n)
        return sums.sum()
