"""The gradients and losses of LargeVis, InfoTSNE and PaCMAP by kernels for the GPU, in the plane and in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cartograd.affinity.counter import signed, stream
from cartograd.embedding import ring
from cartograd.embedding.device_descent import Stretch
from cartograd.embedding.replaying import send
from cartograd.embedding.sampled_rows import Kind
from cartograd.kernels import gpu
from cartograd.neighbors import Graph

MOST_ROWS = 1 << 24
"""Random rows are found by 32 random bits: with more rows than this, not all would be equally likely to 1 %."""


def served(n: int, components: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether kernels can lay out a map of n rows: in the plane, float32, on a GPU."""
    return components == 2 and dtype == torch.float32 and device.type == "cuda" and n <= MOST_ROWS and gpu.on(device)


class SampledOnDevice:
    """As `cartograd.embedding.sampled_rows.SampledRows`, on a GPU.

    The random rows are others than on a CPU, which has those of `cartograd.embedding.sampling`: here they are drawn on
    a ring, see `cartograd.embedding.ring`, so that a row knows who drew it and gathers all that moves it.

    Parameters
    ----------
    graph : Graph
        Symmetric, on the GPU.
    kind : Kind
        The method.
    seed : int
        Of the random rows.
    """

    def __init__(self, graph: Graph, kind: Kind, seed: int) -> None:
        self.kind, self.seed = kind, seed
        self.along, self.random = gpu.load("edges"), gpu.load("negatives")
        self.edges = self.along.edges_of(graph.indptr, graph.indices, graph.weights)
        self.order = ring.ring_order(graph.n, seed, graph.device)
        self._short, self._stretch = self.order.to(torch.int32), Stretch(graph.device)
        self._keys = torch.empty(0, dtype=torch.int64, device=graph.device)

    def gradient(self, Z: torch.Tensor, step: int, pull: float, strength: float) -> torch.Tensor:
        """The gradient at Z (n, 2), with the factors of attraction and repulsion."""
        key = torch.full((1,), signed(self._key(step)), dtype=torch.int64, device=Z.device)
        return self._begun(Z, key, pull, strength)(0)

    def advance(
        self, optimiser: torch.optim.Optimizer, first: int, rates: Sequence[float], pull: float, strength: float
    ) -> None:
        """Steps of the optimiser with these learning rates, from step `first` on; the map is moved in place."""
        if len(self._keys) != len(rates):
            self._keys = self._keys.new_empty(len(rates))
        keys, Z = self._keys, optimiser.param_groups[0]["params"][0]
        send(keys, [signed(self._key(step)) for step in range(first, first + len(rates))])
        of = (pull, strength, keys.data_ptr())
        self._stretch.take(optimiser, rates, of, lambda: self._begun(Z, keys, pull, strength))

    def _begun(
        self, Z: torch.Tensor, keys: torch.Tensor, pull: float, strength: float
    ) -> Callable[[int], torch.Tensor]:
        """The draws of steps with these keys, and what then gives the gradient of each, by its number."""
        kind = self.kind
        shifts = self.random.shifts(keys, kind.count, len(Z)) if kind.count else None

        def gradient(ahead: int) -> torch.Tensor:
            found: torch.Tensor = self.along.pulls(Z, self.edges, 4 * pull, kind.c, 1)
            if shifts is not None:
                around = torch.index_select(Z, 0, self.order)
                self.random.pushes(around, self._short, shifts[ahead], kind.contrast, strength, found)
            return found

        return gradient

    def losses(self, Z: torch.Tensor, step: int) -> tuple[float, float]:
        """The losses of attraction and repulsion, without their factors."""
        kind = self.kind
        attraction = self.along.totals(Z, self.edges, kind.c, True)
        shift = ring.shifts(self._key(step), kind.count, len(Z), Z.device)
        return float(attraction), float(ring.loss(Z, self.order, shift, kind.contrast))

    def _key(self, step: int) -> int:
        return stream(self.seed, "negatives", step)


class PairsOnDevice:
    """As `cartograd.embedding.pair_rows.PairRows`, on a GPU.

    Parameters
    ----------
    kinds : sequence of torch.Tensor
        Three of (n, m) int64: row i is a pair with the rows in row i.
    """

    def __init__(self, kinds: Sequence[torch.Tensor]) -> None:
        self.along = gpu.load("edges")
        self.kinds = [self._both_ends(kind) for kind in kinds]
        device = kinds[0].device
        self._stretch = Stretch(device)
        self._factors = torch.empty(len(kinds), 0, dtype=torch.float32, device=device)

    def _both_ends(self, others: torch.Tensor) -> Any:
        n, m = others.shape
        rows = torch.arange(n, device=others.device)[:, None].expand(n, m).reshape(-1)
        columns = others.reshape(-1)
        keys = torch.sort(torch.cat([rows * n + columns, columns * n + rows])).values
        indptr = torch.searchsorted(keys, torch.arange(n + 1, device=others.device) * n)
        return self.along.edges_of(indptr, keys % n, torch.ones(len(keys), device=others.device))

    def gradient(self, Z: torch.Tensor, forces: Sequence[tuple[float, float]]) -> tuple[torch.Tensor, Sequence[float]]:
        """The gradient at Z (n, 2) of pairs whose losses have the derivatives a / (b + s)^2, (a, b) for each kind.

        With it, for each kind, the sum of 1 / (b + s) over its pairs, computed when it is asked for.
        """
        gradient = self._summed(Z, [(kind, 2 * a, b) for kind, (a, b) in enumerate(forces) if a])
        return gradient, _Reciprocals(self, Z, [b for _, b in forces])

    def advance(
        self, optimiser: torch.optim.Optimizer, rates: Sequence[float], forces: Sequence[Sequence[tuple[float, float]]]
    ) -> None:
        """Steps of the optimiser with these learning rates and forces, all (a, b) of each; the map is moved in place.

        b of a kind is the same at all steps.
        """
        if self._factors.shape[1] != len(rates):
            self._factors = self._factors.new_empty(len(self.kinds), len(rates))
        factors, Z = self._factors, optimiser.param_groups[0]["params"][0]
        strengths = [[2 * step[kind][0] for step in forces] for kind in range(len(self.kinds))]
        send(factors, strengths)
        acting = [(kind, b) for kind, (_, b) in enumerate(forces[0]) if any(strengths[kind])]

        def gradient(ahead: int) -> torch.Tensor:
            return self._summed(Z, [(kind, factors[kind, ahead : ahead + 1], b) for kind, b in acting])

        self._stretch.take(optimiser, rates, (tuple(acting), factors.data_ptr()), lambda: gradient)

    def _summed(self, Z: torch.Tensor, forces: Sequence[tuple[int, float | torch.Tensor, float]]) -> torch.Tensor:
        """The sum of the pulls of some kinds, with a and b of each."""
        gradient = torch.zeros_like(Z)
        for kind, a, b in forces:
            if len(self.kinds[kind].columns):
                self.along.pulls(Z, self.kinds[kind], a, b, 2, out=gradient)
        return gradient


class _Reciprocals(Sequence[float]):
    """Sums of 1 / (b + s) at a layout, which must not have moved when they are asked for."""

    def __init__(self, pairs: PairsOnDevice, Z: torch.Tensor, softenings: list[float]) -> None:
        self.pairs, self.Z, self.softenings = pairs, Z, softenings

    def __len__(self) -> int:
        return len(self.softenings)

    def __getitem__(self, kind: Any) -> Any:
        edges = self.pairs.kinds[kind]
        return float(self.pairs.along.totals(self.Z, edges, self.softenings[kind], False)) / 2  # met at both ends
