r"""Exact search of wide rows by lower bounds, with compiled kernels.

A projection makes no distance longer: the distances of rows in few of their leading directions are lower bounds, at a
fraction of the arithmetic. The rows of the lowest bounds are measured in full; the k-th nearest of them is a limit, and
only what has a bound below it, in some directions and then in more, is measured, too. The answer is the exact one;
only the time depends on the directions. On a sample of rows it is seen whether that is less than without.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from cartograd.kernels import cpu
from cartograd.neighbors.best import SPARE
from cartograd.neighbors.directions import leading
from cartograd.neighbors.distances import PRODUCT_METRICS, Metric
from cartograd.neighbors.measure import measured
from cartograd.neighbors.rows import Rows, TensorRows
from cartograd.neighbors.workers import spread

log = logging.getLogger("cartograd.neighbors")

LEAST_ROWS, MOST = 4000, 1 << 27
"""Rows from which on, and numbers up to which bounds are tried."""
FEW, MORE = 64, 256
"""Directions of the first bound, and of the second: at most half the columns."""
NARROW = 100
"""Up to so many columns all of them make the bound."""
SAMPLE, TRAINED, PIVOTS = 48, 1536, 96
TILE = 1 << 21
"""Numbers in a tile of bounds, and in a block of rows."""
PAIR = 4.0
"""What a column costs in the distance of a pair, where one in a product costs 1."""
GAIN = 0.6
"""Bounds must not need more than this part of the arithmetic of products of all columns for half of the pairs."""
LOOSE = 1 + 1e-4
"""Squared distances in float32 are off by less than this factor."""
ROUNDING = 4e-4
"""Bounds are off by less than this part of a row's squared length: its neighbour's is not much larger."""

Answer = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def serves(data: Rows, k: int, metric: Metric, queries: Rows | None) -> bool:
    """Whether this search can be made by bounds, with kernels that are there already; if not, they are prepared."""
    fits = isinstance(data, TensorRows) and data.device.type == "cpu" and data.dtype == torch.float32
    large = data.count >= LEAST_ROWS and data.count * data.width <= MOST
    if not (fits and large and queries is None and k <= data.count // 20 and metric.name in PRODUCT_METRICS):
        return False
    if cpu.at_hand("screening"):
        return True
    if cpu.usable():
        cpu.prepare("screening")
    return False


def search_screened(data: Rows, k: int, metric: Metric, without_self: bool) -> Answer | None:
    """ids (n, k) and squared distances (n, k) float64, rising, ties by id; and the rows for which they may be wrong.

    None where bounds would not save enough.

    Parameters
    ----------
    data : Rows
        As `serves` takes them.
    k : int
        How many neighbours.
    metric : Metric
        One of the Euclidean ones.
    without_self : bool
        Whether a row is no neighbour of its own.
    """
    assert isinstance(data, TensorRows)
    bounds = _bounds(data.data, k)
    if bounds is None:
        return None
    value, ids = bounds.candidates(k, without_self)
    order = bounds.order
    names, worst, last = torch.empty_like(ids), torch.empty(len(ids)), torch.empty(len(ids))
    names[order] = torch.where(ids >= 0, order[ids.clamp(min=0)], -1)
    found, raw = measured(metric, data, data, names, order)
    worst[order], last[order] = value[:, k - 1], value[:, -1]
    doubtful = torch.nonzero(last <= worst * LOOSE).squeeze(1)
    return found[:, :k].contiguous(), raw[:, :k].contiguous(), doubtful


@dataclass(frozen=True)
class Bounds:
    """Rows in an order in which near ones follow each other, and what bounds are made of.

    Parameters
    ----------
    order : torch.Tensor
        (n,) int64.
    rows : torch.Tensor
        (n, d) float32, in that order, as all that follows.
    few, more : torch.Tensor
        Rows in the first directions, (n, `FEW`), and in those after them.
    slack : torch.Tensor
        By how much the bounds of each row may be off, (n,).
    """

    order: torch.Tensor
    rows: torch.Tensor
    few: torch.Tensor
    more: torch.Tensor
    slack: torch.Tensor

    def candidates(self, k: int, without_self: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """All that may be among the k nearest: squared distances (n, c), rising, and ids; infinite and -1 for none."""
        n, half = len(self.rows), self.few.square().sum(1).div_(2)
        value, ids = torch.empty(n, k + SPARE), torch.empty(n, k + SPARE, dtype=torch.int32)
        kernel, step = cpu.load("screening").nearest, max(16, TILE // n)
        given, lists = (self.more.numpy(), self.rows.numpy()), (value.numpy(), ids.numpy())

        def block(start: int) -> int:
            part = slice(start, min(start + step, n))
            tile = torch.addmm(half[None, :], self.few[part], self.few.T, beta=-1).numpy()  # xy - |y|^2/2
            own = self.slack[part].numpy()
            return int(kernel(tile, half[part].numpy(), *given, own, start, k, without_self, LOOSE, *lists))

        pairs = sum(spread(block, range(0, n, step)))
        log.info("exact: by lower bounds, %.0f of %d rows measured for each", k + pairs / n, n)
        return value, ids.to(torch.int64)


def _bounds(rows: torch.Tensor, k: int) -> Bounds | None:
    """What bounds are made of; None where they would not save enough."""
    n, d = rows.shape
    some = rows[:: max(1, n // TRAINED)]
    centre = some.mean(0)
    few = FEW if d > NARROW else d
    V = leading(some - centre, min(MORE, d // 2), torch.Generator().manual_seed(0)) if few < d else torch.eye(d)
    if few < d and not _worthwhile(rows, centre, V, k):
        return None
    short, slack = torch.empty(n, V.shape[1]), torch.empty(n)

    def part(start: int) -> None:
        block = slice(start, start + max(16, TILE // d))
        moved = rows[block] - centre
        short[block] = moved @ V
        slack[block] = ROUNDING * moved.square().sum(1)

    for _ in spread(part, range(0, n, max(16, TILE // d))):
        pass
    pivots = short[:: max(1, n // PIVOTS), :few]
    order = torch.argsort(torch.cdist(short[:, :few], pivots).argmin(1), stable=True)
    short = short[order]
    return Bounds(order, rows[order], short[:, :few].contiguous(), short[:, few:].contiguous(), slack[order])


def _worthwhile(rows: torch.Tensor, centre: torch.Tensor, V: torch.Tensor, k: int) -> bool:
    """Whether bounds in these directions (d, w) save enough arithmetic, on a sample of rows."""
    n, d = rows.shape
    others = rows[:: max(1, n // TRAINED)] - centre
    sample = rows[:: max(1, n // SAMPLE)] - centre
    share = k / n * len(others)
    limit = torch.cdist(sample, others).topk(2 + round(share), dim=1, largest=False).values[:, -1:]
    kept = [
        n * float((torch.cdist(sample @ V[:, :w], others @ V[:, :w]) <= limit).to(torch.float64).mean())
        for w in (FEW, V.shape[1])
    ]
    cost = FEW * n + PAIR * (kept[0] * (V.shape[1] - FEW) + (k + kept[1]) * d)
    return cost < GAIN * d * n / 2
