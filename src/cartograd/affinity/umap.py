"""The affinity of UMAP: the fuzzy union of every row's fuzzy set of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cartograd.affinity import checks, data
from cartograd.affinity.fuzzy import fuzzy_union, memberships, smooth_distances
from cartograd.affinity.loggraph import LogGraph, from_neighbours
from cartograd.engine import Tensor, no_grad
from cartograd.errors import OptionError


@dataclass(frozen=True)
class UMAPAffinity:
    r"""UMAP's graph, as umap-learn defines it.

    .. math:: A_{ij} = \exp(-\max(d_{ij} - \rho_i, 0) / \sigma_i), \qquad \sum_j A_{ij} = \log_2(k), \qquad
        P = A + A^T - A \circ A^T

    over the k - 1 nearest other rows: k counts the row itself. :math:`\rho_i` is the distance to the nearest row that
    is not equal, :math:`\sigma_i` has a floor (`smooth_distances`). P is symmetric, its weights above 0 and at most 1.

    Parameters
    ----------
    n_neighbors : int, default=30
        k, the row itself included; at least 2.
    local_connectivity : float, default=1.0
        The number of neighbours that are certainly connected: :math:`\rho_i` is the distance to that one.
    set_op_mix_ratio : float, default=1.0
        1 for the union of the fuzzy sets, 0 for the intersection :math:`A \circ A^T`, or in between.
    symmetrize : bool, default=True
        Whether to unite; otherwise the answer is A, by rows.
    sparsity : bool, default=True
        Whether the answer is a `Graph`; otherwise the same as an (n, n) tensor.
    metric : str or callable, default="euclidean"
        What d is: a metric of `cartograd.neighbors.search`, or "precomputed".
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
    >>> P = UMAPAffinity(n_neighbors=3)(torch.tensor([[0.0], [1.0], [3.0], [4.0]]))
    >>> [round(float(weight), 4) for weight in P.to_dense()[1]]
    [1.0, 0.0, 0.8277, 0.585]
    """

    n_neighbors: int = 30
    local_connectivity: float = 1.0
    set_op_mix_ratio: float = 1.0
    symmetrize: bool = True
    sparsity: bool = True
    metric: data.MetricLike = "euclidean"
    backend: data.BackendLike = "auto"
    device: data.DeviceLike = None
    random_state: Any = None
    verbose: bool = False

    def __post_init__(self) -> None:
        checks.count(self.n_neighbors, "n_neighbors", 2)
        checks.number(self.local_connectivity, "local_connectivity", 0.0)
        checks.number(self.set_op_mix_ratio, "set_op_mix_ratio", 0.0, high=1.0)
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
            Neighbours found before: indices (n, m) and distances (n, m) in `metric`, with the row itself or without;
            the nearest ``n_neighbors - 1`` others are used.
        """
        with no_grad(), torch.no_grad():
            indices, distances = self._neighbours(X, knn)
            weights = memberships(distances, *smooth_distances(distances, float(self.local_connectivity)))
            result = from_neighbours(indices, weights.to(distances.dtype), log=not self.symmetrize and log)
            if self.symmetrize and not isinstance(result, LogGraph):
                result = fuzzy_union(result, float(self.set_op_mix_ratio))
                result = LogGraph(result, result.weights.log()) if log else result
            if self.sparsity:
                return result
            return Tensor(result.to_dense()) if isinstance(X, Tensor) else result.to_dense()

    def _neighbours(self, X: Any, knn: Any) -> data.Neighbours:
        k = self.n_neighbors - 1
        if knn is not None:
            found = data.given_neighbours(knn, k, self.device)
            if found[0].shape[1] < k:
                raise OptionError(
                    f"n_neighbors={self.n_neighbors} needs {k} neighbours other than the row itself, and knn has "
                    f"{found[0].shape[1]}; use n_neighbors <= {found[0].shape[1] + 1}, or search for more"
                )
            return found
        X, given = data.opened(X, self.metric, self.device)
        checks.neighbours_fit(self.n_neighbors, "n_neighbors", given.rows.count, with_self=True)
        return data.neighbours(X, k, self.metric, self.backend, self.device, self.random_state, self.verbose)
