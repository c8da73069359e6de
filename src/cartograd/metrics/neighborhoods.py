"""Scores of neighbourhoods: are the neighbours on the map neighbours in the data, and the other way round?"""

from __future__ import annotations

from typing import Any

import torch

from cartograd.metrics.checks import check_same_rows, rank_count
from cartograd.metrics.ranks import ranks_of
from cartograd.metrics.space import MetricName, Space, read, space_of
from cartograd.metrics.sums import mean
from cartograd.neighbors import FaissConfig
from cartograd.neighbors.validate import check_backend, check_count

Device = torch.device | str | None


def trustworthiness(
    X: Any,
    Z: Any,
    k: int = 15,
    *,
    metric: MetricName = "euclidean",
    embedding_metric: MetricName = "euclidean",
    n_neighbors: int | None = None,
    per_sample: bool = False,
    device: Device = None,
    verbose: bool = False,
) -> Any:
    r"""Tell to what extent neighbours on the map are neighbours in the data.

    .. math:: T(k) = 1 - \frac{2}{n k (2n - 3k - 1)} \sum_i \sum_{j \in N_Z^k(i)} \max(0, r_X(i, j) - k)

    with :math:`N_Z^k(i)` the k nearest of i on the map and :math:`r_X(i, j)` the rank of j among the neighbours of i
    in the data, 1 for the nearest (Venna and Kaski 2001). Of equally near points the one with the smaller index comes
    first, in both. Ranks are exact, by counting in tiles: memory is O(n k + tile).

    Parameters
    ----------
    X : array-like, (n, d)
        The data, of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their distances, (n, n).
    Z : array-like, (n, c)
        The map: row i is the place of row i of X.
    k : int, default=15
        How many neighbours; below n / 2.
    metric : str or callable, default="euclidean"
        Of X, as for `search`.
    embedding_metric : str or callable, default="euclidean"
        Of Z, as for `search`.
    n_neighbors : int, default=None
        Another name of `k`.
    per_sample : bool, default=False
        Whether to give each point's own term instead of their mean.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.
    verbose : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    score : float, or (n,) float64 of the kind of X
        1 where no other points are among the neighbours; about 0.5 for a random map.

    Examples
    --------
    >>> X = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0], [6.0, 5.0], [5.0, 7.0]]
    >>> trustworthiness(X, X, k=2)
    1.0
    >>> round(trustworthiness(X, [[0.0], [5.0], [6.0], [1.0], [7.0], [2.0]], k=2), 4)
    0.4333
    """
    x, z, k = _spaces(X, Z, k, n_neighbors, metric, embedding_metric, device)
    return _rank_score(z, x, k, x, per_sample, verbose)


def continuity(
    X: Any,
    Z: Any,
    k: int = 15,
    *,
    metric: MetricName = "euclidean",
    embedding_metric: MetricName = "euclidean",
    n_neighbors: int | None = None,
    per_sample: bool = False,
    device: Device = None,
    verbose: bool = False,
) -> Any:
    r"""Tell to what extent neighbours in the data are neighbours on the map.

    .. math:: C(k) = 1 - \frac{2}{n k (2n - 3k - 1)} \sum_i \sum_{j \in N_X^k(i)} \max(0, r_Z(i, j) - k)

    which is `trustworthiness` with X and Z exchanged.

    Parameters
    ----------
    X : array-like, (n, d)
        The data, of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their distances, (n, n).
    Z : array-like, (n, c)
        The map: row i is the place of row i of X.
    k : int, default=15
        How many neighbours; below n / 2.
    metric : str or callable, default="euclidean"
        Of X, as for `search`.
    embedding_metric : str or callable, default="euclidean"
        Of Z, as for `search`.
    n_neighbors : int, default=None
        Another name of `k`.
    per_sample : bool, default=False
        Whether to give each point's own term instead of their mean.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.
    verbose : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    score : float, or (n,) float64 of the kind of X
        1 where all neighbours stayed neighbours; about 0.5 for a random map.

    Examples
    --------
    >>> X = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0], [6.0, 5.0], [5.0, 7.0]]
    >>> continuity(X, [[0.0], [1.0], [2.0], [5.0], [6.0], [7.0]], k=2)
    1.0
    """
    x, z, k = _spaces(X, Z, k, n_neighbors, metric, embedding_metric, device)
    return _rank_score(x, z, k, x, per_sample, verbose)


