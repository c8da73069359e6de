"""A grid laid over a map: points spread over its nodes, and potentials read off at points.

The order in which weights are added at a node is that of the points, or, on a GPU, does not matter because they are
added as whole numbers. What is read off at a point depends on that point and the potential alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from cartograd.embedding.forces.kernel import MARGIN, Kernel, padded
from cartograd.embedding.forces.splines import ORDER, weights
from cartograd.neighbors.workers import spread

PIECE, GPU_PIECE = 1 << 17, 1 << 24
"""Weights (points times nodes for each) computed at a time."""

WAVE = 16
"""Pieces whose weights wait at a time to be added to the grid."""

LANES = 64


@dataclass(frozen=True)
class Grid:
    """Regular nodes that cover a box.

    Parameters
    ----------
    low : torch.Tensor
        (c,) float64, the box's lowest corner.
    nodes : tuple of int
        Nodes in each of the c dimensions.
    spacing : float
        The distance between nodes.
    order : int, default=5
        Nodes for each point and dimension.
    """

    low: torch.Tensor
    nodes: tuple[int, ...]
    spacing: float
    order: int = ORDER

    @classmethod
    def over(cls, low: torch.Tensor, extents: list[float], spacing: float, order: int = ORDER) -> Grid:
        """The grid over a box; as many nodes as its transforms have room for, so that few grids differ."""
        needed = (math.floor(extent / spacing) + order + 2 for extent in extents)
        return cls(low.to(torch.float64), tuple((padded(count) - MARGIN) // 2 for count in needed), spacing, order)

    def holds(self, points: torch.Tensor) -> torch.Tensor:
        """Which points have all their nodes in the grid, (m,) bool."""
        high = torch.tensor(self.nodes, dtype=torch.float64, device=points.device) - self.order
        place = (points.to(torch.float64) - self.low) / self.spacing
        return ((place >= 0) & (place < high)).all(1)

    def charges(self, points: torch.Tensor) -> torch.Tensor:
        """Every point's unit of charge spread over the nodes around it, (nodes) float64."""
        total = math.prod(self.nodes)
        if points.device.type == "cpu":
            charges = torch.zeros(total, dtype=torch.float64)
            for index, values in self._spread(points):
                charges.scatter_add_(0, index, values)
            return charges.view(self.nodes)
        unit = 2.0 ** (62 - len(points).bit_length())
        counted = torch.zeros(total, dtype=torch.int64, device=points.device)
        for index, values in self._spread(points):
            counted.scatter_add_(0, index, (values * unit).round().to(torch.int64))
        return (counted.to(torch.float64) / unit).view(self.nodes)

    def _spread(self, points: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Indices and weights of the nodes of all points, piece by piece, in order."""

        def piece(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
            index, shares, _ = self._nodes(points[rows])
            product = shares[0]
            for share in shares[1:]:
                product = product[..., None, :] * share
            return index.reshape(-1), product.reshape(-1)

        pieces = self.pieces(len(points), points.device)
        for first in range(0, len(pieces), WAVE):
            yield from spread(piece, pieces[first : first + WAVE])

    def pieces(self, count: int, device: torch.device) -> list[slice]:
        """Points cut by their number alone."""
        most = PIECE if device.type == "cpu" else GPU_PIECE
        step = max(1, most // self.order ** len(self.nodes) // LANES) * LANES
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]

    def _nodes(self, points: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """The nodes of each point, (order, ..., order, m) int64, and in each dimension their weights and slopes."""
        place = ((points.T.to(torch.float64) - self.low[:, None]) / self.spacing).add_(0.5)
        cell = place.floor()
        both = [weights(part, self.order) for part in place - cell]
        steps = torch.arange(self.order, device=points.device)[:, None]
        index = torch.zeros((), dtype=torch.int64, device=points.device)
        for first, count in zip(cell.to(torch.int64), self.nodes, strict=True):
            index = index[..., None, :] * count + (first + steps) if index.dim() else first + steps
        return index, [values for values, _ in both], [slopes for _, slopes in both]

    def read(self, potential: torch.Tensor, points: torch.Tensor, near: torch.Tensor | None) -> torch.Tensor:
        """The potential at points and its gradient, (1 + c, m) float64.

        Parameters
        ----------
        potential : torch.Tensor
            (nodes) its coefficients.
        points : torch.Tensor
            (m, c), all held by the grid.
        near : torch.Tensor or None
            Coefficients of the kernel between near nodes, for points that are the charges: what each contributes to
            its own potential is then left out. None to leave all in.
        """
        flat = potential.reshape(-1)
        result = torch.empty(1 + len(self.nodes), len(points), dtype=torch.float64, device=points.device)

        def piece(rows: slice) -> None:
            there = points[rows]
            count = len(there)
            there = torch.cat([there, there[-1:].expand(-count % LANES, -1)])
            index, shares, slopes = self._nodes(there)
            found = _contracted(flat.index_select(0, index.reshape(-1)).view(index.shape), shares, slopes)
            if near is not None:
                own = [overlaps(share, slope) for share, slope in zip(shares, slopes, strict=True)]
                found -= _contracted(near[..., None], [values for values, _ in own], [rises for _, rises in own])
            result[:, rows] = found[:, :count]

        for _ in spread(piece, self.pieces(len(points), points.device)):
            pass
        result[1:] /= self.spacing
        return result


def _contracted(values: torch.Tensor, shares: list[torch.Tensor], slopes: list[torch.Tensor]) -> torch.Tensor:
    r""":math:`\sum_k v_k \prod_d w_{d k_d}` and, for each dimension, the same with its slopes; (1 + c, m)."""
    found = [values]
    for share, slope in zip(reversed(shares), reversed(slopes), strict=True):
        found = [_along(found[0], share), _along(found[0], slope), *(_along(part, share) for part in found[1:])]
    return torch.stack(found)


def _along(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The sum over the dimension before the points', each entry times its factor."""
    total = values[..., 0, :] * factors[0]
    for k in range(1, len(factors)):
        total.addcmul_(values[..., k, :], factors[k])
    return total


def overlaps(shares: torch.Tensor, slopes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r""":math:`\sum_{|a - b| = k} w_a w_b` for k = 0, 1, ..., and the same with the slopes of w_a, (order, m) each."""
    values, rises = torch.empty_like(shares), torch.empty_like(shares)
    values[0], rises[0] = shares.square().sum(0), (shares * slopes).sum(0)
    for k in range(1, len(shares)):
        values[k] = 2 * (shares[:-k] * shares[k:]).sum(0)
        rises[k] = (slopes[:-k] * shares[k:] + shares[:-k] * slopes[k:]).sum(0)
    return values, rises


def potential(grid: Grid, points: torch.Tensor, kernel: Kernel) -> torch.Tensor:
    """The coefficients of the points' potential, (nodes)."""
    return kernel.convolve(grid.charges(points))
