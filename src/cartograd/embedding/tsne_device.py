"""t-SNE's layout on a GPU, many steps at a time: a step is recorded once and replayed.

A grid for the repulsion is chosen with room to spare, and the extent of the map looked at only every few steps, the
more of them the less it grows. A point that leaves the grid in between is treated as one at its rim.
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
        taken, wait, extent = 0, 1, 0.0
        while taken < len(rates):
            grid, before = self._grid(Z), extent
            extent = 0.0 if grid is None else grid[0]
            count = min(wait, len(rates) - taken) if grid is not None else len(rates) - taken
            self._steps(Z, None if grid is None else grid[1], count)
            taken += count
            growth = extent / before if before > 0 else FAST
            wait = min(2 * wait, FARTHEST) if growth < SLOW else 1 if growth >= FAST else wait

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

    def _grid(self, Z: torch.Tensor) -> tuple[float, tuple[float, int] | None] | None:
        """The extent of the map, and the distance and number of the nodes; None where all pairs are summed."""
        if not isinstance(self.repulsion, GridRepulsion):
            return None
        low, high = Z.aminmax(dim=0)
        extent = float((high - low).max())
        chosen = nodes_for(ROOM * extent)
        return extent, None if chosen is None or chosen[1] ** 2 > SPARSE * len(Z) else chosen

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
