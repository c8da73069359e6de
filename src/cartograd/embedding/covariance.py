r"""Sums over all rows of a data set, a tile of rows at a time: means, covariances, products.

Everything is summed in float64, whatever the rows are held in: the covariance squares the condition number of the data,
and float64 has the digits to spare where float32 has not. Tiles are added in an order that does not depend on the
number of threads, so the bits do not either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cartograd.neighbors.rows import Rows, SparseRows
from cartograd.neighbors.workers import spread

TILE_ELEMENTS = 1 << 17
"""Elements of a tile: 1 MiB in float64, which stays in the cache of a core."""
GPU_TILE_ELEMENTS = 1 << 23
SPARSE_TILE_ROWS = 4096
STRIPS = 4
LANES = 32
LANE_ELEMENTS = 1 << 26
"""At most so many partial sums are kept side by side, and so many elements in all of them."""
SAFE = 1e100
"""Data whose largest deviation is between 1 / SAFE and SAFE can be squared and summed as they are."""
HEADROOM = 2.0**-12
"""Sums of numbers times this do not overflow before the numbers themselves do."""


@dataclass(frozen=True)
class Centred:
    r"""The rows about a centre, in float64: :math:`x_i \mapsto s (x_i - \mu)`.

    Parameters
    ----------
    rows : Rows
        The rows x.
    mean : torch.Tensor
        :math:`\mu`, (d,) float64.
    scale : float, default=1.0
        s, a power of two that keeps squares in range.
    """

    rows: Rows
    mean: torch.Tensor
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.rows.count, self.rows.width

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Rows start to stop, (r, d) float64."""
        block = self.rows.block(start, stop) - self.mean  # float32 minus float64 is float64
        return block if self.scale == 1.0 else block.mul_(self.scale)

    def times(self, start: int, stop: int, V: torch.Tensor) -> torch.Tensor:
        """The product of rows start to stop with V, (r, m); sparse rows stay sparse."""
        if not isinstance(self.rows, SparseRows):
            return self.block(start, stop) @ V
        piece = torch.from_numpy(self.rows.matrix[start:stop] @ V.cpu().numpy()).to(V.device)
        return (piece - self.mean @ V).mul_(self.scale)

    def transposed_times(self, start: int, stop: int, Y: torch.Tensor) -> torch.Tensor:
        """The product of the transpose of rows start to stop with Y, (d, m)."""
        if not isinstance(self.rows, SparseRows):
            return self.block(start, stop).T @ Y
        piece = torch.from_numpy(self.rows.matrix[start:stop].T @ Y.cpu().numpy()).to(Y.device)
        return (piece - torch.outer(self.mean, Y.sum(0))).mul_(self.scale)


