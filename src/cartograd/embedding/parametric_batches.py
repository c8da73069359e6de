r"""What an encoder is trained on, batch by batch: edges drawn by their weights, and negatives.

Everything drawn at a step depends on the seed and the number of the step alone, so a training that is resumed goes on
with the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from cartograd.affinity.counter import integers, stream, uniform
from cartograd.neighbors import Graph

if TYPE_CHECKING:
    from cartograd.embedding.parametric import Parametric

FAR = 1e12
"""Added to the squared distance of a pair that must not repel."""


class Objective(Protocol):
    """A loss of some rows at a time."""

    def draw(self, step: int) -> torch.Tensor:
        """The rows that are looked at in this step, (m,) int64."""
        ...

    def loss(self, Z: Any, progress: float) -> Any:
        """The loss of the step drawn last, of the places Z (m, c) of its rows; `progress` runs from 0 to 1."""
        ...


def squares(a: Any, b: Any) -> Any:
    """Squared distances along the last axis."""
    return ((a - b) ** 2).sum(-1)


@dataclass
class EdgeObjective:
    r"""Edges against negatives, by the terms of a method.

    .. math:: \lambda \, A(s_e : e \sim P) + \rho \, R(s_{ij} : i \in \text{heads}, j \in \text{negatives})

    A batch has B edges, drawn with probability in proportion to their weights. The negatives of an edge are tails of
    other edges of the batch, some of them or all: every row that goes through the encoder serves twice.

    Parameters
    ----------
    model : Parametric
        Gives A, ``_batch_attraction``, and R, ``_batch_repulsion``.
    graph : Graph
        The affinity.
    size : int
        B.
    negatives : int
        Negatives of each edge; at most the B - 1 other edges have.
    discard : bool
        Whether neighbours never repel each other.
    """

    model: Parametric
    graph: Graph
    size: int
    negatives: int
    discard: bool

    def __post_init__(self) -> None:
        self._heads = self.graph.rows()
        self._cumulative = torch.cumsum(self.graph.weights.to(torch.float64), 0)
        self._pushers: torch.Tensor | None = None
        if self.discard:
            self._edges = self._heads * self.graph.n + self.graph.indices

    def draw(self, step: int) -> torch.Tensor:
        """The heads and the tails, 2B rows."""
        seed, device = self.model._seed, self.graph.device
        places = uniform(stream(seed, "edges", step), (self.size,), device) * self._cumulative[-1]
        edges = torch.searchsorted(self._cumulative, places, right=True).clamp_(max=len(self._heads) - 1)
        heads, tails = self._heads[edges], self.graph.indices[edges]
        own = torch.arange(self.size, device=device)[:, None]
        if self.negatives < self.size - 1:
            key = stream(seed, "negatives of edges", step)
            shift = integers(key, self.size - 1, (self.size, self.negatives), device)
            self._pushers = (own + 1 + shift) % self.size
            self._silent = self._no_negatives(heads, tails[self._pushers])
        else:
            self._pushers = None
            self._silent = self._no_negatives(heads, tails[None, :]) | (own == own.T)
        return torch.cat([heads, tails])

    def _no_negatives(self, heads: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Which of the other rows (B, q) must not repel the heads: a head itself, or a neighbour if so wished."""
        silent = heads[:, None] == others
        if not self.discard:
            return silent
        keys = heads[:, None] * self.graph.n + others
        found = torch.searchsorted(self._edges, keys).clamp_(max=len(self._edges) - 1)
        return silent | (self._edges[found] == keys)

    def loss(self, Z: Any, progress: float) -> Any:
        """Attraction and repulsion of the batch."""
        heads, tails = Z[: self.size], Z[self.size :]
        pushers = tails[None, :, :] if self._pushers is None else tails[self._pushers]
        s = squares(heads[:, None, :], pushers) + self._silent.to(Z.dtype) * FAR
        model = self.model
        attraction = model._batch_attraction(squares(heads, tails))
        return model._lambda_at(progress) * attraction + model.repulsion_strength * model._batch_repulsion(s)


@dataclass
class PairObjective:
    """Pairs of several kinds that were drawn before the training, by the terms of a method.

    A batch has B rows drawn uniformly, and with each of them one of its pairs of every kind.

    Parameters
    ----------
    model : Parametric
        Gives the loss of the squared distances of the pairs, one array a kind: ``_batch_of_pairs``.
    kinds : list of torch.Tensor
        (n, p) int64 for each kind, the other ends of every row's pairs.
    size : int
        B.
    """

    model: Parametric
    kinds: list[torch.Tensor]
    size: int

    def draw(self, step: int) -> torch.Tensor:
        """The rows, and then the other ends of their pairs, kind by kind."""
        seed, device, n = self.model._seed, self.kinds[0].device, len(self.kinds[0])
        rows = integers(stream(seed, "rows", step), n, (self.size,), device)
        parts = [rows]
        for number, kind in enumerate(self.kinds):
            columns = integers(stream(seed, f"pairs {number}", step), kind.shape[1], (self.size,), device)
            parts.append(kind[rows, columns])
        return torch.cat(parts)

    def loss(self, Z: Any, progress: float) -> Any:
        """The sum over the kinds of pairs."""
        rows = Z[: self.size]
        parts = [Z[(1 + kind) * self.size : (2 + kind) * self.size] for kind in range(len(self.kinds))]
        return self.model._batch_of_pairs([squares(rows, part) for part in parts], progress)
