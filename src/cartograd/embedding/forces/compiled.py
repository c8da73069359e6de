"""t-SNE's repulsion through a grid by compiled kernels: large maps in the plane, float32, on a CPU.

The same sums as those of `cartograd.embedding.forces.grid`, which is the oracle. Splines of order 7 cost these
kernels little more than those of order 5, and let nodes be 0.25 apart with less of an error: a third fewer nodes to be
transformed, and it is the transforms that take the time.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import torch

from cartograd.distributed import Part
from cartograd.embedding.forces.grid import Grid, overlaps
from cartograd.embedding.forces.kernel import Kernel
from cartograd.embedding.forces.splines import polynomials, weights
from cartograd.kernels import cpu
from cartograd.neighbors.workers import spread

MODULE = "fft_grid"
ORDER, LANES = 7, 8
SPACING = 0.25
"""Keeps the error of the repulsion below 2e-4 of its norm for maps like those of t-SNE, and 1e-3 for worse ones."""

POINTS = 1 << 14
"""In a piece of work: enough for the handing over not to matter."""

NUMBERS, COLUMNS = 1 << 17, 64
"""In a block of rows, and columns in a block, that are transformed at a time."""


def _table(coefficients: torch.Tensor, dtype: torch.dtype) -> Any:
    """Coefficients (order, order) of polynomials as the kernels want them: a row for each power, filled up with 0."""
    table = torch.zeros(ORDER, LANES, dtype=dtype)
    table[:, :ORDER] = coefficients.T
    return table.numpy()


def _bands(starts: Any) -> list[tuple[int, int]]:
    """Rows of the grid cut where another `POINTS` points are complete."""
    rows, n = len(starts) - 1, int(starts[-1])
    cuts = numpy.searchsorted(starts, numpy.arange(POINTS, n, POINTS))
    edges = sorted({0, *cuts.tolist(), rows})
    return list(itertools.pairwise(edges))


def own_wave(near: torch.Tensor) -> torch.Tensor:
    r"""What a point at (s, t) in its cell adds to its own potential, as a wave: a, b and c, (3,) float64.

    .. math:: a + b (\cos 2 \pi s + \cos 2 \pi t) + c \cos 2 \pi s \cos 2 \pi t

    through its values at (0, 0), (0, 1/2) and (1/2, 1/2). Faster waves are smaller by the order of the splines.

    Parameters
    ----------
    near : torch.Tensor
        `Kernel.near` of a kernel in the plane.
    """
    shares, slopes = weights(torch.tensor([0.0, 0.5], dtype=torch.float64), len(near))
    both = overlaps(shares, slopes)[0]
    (corner, side), (_, middle) = (both.T @ near @ both).tolist()
    mean = (corner + middle) / 2
    return torch.tensor([(mean + side) / 2, (corner - middle) / 4, (mean - side) / 2], dtype=torch.float64)


class CompiledSums:
    """Bound to a kernel: tables, and memory for its grid.

    Parameters
    ----------
    kernel : Kernel
        Of order 7, in the plane, on the CPU.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        coefficients = polynomials(kernel.device, ORDER)
        self._values, self._slopes = (_table(part, kernel.dtype) for part in coefficients.split(ORDER))
        self._own = own_wave(kernel.near).numpy()
        self._single = kernel.dtype == torch.float32
        width = kernel.lengths[1] if self._single else kernel.nodes[1]  # the padding is there from the start
        self._charges = torch.empty(kernel.nodes[0], width, dtype=kernel.dtype)
        self._waves = torch.empty(kernel.nodes[0], kernel.lengths[1] // 2 + 1, dtype=torch.complex64)

    def __call__(self, grid: Grid, Z: torch.Tensor, part: Part | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        r""":math:`\sum_{j \ne i} w_{ij}`, (n,) float64, and :math:`\sum_j w_{ij}^2 (z_i - z_j)`, (n, 2) float32.

        Parameters
        ----------
        grid : Grid
            Over the points, that of the kernel.
        Z : torch.Tensor
            (n, 2) float32.
        part : Part, default=None
            The rows of one process, where the sums of those are wanted.
        """
        kernels = cpu.load(MODULE)
        Z = Z if part is None else Z[part.own]
        n, charges = len(Z), self._charges
        place = (Z.contiguous().numpy(), grid.low.numpy(), 1 / grid.spacing)
        ids, starts = numpy.empty(n, numpy.int32), numpy.empty(grid.nodes[0] + 1, numpy.int64)
        kernels.arrange(*place, ids, starts, numpy.empty(n, numpy.int32))
        _all(lambda band: kernels.spread(*place, self._values, ids, starts, charges.numpy(), *band), _bands(starts))
        if part is not None:
            part.ranks.add_up(charges, "charges on the grid")
        potential = self._convolved() if self._single else self.kernel.convolve(charges)
        sums, pulls = torch.empty(n, dtype=torch.float64), torch.empty(n, 2)
        found = (potential.numpy(), self._own, ids, sums.numpy(), pulls.numpy())
        ranges = [(start, min(start + POINTS, n)) for start in range(0, n, POINTS)]
        _all(lambda part: kernels.gather(*place, self._values, self._slopes, *found, *part), ranges)
        return sums, pulls

    def _convolved(self) -> torch.Tensor:
        """`Kernel.convolve` in single precision: charges become their potential, in place."""
        kernels, charges, waves = cpu.load(MODULE), self._charges, self._waves
        across, length = self.kernel.lengths
        step = max(1, NUMBERS // length)
        blocks = [slice(start, start + step) for start in range(0, len(charges), step)]
        plain, spectrum = waves.numpy(), self.kernel.spectrum.numpy()

        def columns(first: int) -> None:
            lines = torch.empty(min(COLUMNS, waves.shape[1] - first), across, dtype=torch.complex64)
            kernels.columns_out(plain, lines.numpy(), first)
            lines = torch.fft.fft(lines)
            kernels.weigh(torch.view_as_real(lines).numpy(), spectrum, first)
            kernels.columns_in(plain, torch.fft.ifft(lines).numpy(), first)

        _all(lambda rows: torch.fft.rfft(charges[rows], out=waves[rows]), blocks)
        _all(columns, range(0, waves.shape[1], COLUMNS))
        _all(lambda rows: torch.fft.irfft(waves[rows], n=length, out=charges[rows]), blocks)
        return charges


def _all(function: Any, items: Any) -> None:
    for _ in spread(function, items):
        pass
