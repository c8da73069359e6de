"""t-SNE's layout on a GPU, many steps at a time: a step is recorded once and replayed.

A grid for the repulsion is chosen with room to spare, and the extent of the map looked at only every few steps, the
more of them the less it grows. What a look finds is read after the steps that follow it have been launched, so that the
GPU never waits for the next ones. A point that leaves the grid in between is treated as one at its rim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cartograd.embedding import gains
from cartograd.embedding.forces.gpu import SPARSE, DeviceEdges, GridRepulsion, nodes_for
from cartograd.embedding.replaying import send
from cartograd.kernels import gpu

ROOM = 1.1
"""How much larger than the map a grid is."""
SLOW, FAST, FARTHEST = 1.01, 1.05, 16
"""Growth between two looks by which the next is put off, up to so many steps, or comes at once."""


class TsneOnDevice:
    """Steps of gradient descent with gains.

    Parameters
    ----------
    edges : DeviceEdges
        P.
    repulsion : callable
        A `GridRepulsion`, or the one of all pairs.
    """

    def __init__(self, edges: DeviceEdges, repulsion: Any) -> None:
        self.edges, self.repulsion = edges, repulsion
        self.kernels = gpu.load("descent")
        self._graphs: dict[Any, torch.cuda.CUDAGraph] = {}
        self._fixed: Any = None
        self._pool = torch.cuda.graph_pool_handle()

    def advance(
        self, Z: torch.Tensor, kept: dict[str, torch.Tensor], rates: Sequence[float], momentum: float, pull: float,
        push: float,
    ) -> None:  # fmt: skip
        """Take a step for each of the learning rates; Z, and velocity and gains in `kept`, are changed in place."""
        self._state = self._room_for(Z, kept, len(rates), (momentum, pull, push))
        send(self._state.rates[: len(rates)], rates)
        self._state.number.zero_()
        if isinstance(self.repulsion, GridRepulsion):
            self._descend(Z, len(rates), Look(Z).extent())
        else:
            self._steps(Z, None, len(rates))

    def _descend(self, Z: torch.Tensor, count: int, extent: float) -> None:
        """So many steps from a map of this extent."""
        taken, wait, growth, look = 0, 1, 1.0, None
        while taken < count:
            some = min(wait, count - taken)
            self._steps(Z, _grid(len(Z), ROOM * extent * max(1.0, growth) ** 2), some)
            taken += some
            if look is not None:
                before, extent = extent, look.extent()
                growth = extent / before if before > 0 else FAST
                wait = min(2 * wait, FARTHEST) if growth < SLOW else 1 if growth >= FAST else wait
            look = Look(Z)

    def _room_for(self, Z: torch.Tensor, kept: dict[str, torch.Tensor], count: int, factors: Any) -> Any:
        """The state of the descent; recorded steps are dropped where they would read other memory or numbers."""
        key = (Z.data_ptr(), kept["velocity"].data_ptr(), kept["gains"].data_ptr(), factors)
        if self._fixed is None or self._fixed[0] != key or len(self._fixed[1].rates) < count:
            self._graphs.clear()
            self._pool = torch.cuda.graph_pool_handle()  # one that no recording uses any more is gone
            rates = torch.zeros(max(count, 64), device=Z.device)
            number = torch.zeros(1, dtype=torch.int64, device=Z.device)
            self._fixed = (key, self.kernels.State(kept["velocity"], kept["gains"], rates, number), factors)
        return self._fixed[1]

    def _steps(self, Z: torch.Tensor, grid: tuple[float, int] | None, count: int) -> None:
        if grid not in self._graphs:
            self._step(Z, grid)  # compiles and plans what a recording cannot
            count -= 1
            self._graphs[grid] = gpu.load("replay").recorded(lambda: self._step(Z, grid), Z.device, self._pool)
        for _ in range(count):
            self._graphs[grid].replay()

    def _step(self, Z: torch.Tensor, grid: tuple[float, int] | None) -> None:
        momentum, pull, push = self._fixed[2]
        attraction = self.edges.attraction(Z)
        if grid is None:
            sums, pulls = gpu.load("repulsion").student_sums(Z, Z, own=True)
            total, factor = sums.to(torch.float64).sum(), -4.0
        else:
            found = self.repulsion.potential(Z, Z.amin(0).to(torch.float64), *grid)
            total, pulls, factor = (found[0] - 1).sum(), found[1:].T, 2.0
        constants = self.kernels.Gains(gains.RISE, gains.FALL, gains.LEAST, gains.LONGEST)
        self.kernels.descend(Z, attraction, pulls, total, pull, push * factor, momentum, self._state, constants)


class Look:
    """The extent of a map as it is when the steps launched so far are done."""

    def __init__(self, Z: torch.Tensor) -> None:
        low, high = Z.aminmax(dim=0)
        self._found = torch.empty((), dtype=Z.dtype, pin_memory=True).copy_((high - low).max(), non_blocking=True)
        self._there = torch.cuda.Event()
        self._there.record()

    def extent(self) -> float:
        """The larger side; waits for it if it is not there yet."""
        self._there.synchronize()
        return float(self._found)


def _grid(n: int, extent: float) -> tuple[float, int] | None:
    """The distance and number of the nodes; None where all pairs are cheaper."""
    chosen = nodes_for(extent)
    return None if chosen is None or chosen[1] ** 2 > SPARSE * n else chosen
