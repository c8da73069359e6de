"""Do distances on the map grow with distances in the data?"""

from __future__ import annotations

import math
from typing import Any

import torch

from cartograd.core.checks import count as whole_number
from cartograd.errors import InputError, OptionError
from cartograd.metrics.checks import check_same_rows
from cartograd.metrics.sampling import pairs
from cartograd.metrics.space import Exact, MetricName, read, space_of
from cartograd.metrics.sums import mean, total
from cartograd.neighbors.searching import seed_of

KINDS = ("spearman", "pearson")


def distance_correlation(
    X: Any,
    Z: Any,
    *,
    kind: str = "spearman",
    n_pairs: int = 1_000_000,
    metric: MetricName = "euclidean",
    embedding_metric: MetricName = "euclidean",
    random_state: Any = 0,
    device: torch.device | str | None = None,
) -> float:
    r"""Give the correlation of distances in the data with distances on the map.

    Over pairs of points p = (i, j), i < j, with :math:`u_p = d_X(i, j)` and :math:`v_p = d_Z(i, j)`, Pearson's

    .. math:: \rho = \frac{\sum_p (u_p - \bar u)(v_p - \bar v)}{\sqrt{\sum_p (u_p - \bar u)^2 \sum_p (v_p - \bar v)^2}}

    of the distances themselves (``kind="pearson"``) or of their ranks, ties sharing their mean rank
    (``kind="spearman"``, which asks for any rising relation). It runs over all n (n - 1) / 2 pairs, and is then exact,
    where those are at most `n_pairs`; otherwise over `n_pairs` of them, drawn with replacement. This is not the
    distance correlation of Székely, Rizzo and Bakirov, a measure of dependence.

    Parameters
    ----------
    X : array-like, (n, d)
        The data, of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their distances, (n, n).
    Z : array-like, (n, c)
        The map: row i is the place of row i of X.
    kind : str, default="spearman"
        "spearman" or "pearson".
    n_pairs : int, default=1000000
        The most pairs looked at: up to 1,414 points all of them.
    metric : str or callable, default="euclidean"
        Of X, as for `search`.
    embedding_metric : str or callable, default="euclidean"
        Of Z, as for `search`.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=0
        Seed of the draw.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.

    Returns
    -------
    score : float
        Between -1 and 1; about 0 for a random map.

    Examples
    --------
    >>> X, Z = [[0.0], [1.0], [4.0]], [[0.0], [1.0], [9.0]]
    >>> round(distance_correlation(X, Z), 4)
    1.0
    >>> round(distance_correlation(X, Z, kind="pearson"), 4)
    0.9762
    """
    if kind not in KINDS:
        raise OptionError(f"unknown kind {kind!r}: known are {', '.join(KINDS)}")
    most = whole_number(n_pairs, "n_pairs", 2)
    given, mapped = read(X, "X", metric, device), read(Z, "Z", embedding_metric, device)
    check_same_rows(given, mapped)
    if given.rows.count < 3:
        raise InputError(f"X has {given.rows.count} rows; distances of at least 3 points are needed to correlate")
    left, right = pairs(given.rows.count, most, seed_of(random_state))
    values = []
    for points, rule, name in ((given, metric, "X"), (mapped, embedding_metric, "Z")):
        space = space_of(points, rule, name)
        distances = space.distances(left.to(space.device), right.to(space.device))
        values.append(_standard(_ranked(distances) if kind == "spearman" else distances, name))
    return max(-1.0, min(1.0, total(values[0] * values[1])))


def _ranked(values: torch.Tensor) -> torch.Tensor:
    """Ranks 1, 2, ... as float64, equal values sharing the mean of theirs."""
    _, place, counts = torch.unique(values, return_inverse=True, return_counts=True)
    last = torch.cumsum(counts, 0).to(Exact)
    return (last - (counts.to(Exact) - 1) / 2)[place]


def _standard(values: torch.Tensor, name: str) -> torch.Tensor:
    """Values less their mean, of length one; on the CPU, where both spaces meet."""
    if bool((values == values[0]).all()):
        raise InputError(
            f"all distances in {name} are equal ({float(values[0]):g} in the chosen kind), so no correlation is defined"
        )
    values = values.cpu() / values.abs().max().cpu()
    centred = values - mean(values)
    return centred / math.sqrt(total(centred.square()))
