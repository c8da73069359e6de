"""The entropic affinity of t-SNE: every row has the same perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.entropic_rows import entropic_rows, solve_rows
from cartograd.affinity.loggraph import LogGraph, from_neighbours
from cartograd.affinity.recorded import is_recorded, off_diagonal, recorded_distances, with_diagonal
from cartograd.engine import Tensor, no_grad
from cartograd.errors import UnsupportedError
from cartograd.neighbors import Graph
from cartograd.neighbors.intake import Given


@dataclass(frozen=True)
class EntropicAffinity:
    r"""Each row's similarities are a distribution over the other rows with a given perplexity.

    .. math:: P_{ij} = \frac{1}{n} \frac{\exp(-C_{ij} / \varepsilon_i)}{\sum_{l \ne i} \exp(-C_{il} / \varepsilon_i)},
        \qquad H(n P_i) = -\sum_j n P_{ij} \log(n P_{ij}) = \log(\mathrm{perplexity})

    Rows sum to 1/n (to 1 without `normalized`), and P is not symmetric: `joint_probabilities` makes it so. Where more
    than `perplexity` rows are equal, or all distances are, no bandwidth has that entropy; similarities are then even.

    Parameters
    ----------
    perplexity : float, default=30.0
        The number of neighbours a row is effectively similar to, between 1 and n - 1, whole or not.
    sparsity : bool, default=None
        Whether only the ``ceil(3 * perplexity)`` nearest rows are looked at, and the answer is a `Graph`; otherwise all
        are, and it is an (n, n) tensor. None: yes, unless X is a `Tensor` of ours, which may want a gradient.
    normalized : bool, default=True
        Whether all similarities together sum to one, rather than those of each row.
    metric : str or callable, default="sqeuclidean"
        What C is: a metric of `cartograd.neighbors.search`, or "precomputed".
    backend : str or FaissConfig, default="auto"
        How neighbours are searched.
    device : torch.device or str, default=None
        Where to compute; None for where the data are.
    random_state : int, default=None
        Seed of the search.
    verbose : bool, default=False
        Whether to show progress.

    Examples
    --------
    >>> import torch
    >>> P = EntropicAffinity(perplexity=2.5, sparsity=False)(torch.arange(6.0)[:, None]) * 6
    >>> [round(float(value), 4) for value in (P.sum(1)[0], torch.exp(torch.special.entr(P).sum(1))[0])]
    [1.0, 2.5]
    """

    perplexity: float = 30.0
    sparsity: bool | None = None
    normalized: bool = True
    metric: data.MetricLike = "sqeuclidean"
    backend: data.BackendLike = "auto"
    device: data.DeviceLike = None
    random_state: Any = None
    verbose: bool = False

    def __post_init__(self) -> None:
        checks.number(self.perplexity, "perplexity", 1.0)
        checks.choice(self.sparsity, "sparsity", (True, False, None))
        data.check_source(self.metric, self.backend)

    def __call__(self, X: Any, log: bool = False, *, knn: Any = None) -> Any:
        """The affinity of the rows of X.

        Parameters
        ----------
        X : array-like, (n, d)
            Anything `cartograd.neighbors.search` takes; may be None where `knn` is given.
        log : bool, default=False
            Whether to give logarithms: a `LogGraph`, or a tensor with minus infinity on its diagonal.
        knn : tuple, default=None
            Neighbours found before: indices (n, k) and distances (n, k) in `metric`, all of which are used.

        Returns
        -------
        P : Graph, LogGraph, torch.Tensor or Tensor
            A `Tensor` that leads back to X, by the implicit function theorem, where X is a Tensor that requires grad.
        """
        if is_recorded(X) and knn is None:
            return self._recorded(X, log)
        sparse = not isinstance(X, Tensor) if self.sparsity is None else self.sparsity
        with no_grad(), torch.no_grad():
            if knn is not None:
                found = data.given_neighbours(knn, None, self.device)
                checks.perplexity_fits_neighbours(self.perplexity, found[0].shape[1])
                return self._sparse(*found, log)
            X, given = data.opened(X, self.metric, self.device)
            checks.perplexity_fits(self.perplexity, given.rows.count)
            if sparse:
                return self._sparse(*self._search(X, given.rows.count), log)
            return self._dense(X, given, log)

    def _search(self, X: Any, n: int) -> data.Neighbours:
        k = min(n - 1, math.ceil(3 * self.perplexity))
        return data.neighbours(X, k, self.metric, self.backend, self.device, self.random_state, self.verbose)

    def _sparse(self, indices: torch.Tensor, distances: torch.Tensor, log: bool) -> Graph | LogGraph:
        if self.sparsity is False:
            raise UnsupportedError("knn= gives a sparse affinity: use sparsity=True with it")
        return from_neighbours(indices, solve_rows(distances, self.perplexity) - self._offset(len(indices)), log)

    def _dense(self, X: Any, given: Given, log: bool) -> Any:
        n = given.rows.count
        P = torch.empty(n, n - 1, dtype=given.rows.dtype, device=given.rows.device)
        for start, tile in data.tiles(X, given, self.metric, self.device):
            P[start : start + len(tile)] = solve_rows(off_diagonal(tile, start), self.perplexity)
        P = P.sub_(self._offset(n))
        return data.like(X, given, with_diagonal(P, -torch.inf) if log else with_diagonal(P.exp_(), 0.0))

    def _recorded(self, X: Tensor, log: bool) -> Any:
        if self.sparsity:
            raise UnsupportedError(
                "a Graph has no gradient: for a Tensor that requires grad use sparsity=False, or entropic_rows on the "
                "distances of cartograd.knn"
            )
        checks.perplexity_fits(self.perplexity, len(X))
        C = off_diagonal(recorded_distances(X, self.metric))
        P = entropic_rows(C, self.perplexity) - self._offset(len(X))
        return with_diagonal(P, -torch.inf) if log else with_diagonal(torch.exp(P), 0.0)

    def _offset(self, n: int) -> float:
        return math.log(n) if self.normalized else 0.0


def joint_probabilities(P: Any) -> Any:
    r"""t-SNE's symmetric affinity :math:`(P + P^T) / 2` of an entropic one, a `Graph` or a dense tensor.

    Of a `normalized` P it sums to one.
    """
    return P.symmetrise("mean") if isinstance(P, Graph) else (P + P.T) / 2
