"""The gradients and losses of LargeVis, InfoTSNE and PaCMAP by kernels for the GPU, in the plane and in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cartograd.affinity.counter import signed, stream
from cartograd.embedding import ring
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
        self._short = self.order.to(torch.int32)

    def gradient(self, Z: torch.Tensor, step: int, pull: float, strength: float) -> torch.Tensor:
        """The gradient at Z (n, 2), with the factors of attraction and repulsion."""
        kind = self.kind
        gradient: torch.Tensor = self.along.pulls(Z, self.edges, 4 * pull, kind.c, 1)
        if kind.count:
            key = torch.full((1,), signed(self._key(step)), dtype=torch.int64, device=Z.device)
            shift = self.random.shifts(key, kind.count, len(Z))[0]
            self.random.pushes(Z[self.order], self._short, shift, kind.contrast, strength, gradient)
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
        gradient = torch.zeros_like(Z)
        for edges, (a, b) in zip(self.kinds, forces, strict=True):
            if a and len(edges.columns):
                self.along.pulls(Z, edges, 2 * a, b, 2, out=gradient)
        return gradient, _Reciprocals(self, Z, [b for _, b in forces])


class _Reciprocals(Sequence[float]):
    """Sums of 1 / (b + s) at a layout, which must not have moved when they are asked for."""

    def __init__(self, pairs: PairsOnDevice, Z: torch.Tensor, softenings: list[float]) -> None:
        self.pairs, self.Z, self.softenings = pairs, Z, softenings

    def __len__(self) -> int:
        return len(self.softenings)

    def __getitem__(self, kind: Any) -> Any:
        edges = self.pairs.kinds[kind]
        return float(self.pairs.along.totals(self.Z, edges, self.softenings[kind], False)) / 2  # met at both ends