def neighborhood_preservation(
    X: Any,
    Z: Any,
    k: int = 15,
    *,
    metric: MetricName = "euclidean",
    embedding_metric: MetricName = "euclidean",
    backend: str | FaissConfig = "exact",
    per_sample: bool = False,
    device: Device = None,
    verbose: bool = False,
) -> Any:
    r"""Give the recall of the k nearest neighbours: the share of them that the map keeps.

    .. math:: \frac{1}{n} \sum_i \frac{|N_X^k(i) \cap N_Z^k(i)|}{k}

    Both sets have k members, so this is recall and precision in one. It is not the Jaccard index, whose denominator is
    the size of the union.

    Parameters
    ----------
    X : array-like, (n, d)
        The data, of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their distances, (n, n).
    Z : array-like, (n, c)
        The map: row i is the place of row i of X.
    k : int, default=15
        How many neighbours; at most n - 1.
    metric : str or callable, default="euclidean"
        Of X, as for `search`.
    embedding_metric : str or callable, default="euclidean"
        Of Z, as for `search`.
    backend : str or FaissConfig, default="exact"
        How the neighbours in X are found, as for `search`; those on the map are always exact.
    per_sample : bool, default=False
        Whether to give each point's own share instead of their mean.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.
    verbose : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    score : float, or (n,) float64 of the kind of X
        Between 0 and 1; about k / (n - 1) for a random map.

    Examples
    --------
    >>> neighborhood_preservation([[0.0], [1.0], [3.0], [7.0]], [[0.0], [1.0], [7.0], [3.0]], k=1)
    0.5
    """
    given, mapped = read(X, "X", metric, device), read(Z, "Z", embedding_metric, device)
    check_same_rows(given, mapped)
    if not isinstance(backend, FaissConfig):
        check_backend(backend)
    k = check_count(k, given.rows.count, without_self=True)
    x, z = space_of(given, metric, "X"), space_of(mapped, embedding_metric, "Z")
    near, on_map = x.neighbours(k, backend, verbose), z.neighbours(k, verbose=verbose).to(x.device)
    share = _shared(near, on_map).to(torch.float64) / k
    return given.answer(share) if per_sample else mean(share)


def _spaces(
    X: Any, Z: Any, k: int, n_neighbors: int | None, metric: MetricName, embedding_metric: MetricName, device: Device
) -> tuple[Space, Space, int]:
    given, mapped = read(X, "X", metric, device), read(Z, "Z", embedding_metric, device)
    check_same_rows(given, mapped)
    k = rank_count(k, n_neighbors, given.rows.count)
    return space_of(given, metric, "X"), space_of(mapped, embedding_metric, "Z"), k


def _rank_score(near: Space, ranked: Space, k: int, asked: Space, per_sample: bool, verbose: bool) -> Any:
    """One minus the (normalised) rank errors in `ranked` of the neighbours in `near`."""
    ids = near.neighbours(k, verbose=verbose)
    errors = (ranks_of(ranked, ids, verbose) - k).clamp_(min=0).sum(dim=1)
    n = len(errors)
    if per_sample:
        return asked.given.answer(1.0 - errors.to(torch.float64) * (2.0 / (k * (2.0 * n - 3.0 * k - 1.0))))
    return 1.0 - int(errors.sum()) * (2.0 / (n * k * (2.0 * n - 3.0 * k - 1.0)))


def _shared(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many ids the rows of a (n, k) and b (n, k) have in common, (n,) int64."""
    step = max(1, (1 << 24) // a.shape[1] ** 2)
    parts = zip(a.split(step), b.split(step), strict=True)
    return torch.cat([(x[:, :, None] == y[:, None, :]).sum(dim=(1, 2)) for x, y in parts])
