"""Does a clustering of the map find the classes?"""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from cartograd.core.checks import count as whole_number
from cartograd.errors import InputError, OptionError
from cartograd.metrics.kmeans import kmeans
from cartograd.metrics.labels import encoded, known_rows, read_labels
from cartograd.metrics.space import read
from cartograd.neighbors.searching import seed_of
from cartograd.neighbors.tiles import tile_rows
from cartograd.neighbors.validate import scan


def kmeans_ari(
    Z: Any,
    labels: Any,
    *,
    n_clusters: int | None = None,
    n_init: int = 10,
    max_iter: int = 300,
    random_state: Any = 0,
    device: torch.device | str | None = None,
) -> float:
    """Give the adjusted Rand index of the classes and a k-means clustering of the map.

    Lloyd's iterations in float64 from greedy k-means++ seeds, the best of `n_init` starts, then
    `adjusted_rand_score`.

    Parameters
    ----------
    Z : array-like, (n, c)
        The map (or any points), of any kind `cartograd.neighbors.search` takes.
    labels : array-like, (n,)
        Classes: whole numbers or text, at least two different ones. Rows with -1, of unknown class, are left out.
    n_clusters : int, default=None
        How many clusters; None for the number of classes.
    n_init : int, default=10
        How many times k-means starts anew.
    max_iter : int, default=300
        The most iterations of one start.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=0
        Seed of a private generator.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.

    Returns
    -------
    score : float
        1 where clusters and classes are the same; about 0 by chance.

    Examples
    --------
    >>> kmeans_ari([[0.0], [1.0], [7.0], [8.0]], ["a", "a", "b", "b"])
    1.0
    """
    given = read(Z, "Z", "euclidean", device)
    array = read_labels(labels, given.rows.count)
    known = known_rows(array)
    codes, classes = encoded(array[known.numpy()])
    if classes < 2:
        raise InputError("labels have 1 class only; an adjusted Rand index needs at least 2")
    wanted = classes if n_clusters is None else whole_number(n_clusters, "n_clusters", 1)
    if wanted > len(known):
        raise OptionError(f"n_clusters={wanted} is more than the {len(known)} labelled rows; use fewer")
    n_init, max_iter = whole_number(n_init, "n_init", 1), whole_number(max_iter, "max_iter", 1)
    seed = seed_of(random_state)
    largest = scan(given.rows, "Z", tile_rows(given.rows.width))
    points = given.rows.exact(known.to(given.rows.device))
    if largest > 0:
        points = points * 2.0 ** -round(math.log2(largest))  # squares neither overflow nor vanish
    found = kmeans(points, wanted, n_init=n_init, max_iter=max_iter, seed=seed)
    return adjusted_rand_score(codes, found.labels)


def adjusted_rand_score(labels_true: Any, labels_pred: Any) -> float:
    r"""Give the adjusted Rand index of two clusterings, from pair counts in exact integers.

    .. math:: \frac{2 (tp\,tn - fn\,fp)}{(tp + fn)(fn + tn) + (tp + fp)(fp + tn)}

    of the (ordered) pairs of rows that are together in both, apart in both, together in the first only (fn) and in the
    second only (fp) (Hubert and Arabie 1985). 1 where the clusterings are the same, about 0 by chance.

    Parameters
    ----------
    labels_true : array-like, (n,)
        One clustering: whole numbers or text.
    labels_pred : array-like, (n,)
        The other.

    Returns
    -------
    score : float
        At most 1; may be negative.

    Examples
    --------
    >>> adjusted_rand_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    >>> round(adjusted_rand_score([0, 0, 1, 2], [0, 0, 1, 1]), 4)
    0.5714
    """
    first = read_labels(labels_true, _length(labels_true), "labels_true")
    second = read_labels(labels_pred, len(first), "labels_pred")
    (a, _), (b, columns) = encoded(first, "labels_true"), encoded(second, "labels_pred")
    n = len(a)
    together = _square_sum(a * columns + b)
    in_first, in_second = _square_sum(a), _square_sum(b)
    tp, fn, fp = together - n, in_first - together, in_second - together
    tn = n * n - tp - fn - fp - n
    if fn == 0 and fp == 0:
        return 1.0
    return 2.0 * (tp * tn - fn * fp) / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))


def _square_sum(codes: torch.Tensor) -> int:
    """The sum of the squared class sizes: how many ordered pairs are in one class."""
    sizes = numpy.unique(codes.numpy(), return_counts=True)[1]
    return sum(int(size) ** 2 for size in sizes)


def _length(labels: Any) -> int:
    if not hasattr(labels, "__len__"):
        raise InputError(f"labels_true must be one label a row, got {type(labels).__name__}")
    return len(labels)
