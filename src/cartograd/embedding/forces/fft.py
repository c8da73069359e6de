r"""t-SNE's repulsion in one, two or three dimensions by fast Fourier transform: time O(n + grid).

The sums :math:`\phi(x) = \sum_j w(x - z_j)`, :math:`w(r) = 1 / (1 + |r|^2)`, are a convolution, and the repulsion is
their gradient: :math:`\sum_j w(x - z_j)^2 (x - z_j) = -\frac12 \nabla \phi(x)`. One charge for each point is spread
over a regular grid and convolved once with w; potential and slope are read off. (Linderman et al., 2019, convolve
each coordinate with :math:`w^2` besides, and interpolate by polynomials in boxes.) With splines of order 5 and nodes
0.2 apart the error of the repulsion stays below 1e-3 of its norm for points spread evenly, in clusters, close together
and far apart. Large maps in the plane go through `cartograd.embedding.forces.compiled`.
"""

from __future__ import annotations

import logging
import math
from typing import NamedTuple

import torch

from cartograd.distributed import Part
from cartograd.embedding.forces import compiled, exact
from cartograd.embedding.forces.grid import Grid, potential
from cartograd.embedding.forces.kernel import Kernel, padded
from cartograd.embedding.forces.splines import ORDER
from cartograd.embedding.kernel_rows import served
from cartograd.kernels import cpu

log = logging.getLogger("cartograd.embedding")

SPACINGS = (0.2, 0.25)
"""Distances between nodes that keep the error below 1e-3."""


class Rule(NamedTuple):
    """The order of the splines, and the distances between nodes that go with it, the best first."""

    order: int = ORDER
    spacings: tuple[float, ...] = SPACINGS


PLAIN, COMPILED = Rule(), Rule(compiled.ORDER, (compiled.SPACING,))

COARSE = (1 / 3, 0.5)
"""Distances between nodes where even those would make the grid too large; errors of 0.003 and 0.02."""

COARSE_ROWS = 30_000
"""From so many points on a coarser grid is better than hours of exact sums."""

FEW = 5_000
"""Below so many points transforms are in double precision, for they may be far from each other and their forces weak;
with more those of large grids are in single precision."""

SPARSE = 20
"""With more nodes than this for each point, what a point adds to its own potential through the grid is taken away
exactly; with fewer, 1 is taken away, which is right to 1e-4 and little beside the potential of the others."""

CELLS, FINEST = {1: 50, 2: 50, 3: 25}, 0.0125
"""A small map has at least so many nodes a side, unless they are closer than this already."""

LARGEST = {1: 1 << 22, 2: 1 << 25, 3: 1 << 26}
"""Nodes of the padded grid: below half a gigabyte in all."""


def spacing_for(extents: list[float], n: int, rule: Rule = PLAIN) -> float | None:
    """The distance between nodes for a map of these extents and n points; None where the grid would be too large."""
    cells, largest, extent = CELLS[len(extents)], LARGEST[len(extents)], max(extents)
    spacing = best = rule.spacings[0]
    while spacing > max(extent / cells, FINEST):
        spacing /= 2
    if spacing < best:
        return spacing
    for spacing in rule.spacings + (COARSE if n >= COARSE_ROWS else ()):
        sides = [extent / spacing + rule.order + 2 for extent in extents]
        if max(sides) < largest and math.prod(padded(math.ceil(side)) for side in sides) <= largest:
            return spacing
    return None


def _box(Z: torch.Tensor, beyond: float) -> tuple[torch.Tensor, list[float]]:
    """The lowest corner and the extents of a map with, on each side, a part of its extent and a unit beyond."""
    low, high = Z.amin(0).to(torch.float64), Z.amax(0).to(torch.float64)
    extra = (high - low) * beyond + (1.0 if beyond else 0.0)
    return low - extra, (high - low + 2 * extra).tolist()


def _grid(low: torch.Tensor, extents: list[float], n: int, rule: Rule = PLAIN) -> Grid | None:
    spacing = spacing_for(extents, n, rule)
    return None if spacing is None else Grid.over(low, extents, spacing, rule.order)


def by_kernels(Z: torch.Tensor) -> bool:
    """Return whether the forces of a map are computed by compiled kernels."""
    return served(len(Z), Z.shape[1], Z.dtype, Z.device) and cpu.usable()