def centred(rows: Rows) -> Centred:
    """The rows about their mean, scaled only where their squares would leave the range of float64."""
    first = rows.block(0, 1)[0].to(torch.float64)
    room = HEADROOM if rows.dtype == torch.float64 else 1.0

    def look(start: int, stop: int) -> torch.Tensor:
        # from the first row on, not from zero: a large offset would cost the mean its last digits
        apart = rows.block(start, stop) * room - first * room
        low, high = torch.aminmax(apart)
        return torch.cat([apart.sum(0) / rows.count, torch.maximum(-low, high)[None]])

    def both(total: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return torch.cat([total[:-1] + part[:-1], torch.maximum(total[-1:], part[-1:])])

    found = folded(rows, look, both, rows.width) / room
    return Centred(rows, first + found[:-1], power_of_two(float(found[-1])))


def power_of_two(largest: float) -> float:
    """What to multiply numbers up to `largest` by, so that their squares stay in range: 1 for all but extreme ones."""
    if largest == 0 or 1 / SAFE < largest < SAFE:
        return 1.0
    exponent = 1022 if largest == math.inf else math.frexp(largest)[1]
    return 2.0 ** min(-exponent, 1000)


def covariance(data: Centred) -> torch.Tensor:
    r""":math:`\sum_i x_i x_i^T` of the centred rows, (d, d): the covariance times n - 1."""
    d = data.rows.width
    width = d if d < STRIPS * 64 else -(-d // STRIPS)

    def of_tile(start: int, stop: int) -> torch.Tensor:
        total = torch.zeros(d, d, dtype=torch.float64, device=data.rows.device)
        for first in range(start, stop, tile_of(data.rows)):
            block = data.block(first, min(first + tile_of(data.rows), stop))
            for column in range(0, d, width):  # what is below the diagonal is known from above it
                total[column : column + width, column:].addmm_(block[:, column : column + width].T, block[:, column:])
        return total

    upper = folded(data.rows, of_tile, torch.Tensor.add_, d * d, 16 * tile_of(data.rows)).triu_()
    return upper + torch.triu(upper, 1).T


def inner_products(data: Centred) -> torch.Tensor:
    """All inner products of the centred rows, (n, n): for data with fewer rows than columns."""
    n, tile = data.rows.count, tile_of(data.rows)

    def strip(start: int) -> torch.Tensor:
        own = data.block(start, min(start + tile, n))
        parts = [own @ data.block(other, min(other + tile, n)).T for other in range(0, start + 1, tile)]
        return torch.cat(parts, 1)

    matrix = torch.zeros(n, n, dtype=torch.float64, device=data.rows.device)
    for start, part in zip(range(0, n, tile), spread(strip, range(0, n, tile)), strict=True):
        matrix[start : start + len(part), : part.shape[1]] = part
    return torch.tril(matrix) + torch.tril(matrix, -1).T


def gram_product(data: Centred, V: torch.Tensor) -> torch.Tensor:
    r""":math:`X^T X V` of the centred rows X, (d, m), in one walk over them and without :math:`X^T X`."""

    def of_tile(start: int, stop: int) -> torch.Tensor:
        if isinstance(data.rows, SparseRows):
            return data.transposed_times(start, stop, data.times(start, stop, V))
        block = data.block(start, stop)
        return block.T @ (block @ V)

    return folded(data.rows, of_tile, torch.Tensor.add_, V.numel(), _undense_tile(data.rows))


def transposed_product(data: Centred, Y: torch.Tensor) -> torch.Tensor:
    r""":math:`X^T Y` of the centred rows X, (d, m)."""

    def of_tile(start: int, stop: int) -> torch.Tensor:
        return data.transposed_times(start, stop, Y[start:stop])

    return folded(data.rows, of_tile, torch.Tensor.add_, data.rows.width * Y.shape[1], _undense_tile(data.rows))


def triangle(data: Centred, V: torch.Tensor) -> torch.Tensor:
    r"""R of the QR decomposition of :math:`X V`, (m, m).

    Its singular values are those of :math:`X V` to full precision, which those of :math:`V^T X^T X V` are not.
    """

    def of_tile(start: int, stop: int) -> torch.Tensor:
        return _upper(data.times(start, stop, V))

    def below(total: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return _upper(torch.cat([total, part]))

    return folded(data.rows, of_tile, below, V.shape[1] ** 2, _undense_tile(data.rows))


def _upper(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.qr(matrix, mode="r").R


def sum_of_squares(data: Centred) -> float:
    """The sum of the squares of all centred values."""

    def of_tile(start: int, stop: int) -> torch.Tensor:
        return data.block(start, stop).square_().sum()

    return float(folded(data.rows, of_tile, torch.Tensor.add_, 1))


def tile_of(rows: Rows) -> int:
    """How many rows a tile takes: never a function of the number of threads."""
    most = TILE_ELEMENTS if rows.device.type == "cpu" else GPU_TILE_ELEMENTS
    return max(64, min(most // 64, most // rows.width))


def _undense_tile(rows: Rows) -> int:
    """The same for products, in which sparse rows stay sparse."""
    return SPARSE_TILE_ROWS if isinstance(rows, SparseRows) else tile_of(rows)


def folded(
    rows: Rows,
    of_tile: Callable[[int, int], torch.Tensor],
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    elements: int,
    tile: int | None = None,
) -> torch.Tensor:
    """The tiles' values combined: first within lanes of neighbouring tiles, on all cores, then lane by lane.

    Parameters
    ----------
    rows : Rows
        The rows.
    of_tile : callable
        ``of_tile(start, stop)``, the value of rows start to stop: a new tensor.
    combine : callable
        ``combine(total, value)``, the new total; may overwrite the old one.
    elements : int
        How large a value is.
    tile : int, default=None
        How many rows a tile takes; None for `tile_of` them.
    """
    n, tile = rows.count, tile or tile_of(rows)
    starts = range(0, n, tile)
    lanes = max(1, min(len(starts), LANES, max(4, LANE_ELEMENTS // elements)))

    def lane(number: int) -> torch.Tensor:
        begin, end = len(starts) * number // lanes, len(starts) * (number + 1) // lanes
        total = of_tile(starts[begin], min(starts[begin] + tile, n))
        for start in starts[begin + 1 : end]:
            total = combine(total, of_tile(start, min(start + tile, n)))
        return total

    parts = iter(spread(lane, range(lanes)))
    total = next(parts)
    for part in parts:
        total = combine(total, part)
    return total
