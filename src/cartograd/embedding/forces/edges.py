r"""Attraction along the edges of a sparse graph: every row gathers its own, so nothing is written twice.

Rows of like degree are put together and filled up to the longest of them with edges of weight 0 that lead to the row
itself. A block of rows is then a matrix: its differences, weights and sums are vector operations, the sums run within
rows, and their order depends on the graph alone. Of 1.1 million edges in float32 on one thread, each took 4.5 ns this
way, 16 by `torch.segment_reduce` over the edges, 19 by differences of cumulative sums and 33 by `index_add_`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.neighbors import Graph
from cartograd.neighbors.workers import spread

BLOCK, GPU_BLOCK = 1 << 16, 1 << 24
"""Edges in a block, filling included."""

FILLED = 0.75
"""The least degree in a block, as a part of the largest."""

LANES = 32

Slope = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Block:
    """Rows of like degree.

    Parameters
    ----------
    rows : torch.Tensor
        (r,) int64.
    columns : torch.Tensor
        (r, k) int32 or int64, where each edge leads.
    weights : torch.Tensor
        (r, k), 0 for edges that are there only to fill up.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    weights: torch.Tensor

    def pair(self, own: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A value of each row, (r, 1), and of the far end of each edge, (r, k), from values of all rows and points."""
        there = other.index_select(0, self.columns.reshape(-1)).view(self.columns.shape)
        return own.index_select(0, self.rows)[:, None], there

    def apart(self, Z: torch.Tensor, points: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Differences along the edges for each coordinate, and squared distances, (r, k) each, from (c, n) planes."""
        parts = []
        for plane, other in zip(Z, points, strict=True):
            here, there = self.pair(plane, other)
            parts.append(here - there)
        squared = parts[0].square()
        for part in parts[1:]:
            squared.addcmul_(part, part)
        return parts, squared


class EdgeBlocks:
    """A graph made ready for many rounds of gathering.

    Parameters
    ----------
    blocks : list of Block
        All rows that have edges.
    n : int
        How many rows there are in all.
    """

    def __init__(self, blocks: list[Block], n: int) -> None:
        self.blocks, self.n = blocks, n

    @classmethod
    def of(cls, graph: Graph) -> EdgeBlocks:
        """The blocks of a graph; they depend on it alone."""
        degrees = graph.degrees()
        order = torch.argsort(degrees, descending=True, stable=True)
        most = BLOCK if graph.device.type == "cpu" else GPU_BLOCK
        blocks = [_block(graph, order[start:stop], k) for start, stop, k in _cuts(degrees[order], most)]
        return cls(blocks, graph.n)

    @classmethod
    def of_lists(cls, indices: torch.Tensor, weights: torch.Tensor) -> EdgeBlocks:
        """Each row's k neighbours (m, k) among other points, with their weights.

        A row's sums do not depend on the rows beside it: blocks end at whole vector registers.
        """
        m, k = indices.shape
        step = max(1, BLOCK // max(k, 1) // LANES) * LANES
        blocks = []
        for start in range(0, m, step):
            there = torch.arange(start, min(start + step, m), device=indices.device)
            filled = torch.cat([there, there[-1:].expand(-len(there) % LANES)])
            blocks.append(Block(filled, indices[filled].to(_narrow(indices)), weights[filled]))
        return cls(blocks, m)

    def each(self, function: Callable[[Block], torch.Tensor], width: int, like: torch.Tensor) -> torch.Tensor:
        """Rows (r, width) the function gives for every block, put in their places, (n, width); 0 for other rows."""
        result = torch.zeros(self.n, width, dtype=like.dtype, device=like.device)

        def piece(block: Block) -> None:
            result[block.rows] = function(block)

        for _ in spread(piece, self.blocks):
            pass
        return result

    def pull(self, Z: torch.Tensor, slope: Slope, points: torch.Tensor | None = None) -> torch.Tensor:
        r"""The gradient by Z of :math:`\sum_{ij} P_{ij} f(s_{ij})`, :math:`s_{ij} = |z_i - y_j|^2`.

        .. math:: \nabla z_i = 4 \sum_j P_{ij} f'(s_{ij}) (z_i - z_j)

        for a symmetric graph of the rows of Z, and half of that where the points are others, which stay.

        Parameters
        ----------
        Z : torch.Tensor
            (n, c).
        slope : callable
            f', of a matrix of squared distances.
        points : torch.Tensor, default=None
            (l, c) where the edges lead; None for Z itself, and then the graph must be symmetric.
        """
        planes = Z.T.contiguous()
        others = planes if points is None else points.T.contiguous()
        factor = 4 if points is None else 2

        def piece(block: Block) -> torch.Tensor:
            apart, squared = block.apart(planes, others)
            strength = slope(squared) * block.weights
            return torch.stack([part.mul_(strength).sum(1) for part in apart], 1) * factor

        return self.each(piece, Z.shape[1], Z)

    def total(self, Z: torch.Tensor, value: Slope, points: torch.Tensor | None = None) -> torch.Tensor:
        r""":math:`\sum_{ij} P_{ij} f(s_{ij})`, a float64 scalar.

        Parameters
        ----------
        Z : torch.Tensor
            (n, c).
        value : callable
            f, of a matrix of squared distances.
        points : torch.Tensor, default=None
            (l, c) where the edges lead; None for Z itself.
        """
        planes = Z.T.contiguous()
        others = planes if points is None else points.T.contiguous()

        def piece(block: Block) -> torch.Tensor:
            return (value(block.apart(planes, others)[1]) * block.weights).sum(1, keepdim=True)

        return self.each(piece, 1, Z).to(torch.float64).sum()


def tsne_attraction(Z: torch.Tensor, edges: EdgeBlocks, points: torch.Tensor | None = None) -> torch.Tensor:
    r"""The gradient of :math:`\sum P_{ij} \log(1 + s_{ij})`: `EdgeBlocks.pull` with :math:`f' = 1 / (1 + s)`."""
    return edges.pull(Z, lambda squared: squared.add_(1).reciprocal_(), points)


def tsne_attraction_loss(Z: torch.Tensor, edges: EdgeBlocks, points: torch.Tensor | None = None) -> torch.Tensor:
    r""":math:`\sum P_{ij} \log(1 + s_{ij})`, a float64 scalar."""
    return edges.total(Z, torch.log1p, points)


def sne_attraction(Z: torch.Tensor, edges: EdgeBlocks, points: torch.Tensor | None = None) -> torch.Tensor:
    r"""The gradient of :math:`\sum P_{ij} s_{ij}`: `EdgeBlocks.pull` with :math:`f' = 1`."""
    return edges.pull(Z, lambda squared: squared.fill_(1), points)


def sne_attraction_loss(Z: torch.Tensor, edges: EdgeBlocks, points: torch.Tensor | None = None) -> torch.Tensor:
    r""":math:`\sum P_{ij} s_{ij}`, a float64 scalar."""
    return edges.total(Z, lambda squared: squared, points)


def _cuts(degrees: torch.Tensor, most: int) -> list[tuple[int, int, int]]:
    """(first row, end, width) of the blocks of rows with falling degrees; rows without edges are left out.

    The width follows from a row's own degree, so that its sums do not depend on what other rows there are.
    """
    falling = degrees.cpu()
    cuts, start, end = [], 0, int((falling > 0).sum())
    widths = _widths(int(falling[0])) if end else []
    while start < end:
        width = next(one for one in widths if one >= int(falling[start]))
        below = max((one for one in widths if one < width), default=0)
        alike = int(torch.searchsorted(-falling, -below, right=False))
        stop = min(start + max(1, most // width), alike, end)
        cuts.append((start, stop, width))
        start = stop
    return cuts


def _widths(longest: int) -> list[int]:
    """1, 2, 3, ... , each at most 1 / `FILLED` of the one before, until they reach `longest`."""
    widths = [1]
    while widths[-1] < longest:
        widths.append(max(widths[-1] + 1, int(widths[-1] / FILLED)))
    return widths


def _block(graph: Graph, rows: torch.Tensor, longest: int) -> Block:
    starts, place = graph.indptr[rows][:, None], torch.arange(longest, device=rows.device)
    there = place < (graph.indptr[rows + 1][:, None] - starts)
    edges = torch.where(there, starts + place, 0)
    columns = torch.where(there, graph.indices[edges], rows[:, None])
    return Block(rows, columns.to(_narrow(rows, graph.n)), torch.where(there, graph.weights[edges], 0.0))


def _narrow(ids: torch.Tensor, n: int = 0) -> torch.dtype:
    """Half the memory, and half the reading, for numbers that fit."""
    largest = max(n, int(ids.max()) if ids.numel() else 0)
    return torch.int32 if largest < 2**31 else torch.int64
