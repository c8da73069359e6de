r"""Convolution on a regular grid with :math:`K(r) = 1 / (1 + |r|^2)`, by fast Fourier transform.

Points are spread over the nodes by B-splines, and potentials read off by the same splines. The spectrum of the kernel
is divided by the square of the spline's symbol, so that between two nodes the composition of all three is K itself, and
between two points anywhere the tensor-product spline through those values (as in smooth particle-mesh Ewald sums,
Essmann et al., 1995). The kernel is even in every dimension: one corner of its table and of its spectrum is kept.
"""

from __future__ import annotations

import math

import torch

from cartograd.core.lazy import lazy_attribute
from cartograd.embedding.forces.splines import ORDER, symbol
from cartograd.neighbors.workers import spread

MARGIN = 32
"""Nodes kept free between a grid and its periodic images: dividing by the symbol smears the kink half way between the
images over some nodes, by a factor of 0.36 for each, or 0.49 with splines of order 7."""

BLOCK, GPU_BLOCK = 1 << 15, 1 << 26
"""Complex numbers transformed at a time."""

GOOD = (16, 18, 20, 21, 24, 25, 27, 28, 30)


def good_length(needed: int) -> int:
    """The least even length of at least so many nodes without large prime factors."""
    scale = 2
    while True:
        for base in GOOD:
            if base * scale >= needed:
                return base * scale
        scale *= 2


def padded(nodes: int) -> int:
    """The length of the transform for a grid of so many nodes."""
    return good_length(2 * nodes + MARGIN)


class Kernel:
    """The spectrum of the kernel for one grid.

    Parameters
    ----------
    nodes : tuple of int
        The grid's nodes in each of its 1, 2 or 3 dimensions.
    spacing : float
        The distance between nodes.
    device : torch.device
        Where the grid is.
    dtype : torch.dtype, default=torch.float64
        In which transforms are computed.
    order : int, default=5
        Of the splines.
    """

    def __init__(
        self,
        nodes: tuple[int, ...],
        spacing: float,
        device: torch.device,
        dtype: torch.dtype = torch.float64,
        order: int = ORDER,
    ) -> None:
        self.nodes, self.spacing, self.device, self.dtype, self.order = nodes, spacing, device, dtype, order
        self.lengths = tuple(padded(count) for count in nodes)
        self.spectrum = self._spectrum()

    def _spectrum(self) -> torch.Tensor:
        """One corner of it, the last dimension first: (length/2 + 1) in each dimension."""
        counts = [torch.arange(length // 2 + 1, device=self.device).to(torch.float64) for length in self.lengths]
        squared = torch.ones((), dtype=torch.float64, device=self.device)
        for count in counts:
            squared = squared[..., None] + (count * self.spacing).square()
        table = squared.reciprocal_()
        for dimension, length in enumerate(self.lengths):
            whole = table.movedim(dimension, -1)
            whole = torch.cat([whole, whole[..., 1 : length - length // 2].flip(-1)], -1)
            waves = torch.fft.rfft(whole).real / symbol(counts[dimension] * (2 * math.pi / length), self.order).square()
            table = waves.movedim(-1, dimension)
        return table.movedim(-1, 0).contiguous().to(self.dtype)

    @lazy_attribute
    def near(self) -> torch.Tensor:
        """The kernel's coefficients between the nodes of one point, 0 to order - 1 apart in each dimension, float64."""
        table = self.spectrum.movedim(0, -1).to(torch.float64)
        for dimension, length in enumerate(self.lengths):
            angles = torch.arange(length // 2 + 1, dtype=torch.float64, device=self.device) * (2 * math.pi / length)
            share = torch.full_like(angles, 2 / length)  # every frequency but the first and the last comes twice
            share[[0, -1]] = 1 / length
            waves = torch.cos(angles[:, None] * torch.arange(self.order, device=self.device)) * share[:, None]
            table = (table.movedim(dimension, -1) @ waves).movedim(-1, dimension)
        return table

    def convolve(self, charges: torch.Tensor) -> torch.Tensor:
        """The coefficients of the potential of charges on the nodes; both (nodes) float64.

        Each piece of the work is a block of lines: forward along the last dimension; then for each of its frequencies
        forward along the others, times the spectrum, and back; then back along the last. Lines of zeros are never
        transformed, and no array is larger than half of the padded grid.
        """
        last = self.nodes[-1]
        lines = charges.reshape(-1, last).to(self.dtype)
        waves = self._forward(lines)
        if len(self.nodes) == 1:
            waves *= self.spectrum[:, None]
        else:
            self._others(waves)
        return self._backward(waves).view(self.nodes)

    def _blocks(self, count: int, width: int) -> list[slice]:
        most = BLOCK if self.device.type == "cpu" else GPU_BLOCK
        step = max(1, most // width)
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]

    def _forward(self, lines: torch.Tensor) -> torch.Tensor:
        """(frequencies, lines) of (lines, nodes)."""
        length = self.lengths[-1]
        waves = torch.empty(length // 2 + 1, len(lines), dtype=self.dtype.to_complex(), device=self.device)

        def piece(rows: slice) -> None:
            waves[:, rows] = torch.fft.rfft(lines[rows], n=length).T

        for _ in spread(piece, self._blocks(len(lines), length)):
            pass
        return waves

    def _others(self, waves: torch.Tensor) -> None:
        """Convolve along all dimensions but the last, in place."""
        nodes, lengths = self.nodes[:-1], self.lengths[:-1]
        mirrors = [torch.arange(length, device=self.device) for length in lengths]
        mirrors = [torch.minimum(index, len(index) - index) for index in mirrors]

        def piece(rows: slice) -> None:
            field, spectrum = waves[rows].view(-1, *nodes), self.spectrum[rows]
            for dimension, length in enumerate(lengths, 1):
                field = torch.fft.fft(field, n=length, dim=dimension)
                spectrum = spectrum.index_select(dimension, mirrors[dimension - 1])
            field *= spectrum
            for dimension, count in enumerate(nodes, 1):
                field = torch.fft.ifft(field, dim=dimension).narrow(dimension, 0, count)
            waves[rows] = field.reshape(len(field), -1)

        for _ in spread(piece, self._blocks(len(waves), math.prod(lengths))):
            pass

    def _backward(self, waves: torch.Tensor) -> torch.Tensor:
        """(lines, nodes) of (frequencies, lines)."""
        length, last = self.lengths[-1], self.nodes[-1]
        lines = torch.empty(waves.shape[1], last, dtype=torch.float64, device=self.device)

        def piece(rows: slice) -> None:
            lines[rows] = torch.fft.irfft(waves[:, rows].T.contiguous(), n=length)[:, :last]

        for _ in spread(piece, self._blocks(waves.shape[1], length)):
            pass
        return lines
