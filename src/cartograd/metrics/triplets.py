"""Does the map keep which of two points is the nearer one?"""

from __future__ import annotations

from typing import Any

import torch

from cartograd.core.checks import count as whole_number
from cartograd.errors import InputError
from cartograd.metrics.checks import check_same_rows
from cartograd.metrics.sampling import triplets
from cartograd.metrics.space import MetricName, Space, read, space_of
from cartograd.metrics.sums import mean
from cartograd.neighbors.searching import seed_of


def random_triplet_accuracy(
    X: Any,
    Z: Any,
    n_triplets: int | None = None,
    *,
    metric: MetricName = "euclidean",
    embedding_metric: MetricName = "euclidean",
    random_state: Any = 0,
    device: torch.device | str | None = None,
) -> float:
    r"""Give the share of random triplets whose order of distances the map keeps.

    Of triplets (i, j, l) of three different points, the share for which :math:`d_X(i, j) - d_X(i, l)` and
    :math:`d_Z(i, j) - d_Z(i, l)` have the same sign. A triplet that is tied in one of the two spaces and not in the
    other counts one half, so that chance, and a map of a single point, have 0.5. A score of the global structure
    (Wang, Huang, Rudin and Shaposhnik 2021, who draw five triplets a point).

    Parameters
    ----------
    X : array-like, (n, d)
        The data, of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their distances, (n, n).
    Z : array-like, (n, c)
        The map: row i is the place of row i of X.
    n_triplets : int, default=None
        How many triplets are drawn, with replacement; None for 5 n, at least 10,000. The standard error is at most
        ``0.5 / sqrt(n_triplets)``.
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
        Between 0 and 1; about 0.5 for a random map.

    Examples
    --------
    >>> random_triplet_accuracy([[0.0], [1.0], [4.0], [9.0]], [[0.0], [-2.0], [-8.0], [-18.0]])
    1.0
    """
    given, mapped = read(X, "X", metric, device), read(Z, "Z", embedding_metric, device)
    check_same_rows(given, mapped)
    count = given.rows.count
    if count < 3:
        raise InputError(f"X has {count} rows, and a triplet needs 3")
    wanted = max(5 * count, 10_000) if n_triplets is None else whole_number(n_triplets, "n_triplets", 1)
    drawn = triplets(count, wanted, seed_of(random_state))
    in_data = _order(space_of(given, metric, "X"), *drawn)
    on_map = _order(space_of(mapped, embedding_metric, "Z"), *drawn)
    return 1.0 - mean((in_data - on_map).abs()) / 2


def _order(space: Space, first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
    """-1 where the second is nearer to the first than the third is, 1 where it is farther, 0 for a tie; on the CPU."""
    first, second, third = (ids.to(space.device) for ids in (first, second, third))
    return torch.sign(space.raw_pairs(first, second) - space.raw_pairs(first, third)).cpu()
