"""The affinity of PaCMAP: each row and its nearest rows by a distance rescaled with the density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.loggraph import from_neighbours
from cartograd.affinity.pairs import rescaled_neighbours
from cartograd.engine import Tensor, no_grad
from cartograd.errors import OptionError

EXTRA_CANDIDATES = 50


@dataclass(frozen=True)
class PACMAPAffinity:
    r"""PaCMAP's near pairs: each row's `n_neighbors` rows of least rescaled distance, with weight 1.

    .. math:: \tilde d_{ij} = \frac{d_{ij}^2}{\sigma_i \sigma_j}, \qquad
        \sigma_i = \text{mean distance of the 4th to 6th neighbour}

    among its ``n_neighbors + 50`` nearest (or all, where there are fewer rows). Not symmetric: every row has exactly
    `n_neighbors` edges. `mid_near_pairs` and `far_pairs` draw the other pairs of the method.

    Parameters
    ----------
    n_neighbors : int, default=10
        How many, the row itself not counted.
    sparsity : bool, default=True
        Whether the answer is a `Graph`; otherwise the same as an (n, n) tensor.
    metric : str or callable, default="euclidean"
        What d is: a metric of `cartograd.neighbors.search`, or "precomputed"; "sqeuclidean" means "euclidean" here.
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
    >>> PACMAPAffinity(n_neighbors=2)(torch.arange(5.0)[:, None]).degrees().tolist()
    [2, 2, 2, 2, 2]
    """

    n_neighbors: int = 10
    sparsity: bool = True
    metric: data.MetricLike = "euclidean"
    backend: data.BackendLike = "auto"
    device: data.DeviceLike = None
    random_state: Any = None
    verbose: bool = False

    def __post_init__(self) -> None:
        checks.count(self.n_neighbors, "n_neighbors")
        checks.choice(self.sparsity, "sparsity", (True, False))
        data.check_source(self.metric, self.backend)

    def __call__(self, X: Any, log: bool = False, *, knn: Any = None) -> Any:
        """The affinity of the rows of X, detached from them.

        Parameters
        ----------
        X : array-like, (n, d)
            Anything `cartograd.neighbors.search` takes; may be None where `knn` is given.
        log : bool, default=False
            Whether to give logarithms: a `LogGraph`, or a tensor with minus infinity where there is no edge.
        knn : tuple, default=None
            Candidates found before: indices (n, m) and distances (n, m), not squared, m at least `n_neighbors`.
        """
        indices, scaled = self.neighbours(X, knn=knn)
        result = from_neighbours(indices, torch.zeros_like(scaled), log)
        if self.sparsity:
            return result
        return Tensor(result.to_dense()) if isinstance(X, Tensor) else result.to_dense()

    def neighbours(self, X: Any, *, knn: Any = None) -> data.Neighbours:
        """The near pairs as indices (n, n_neighbors) and rescaled squared distances, nearest first."""
        with no_grad(), torch.no_grad():
            return rescaled_neighbours(*self._candidates(X, knn), self.n_neighbors)

    def _candidates(self, X: Any, knn: Any) -> data.Neighbours:
        if knn is not None:
            found = data.given_neighbours(knn, None, self.device)
            if found[0].shape[1] < self.n_neighbors:
                raise OptionError(
                    f"n_neighbors={self.n_neighbors}, and knn has {found[0].shape[1]} for each row other than itself; "
                    "use fewer, or search for more"
                )
            return found
        metric = "euclidean" if self.metric == "sqeuclidean" else self.metric
        X, given = data.opened(X, metric, self.device)
        checks.neighbours_fit(self.n_neighbors, "n_neighbors", given.rows.count)
        k = min(self.n_neighbors + EXTRA_CANDIDATES, given.rows.count - 1)
        return data.neighbours(X, k, metric, self.backend, self.device, self.random_state, self.verbose)
