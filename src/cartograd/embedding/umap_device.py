"""UMAP's layout by the kernel for the GPU: the gradient at a step, many steps in one launch, the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cartograd.affinity.counter import signed, stream
from cartograd.embedding.replaying import Replayed, send
from cartograd.embedding.umap_rows import Forces
from cartograd.kernels import gpu
from cartograd.neighbors import Graph


def served(n: int, components: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernel can lay out a map of n rows: in the plane, float32, on a GPU."""
    return components == 2 and dtype == torch.float32 and device.type == "cuda" and n < 1 << 31 and gpu.on(device)


class UmapOnDevice:
    """The edges of a symmetric graph that act at least once in so many steps, as the kernel takes them.

    The same as `cartograd.embedding.umap_rows.UmapRows`, with negatives numbered by row instead of by edge.

    Parameters
    ----------
    graph : Graph
        On the GPU.
    steps : int
        How many there will be.
    """

    def __init__(self, graph: Graph, steps: int) -> None:
        self.kernels = gpu.load("umap")
        self.device = graph.device
        self.edges = self.kernels.edges_of(graph.indptr, graph.indices, graph.weights, steps)
        self.places = torch.empty(2, graph.n, 2, dtype=torch.float32, device=graph.device)
        self._course, self._replayed = self._courses(0), Replayed(graph.device)

    def gradient(self, Z: torch.Tensor, step: int, forces: Forces) -> torch.Tensor:
        """The gradient at the points Z (n, 2), of both terms."""
        out = torch.empty_like(Z)
        course = self._filled(self._courses(1), step, [-1.0], forces.seed)
        self.kernels.step(Z, out, self.edges, _curve(self.kernels, forces), course, keep=0.0)
        return out

    def advance(
        self, Z: torch.Tensor, first: int, rates: Sequence[float], forces: Forces, reached: Callable[..., None]
    ) -> None:
        """Steps of gradient descent with these learning rates, from step `first` on; Z is moved in place.

        When all are taken `reached` is called with the number of steps and Z.
        """
        curve, count = _curve(self.kernels, forces), len(rates)
        if not self._replayed.knows((count, curve)):
            self._course = self._courses(count)
        self._filled(self._course, first, rates, forces.seed)
        self.places[0].copy_(Z)

        def launch() -> None:
            for ahead in range(count):
                old, new = self.places[ahead % 2], self.places[1 - ahead % 2]
                self.kernels.step(old, new, self.edges, curve, self._course, ahead)

        self._replayed.run(launch, (count, curve), count)
        reached(first + count, Z.copy_(self.places[count % 2]))

    def losses(self, Z: torch.Tensor, step: int, forces: Forces) -> tuple[float, float]:
        """The losses of attraction and repulsion, without their factors."""
        course = self._filled(self._courses(1), step, [0.0], forces.seed)
        both = self.kernels.losses(Z, self.edges, _curve(self.kernels, forces), course)
        attraction, repulsion = torch.stack(both).tolist()
        return attraction / 2, repulsion  # each edge is there in both directions

    def _courses(self, count: int) -> object:
        """Room for the numbers of so many steps."""
        whole, real = torch.int64, torch.float32
        first, rates, keys = (torch.zeros(size, dtype=kind, device=self.device) for size, kind in
                              ((1, whole), (count, real), (count, whole)))  # fmt: skip
        return self.kernels.Course(first, rates, keys)

    def _filled(self, course: object, first: int, rates: Sequence[float], seed: int) -> object:
        keys = [signed(stream(seed, "negatives", step)) for step in range(first, first + len(rates))]
        for room, values in zip(course, ([first], rates, keys), strict=True):  # type: ignore[call-overload]
            send(room, values)
        return course


def _curve(kernels: object, forces: Forces) -> object:
    pull, push = float(forces.pull), float(forces.push)
    return kernels.Curve(float(forces.a), float(forces.b), forces.rate, pull, push)  # type: ignore[attr-defined]
