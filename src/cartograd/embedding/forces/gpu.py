"""t-SNE's forces in the plane by kernels for the GPU: attraction along edges, repulsion from all or by a grid.

The repulsion is that of `cartograd.embedding.forces.fft`, computed on square grids of few different sizes: a plan of the
transform takes far longer to make than a transform.
"""

from __future__ import annotations

import functools

import torch

from cartograd.embedding.forces.exact import scaled
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
SPARSE = 20
"""With more nodes than this for each point the grid's own share of a point's potential is no longer 1 to 1e-4."""


def served(Z: torch.Tensor) -> bool:
    """Whether the kernels take this map."""
    return Z.dtype == torch.float32 and Z.dim() == 2 and Z.shape[1] == 2 and Z.is_cuda and gpu.served(Z)


class EdgeForces:
    """Attraction along the edges of a graph.

    Parameters
    ----------
    graph : Graph
        Symmetric, on the GPU.
    """

    def __init__(self, graph: Graph) -> None:
        self.edges = gpu.load("edges").edges_of(graph.indptr, graph.indices, graph.weights)

    def pull(self, Z: torch.Tensor, a: float, b: float, power: int = 1) -> torch.Tensor:
        r""":math:`4 \sum_j w_{ij} a / (b + s_{ij})^p (z_i - z_j)`: the gradient of a loss with this derivative by s."""
        found: torch.Tensor = gpu.load("edges").pulls(Z, self.edges, 4 * a, b, power)
        return found


def exact_repulsion(Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `cartograd.embedding.forces.exact.tsne_repulsion`."""
    sums, pulls = gpu.load("repulsion").student_sums(Z, Z, own=True)
    total = sums.to(torch.float64).sum()
    return scaled(pulls, -4.0, total), total


class GridRepulsion:
    """As `cartograd.embedding.forces.fft.FFTRepulsion`, for one map after another."""

    def __call__(self, Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradient of the logarithm of the sum over all pairs, (n, 2), and that sum."""
        low, high = Z.aminmax(dim=0)
        chosen = _nodes(float((high - low).max()))
        if chosen is None or chosen[1] ** 2 > SPARSE * len(Z):
            return exact_repulsion(Z)
        (spacing, side), kernels, low = chosen, gpu.load("grid"), low.to(torch.float64)
        dtype = torch.float32 if spacing >= SPACING else torch.float64
        convolution = _convolution(side, spacing, Z.device, dtype)
        potential = convolution(kernels.charges(Z, low, spacing, side, dtype))
        found = kernels.read(potential, Z, low, spacing)
        total = (found[0] - 1).sum()
        return (found[1:] * (2.0 / total)).T.to(Z.dtype).contiguous(), total


def _nodes(extent: float) -> tuple[float, int] | None:
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


@functools.lru_cache(maxsize=32)
def _convolution(side: int, spacing: float, device: torch.device, dtype: torch.dtype) -> _Convolution:
    return _Convolution(Kernel((side, side), spacing, device, dtype))
