"""t-SNE's attraction by compiled kernels: large graphs, maps in the plane, float32, on a CPU."""

from __future__ import annotations

import numpy
import torch

from cartograd.embedding.kernel_rows import each_range
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
        r"""The gradient of :math:`\sum P_{ij} \log(1 + s_{ij})`, (n, 2), for Z (n, 2) float32."""
        gradient = torch.empty_like(Z)
        kernel, rows, out = cpu.load(MODULE).pull, _as_words(Z), gradient.numpy()
        each_range(lambda *part: kernel(self._indptr, self._columns, self._weights, rows, out, *part), self.n)
        return gradient

    def loss(self, Z: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum P_{ij} \log(1 + s_{ij})`, a float64 scalar, for Z (n, 2) float32."""
        sums = torch.empty(self.n, dtype=torch.float64)
        kernel, rows, out = cpu.load(MODULE).loss, _as_words(Z), sums.numpy()
        each_range(lambda *part: kernel(self._indptr, self._columns, self._weights, rows, out, *part), self.n)
        return sums.sum()


def _as_words(Z: torch.Tensor) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.uint64]]:
    """Each row of two float32 as one number of 64 bits."""
    return Z.contiguous().numpy().view(numpy.uint64).reshape(-1)
