"""t-SNE's forces in the plane by kernels for the GPU: attraction along edges, repulsion from all or by a grid.

The repulsion is that of `cartograd.embedding.forces.fft`, on square grids of few different sizes: a plan of the
transform takes far longer to make than a transform.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cartograd.embedding.forces.exact import tsne_repulsion
from cartograd.embedding.forces.kernel import MARGIN, Kernel
from cartograd.embedding.forces.splines import ORDER
from cartograd.kernels import gpu
from cartograd.neighbors import Graph

EXACT_ROWS = 16_000
"""Up to so many points all pairs take no longer than a grid."""
LENGTHS = tuple(base << power for power in range(3, 9) for base in (16, 24))
"""Lengths of transforms."""
SPACING, FINEST, NODES = 0.2, 0.0125, 50
"""The distance between nodes, by which the error stays below 1e-3; a small map has nodes closer than that, down to the
finest, until there are so many a side."""
SPARSE = 120
"""With more nodes than this for each point all pairs are summed."""


def served(Z: torch.Tensor) -> bool:
    """Whether the kernels take this map."""
    return Z.dtype == torch.float32 and Z.dim() == 2 and Z.shape[1] == 2 and Z.is_cuda and gpu.served(Z)


class DeviceEdges:
    """Attraction along the edges of a graph, as `cartograd.embedding.forces.compiled_edges.CompiledEdges`.

    Parameters
    ----------
    graph : Graph
        Symmetric, on the GPU.
    """

    def __init__(self, graph: Graph) -> None:
        self.edges = gpu.load("edges").edges_of(graph.indptr, graph.indices, graph.weights)

    def attraction(self, Z: torch.Tensor) -> torch.Tensor:
        r"""The gradient of :math:`\sum P_{ij} \log(1 + s_{ij})`, (n, 2)."""
        gradient: torch.Tensor = gpu.load("edges").pulls(Z, self.edges, 4.0, 1.0, 1)
        return gradient

    def loss(self, Z: torch.Tensor) -> torch.Tensor:
        r""":math:`\sum P_{ij} \log(1 + s_{ij})`, a float64 scalar."""
        total: torch.Tensor = gpu.load("edges").totals(Z, self.edges, 1.0, True)
        return total


Repulsion = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def repulsion(n: int, method: str) -> Repulsion:
    """The way to compute the repulsion of n points: "exact", "fft", or for "auto" the faster of both."""
    by_grid = n > EXACT_ROWS if method == "auto" else method == "fft"
    return GridRepulsion() if by_grid else tsne_repulsion


class GridRepulsion:
    """As `cartograd.embedding.forces.fft.FFTRepulsion`, for one map after another."""

    def __init__(self) -> None:
        self._convolutions: dict[tuple[int, float], _Convolution] = {}

    def __call__(self, Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradient of the logarithm of the sum over all pairs, (n, 2), and that sum."""
        low, high = Z.aminmax(dim=0)
        chosen = nodes_for(float((high - low).max()))
        if chosen is None or chosen[1] ** 2 > SPARSE * len(Z):
            return tsne_repulsion(Z)
        found = self.potential(Z, low.to(torch.float64), *chosen)
        total = (found[0] - 1).sum()
        return (found[1:] * (2.0 / total)).T.to(Z.dtype).contiguous(), total

    def potential(self, Z: torch.Tensor, low: torch.Tensor, spacing: float, side: int) -> torch.Tensor:
        """The potential of the points at themselves and its derivatives, (3, n) float64, by this grid from `low` on."""
        kernels = gpu.load("grid")
        dtype = torch.float32 if spacing >= SPACING else torch.float64
        if (side, spacing) not in self._convolutions:
            self._convolutions[side, spacing] = _Convolution(Kernel((side, side), spacing, Z.device, dtype))
        nodes = self._convolutions[side, spacing](kernels.charges(Z, low, spacing, side, dtype))
        found: torch.Tensor = kernels.read(nodes, Z, low, spacing)
        return found


def nodes_for(extent: float) -> tuple[float, int] | None:
    """Their distance, and how many a side for a map of this extent; None where no transform has room for them."""
    spacing = SPACING
    while spacing > max(extent / NODES, FINEST):
        spacing /= 2
    needed = 2 * (extent / spacing + ORDER + 3) + MARGIN
    length = next((length for length in LENGTHS if length >= needed), None)  # none for NaN, too
    return None if length is None else (spacing, (length - MARGIN) // 2)


class _Convolution:
    """Convolution with the kernel of t-SNE on a square grid."""

    def __init__(self, kernel: Kernel) -> None:
        self.lengths, self.side = kernel.lengths, kernel.nodes[0]
        index = torch.arange(self.lengths[0], device=kernel.device)
        mirror = torch.minimum(index, len(index) - index)
        self.spectrum = kernel.spectrum.index_select(1, mirror).T.contiguous()

    def __call__(self, charges: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft2(charges, s=self.lengths)
        torch.view_as_real(waves).mul_(self.spectrum[..., None])
        return torch.fft.irfft2(waves, s=self.lengths)[: self.side, : self.side]
