"""Would a point's neighbours on the map tell its class?"""

from __future__ import annotations

from typing import Any

import torch

from cartograd.metrics.labels import encoded, known_rows, read_labels
from cartograd.metrics.space import MetricName, picked, read, space_of
from cartograd.metrics.sums import mean
from cartograd.neighbors import FaissConfig
from cartograd.neighbors.validate import check_backend, check_count


def knn_label_accuracy(
    Z: Any,
    labels: Any,
    k: int = 10,
    *,
    metric: MetricName = "euclidean",
    backend: str | FaissConfig = "exact",
    per_sample: bool = False,
    device: torch.device | str | None = None,
    verbose: bool = False,
) -> Any:
    r"""Give the share of points whose class their k nearest neighbours tell, by majority and leaving the point out.

    .. math:: \frac{1}{n} \sum_i \left[\, y_i = \arg\max_c |\{j \in N_Z^k(i) : y_j = c\}| \,\right]

    Of classes with equally many votes, the one with the nearest voter wins.

    Parameters
    ----------
    Z : array-like, (n, c)
        The map (or any points), of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their
        distances, (n, n).
    labels : array-like, (n,)
        Classes: whole numbers or text. Rows with -1, of unknown class, are left out, as voters too.
    k : int, default=10
        How many neighbours vote; at most the number of labelled rows less one.
    metric : str or callable, default="euclidean"
        As for `search`.
    backend : str or FaissConfig, default="exact"
        How the neighbours are found, as for `search`.
    per_sample : bool, default=False
        Whether to give 1.0 or 0.0 for each point (NaN for one of unknown class) instead of their mean.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    score : float, or (n,) float64 of the kind of Z
        Between 0 and 1.

    Examples
    --------
    >>> knn_label_accuracy([[0.0], [1.0], [2.0], [7.0], [8.0]], ["a", "a", "a", "b", "b"], k=1)
    1.0
    >>> knn_label_accuracy([[0.0], [1.0], [2.0], [7.0], [8.0]], [0, 0, 0, 1, -1], k=1)
    0.75
    """
    given = read(Z, "Z", metric, device)
    array = read_labels(labels, given.rows.count)
    known = known_rows(array)
    codes, _ = encoded(array[known.numpy()])
    if not isinstance(backend, FaissConfig):
        check_backend(backend)
    k = check_count(k, len(known), without_self=True)
    everyone = len(known) == given.rows.count
    points = given if everyone else picked(given, known, square=metric == "precomputed")
    space = space_of(points, metric, "Z")
    codes = codes.to(space.device)
    right = (elected(codes[space.neighbours(k, backend, verbose)]) == codes).to(torch.float64)
    if not per_sample:
        return mean(right)
    result = torch.full((given.rows.count,), torch.nan, dtype=torch.float64, device=space.device)
    result[known.to(space.device)] = right
    return given.answer(result)


def elected(votes: torch.Tensor) -> torch.Tensor:
    """The class most votes (n, k) of a row are for; of several, that of the first such vote."""
    k = votes.shape[1]
    first_wins = torch.arange(k, 0, -1, device=votes.device)
    winners = []
    for part in votes.split(max(1, (1 << 24) // k**2)):
        same = (part[:, :, None] == part[:, None, :]).sum(dim=2)
        best = (same * (k + 1) + first_wins).argmax(dim=1, keepdim=True)
        winners.append(part.gather(1, best).squeeze(1))
    return torch.cat(winners)