class FFTRepulsion:
    """t-SNE's repulsion for one map after another; the spectrum of the kernel is kept while the grid stays the same.

    Parameters
    ----------
    part : Part, default=None
        The rows of one process: it puts their charges on the grid, adds those of the others, and reads off their sums.
    """

    def __init__(self, part: Part | None = None) -> None:
        self.part = part
        self._kernel: Kernel | None = None
        self._compiled: compiled.CompiledSums | None = None
        self._told = False

    def sums(self, Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        r""":math:`\sum_{j \ne i} w_{ij}`, (n,) float64, and :math:`\sum_j w_{ij}^2 (z_i - z_j)`, (n, c) like Z.

        Where the map is so wide that the grid would not fit (`LARGEST`), they are computed exactly, and the log says
        so. Of a map that is not finite they are not numbers.
        """
        if len(Z) == 1 and self.part is None:  # alone: what the grid's rounding leaves must not be taken for a force
            return Z.new_zeros(1, dtype=torch.float64), torch.zeros_like(Z)
        low, extents = _box(Z, 0.0)
        if not all(map(math.isfinite, extents)):
            own = Z if self.part is None else Z[self.part.own]
            return own.new_full((len(own),), torch.nan, dtype=torch.float64), torch.full_like(own, torch.nan)
        rule = COMPILED if by_kernels(Z) and Z.shape[1] == 2 else PLAIN
        grid = _grid(low, extents, len(Z), rule)
        if grid is None:
            self._tell(Z)
            first = 0 if self.part is None else self.part.own.start
            return exact.student_sums(Z if self.part is None else Z[self.part.own], Z, own=True, first=first)
        kernel = self._kernel_for(grid, len(Z))
        if rule is COMPILED:
            return self._compiled_for(kernel)(grid, Z, self.part)
        sparse = math.prod(grid.nodes) > SPARSE * len(Z)
        own = Z if self.part is None else Z[self.part.own]
        charges = grid.charges(own)
        if self.part is not None:
            self.part.ranks.add_up(charges, "charges on the grid")
        found = grid.read(kernel.convolve(charges), own, kernel.near if sparse else None)
        return found[0] if sparse else found[0] - 1, (found[1:].T * -0.5).to(Z.dtype)

    def __call__(self, Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        r"""The gradient of :math:`\log \sum_{i \ne j} w_{ij}`, (n, c), and that sum, a float64 scalar.

        The same as `cartograd.embedding.forces.exact.tsne_repulsion`.

        Parameters
        ----------
        Z : torch.Tensor
            (n, c) the map, of 1, 2 or 3 dimensions.
        """
        return exact.normalised(*self.sums(Z), len(Z), self.part)

    def field(self, points: torch.Tensor) -> Field:
        """The potential of fixed points, to be read off at any others."""
        low, extents = _box(points, 0.1)
        grid = _grid(low, extents, len(points))
        if grid is None:
            self._tell(points)
            return Field(points, None, None)
        return Field(points, grid, potential(grid, points, self._kernel_for(grid, len(points))))

    def _kernel_for(self, grid: Grid, n: int) -> Kernel:
        single = n >= FEW and grid.spacing >= SPACINGS[0]
        key = (grid.nodes, grid.spacing, grid.low.device, torch.float32 if single else torch.float64, grid.order)
        kept = self._kernel
        if kept is None or (kept.nodes, kept.spacing, kept.device, kept.dtype, kept.order) != key:
            kept = self._kernel = Kernel(*key)
        return kept

    def _compiled_for(self, kernel: Kernel) -> compiled.CompiledSums:
        if self._compiled is None or self._compiled.kernel is not kernel:
            self._compiled = compiled.CompiledSums(kernel)
        return self._compiled

    def _tell(self, Z: torch.Tensor) -> None:
        if not self._told:
            extents = ", ".join(f"{value:.4g}" for value in (Z.amax(0) - Z.amin(0)).tolist())
            log.warning("a map of extent %s is too wide for the Fourier transform; repulsion is exact", extents)
            self._told = True


class Field:
    """The potential of fixed points.

    Parameters
    ----------
    points : torch.Tensor
        (n, c).
    grid : Grid or None
        Over the points and somewhat beyond; None where it would be too large: all is then exact.
    coefficients : torch.Tensor or None
        Of their potential, on the nodes.
    """

    def __init__(self, points: torch.Tensor, grid: Grid | None, coefficients: torch.Tensor | None) -> None:
        self.points, self.grid, self.coefficients = points, grid, coefficients

    def sums(self, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        r""":math:`\sum_j w_{ij}`, (m,), and :math:`\sum_j w_{ij}^2 (x_i - y_j)`, (m, c), both like the queries.

        Each row depends on itself alone. Queries outside the grid are summed exactly.
        """
        if self.grid is None or self.coefficients is None:
            return exact.student_sums(queries, self.points)
        inside = self.grid.holds(queries)
        sums, pulls = queries.new_empty(len(queries)), torch.empty_like(queries)
        if bool(inside.any()):
            found = self.grid.read(self.coefficients, queries[inside], None).to(queries.dtype)
            sums[inside], pulls[inside] = found[0], found[1:].T * -0.5
        if not bool(inside.all()):
            sums[~inside], pulls[~inside] = exact.student_sums(queries[~inside], self.points)
        return sums, pulls

    def repulsion_at(self, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        r"""For each query the gradient of :math:`\log \sum_j w_{ij}`, (m, c), and that sum, (m,); the points stay.

        The same as `cartograd.embedding.forces.exact.tsne_repulsion_at`.
        """
        sums, pulls = self.sums(queries)
        return exact.scaled(pulls, -2.0, sums), sums
