r"""The silhouette: is a point nearer to its own class than to the next?

With :math:`\bar d(i, C) = \sum_{j \in C, j \ne i} w_j d_{ij} / \sum_{j \in C, j \ne i} w_j` (all weights 1 where none
are given), :math:`a_i = \bar d(i, C_i)` and :math:`b_i = \min_{C \ne C_i} \bar d(i, C)`:

.. math:: s_i = \frac{b_i - a_i}{\max(a_i, b_i)}, \qquad s = \frac{\sum_i w_i s_i}{\sum_i w_i}

(Rousseeuw 1987). :math:`s_i = 0` for a point that is alone in its class, or whose companions have no weight, or where
:math:`a_i = b_i = 0`. Weights count relatively: twice the weights give the same score, and a row of weight 0 is as
good as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch

from cartograd.core.checks import count as whole_number
from cartograd.errors import InputError, OptionError
from cartograd.metrics.labels import encoded, read_labels
from cartograd.metrics.space import Exact, MetricName, picked, read, source_of
from cartograd.metrics.sums import row_totals, total
from cartograd.neighbors import distance_tiles
from cartograd.neighbors.intake import Given
from cartograd.neighbors.precomputed import check_matrix
from cartograd.neighbors.progress import steps
from cartograd.neighbors.searching import seed_of

Device = torch.device | str | None


def silhouette_samples(
    X: Any,
    labels: Any,
    *,
    metric: MetricName = "euclidean",
    weights: Any = None,
    device: Device = None,
    verbose: bool = False,
) -> Any:
    """Give the silhouette of every point.

    Parameters
    ----------
    X : array-like, (n, d)
        Points, of any kind `cartograd.neighbors.search` takes; with ``metric="precomputed"`` their distances, (n, n),
        of which the diagonal must be 0.
    labels : array-like, (n,)
        Classes: whole numbers or text, at least two and at most n - 1 different ones. -1 is a class as any other, as
        scikit-learn has it.
    metric : str or callable, default="euclidean"
        As for `search`.
    weights : array-like, (n,), default=None
        How much each point counts in the means over its class; not negative. None for all the same.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    silhouettes : (n,) float64 of the kind of X
        Between -1 and 1.

    Examples
    --------
    >>> silhouette_samples([[0.0], [1.0], [4.0]], [0, 0, 1]).round(4).tolist()
    [0.75, 0.6667, 0.0]
    """
    given, codes, mass = _checked(X, labels, weights, metric, device)
    return given.answer(_samples(given, codes, mass, metric, verbose))


def silhouette_score(
    X: Any,
    labels: Any,
    *,
    metric: MetricName = "euclidean",
    weights: Any = None,
    sample_size: int | None = None,
    random_state: Any = None,
    device: Device = None,
    verbose: bool = False,
) -> float:
    """Give the mean silhouette of all points, or of a sample of them.

    Parameters
    ----------
    X : array-like, (n, d)
        Points, as for `silhouette_samples`.
    labels : array-like, (n,)
        Classes, as for `silhouette_samples`.
    metric : str or callable, default="euclidean"
        As for `search`.
    weights : array-like, (n,), default=None
        How much each point counts, in the means over its class and in the score. None for all the same.
    sample_size : int, default=None
        How many points to draw, without replacement, and to score as if there were no others; None for all.
    random_state : int, numpy.random.RandomState or numpy.random.Generator, default=None
        Seed of that draw; None for a fixed one. A number draws the points that scikit-learn draws with it.
    device : torch.device or str, default=None
        Where to compute; None for the device that CARTOGRAD_DEVICE names, or else where the data are.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    score : float
        Between -1 and 1.

    Examples
    --------
    >>> round(silhouette_score([[0.0], [1.0], [4.0]], [0, 0, 1]), 4)
    0.4722
    """
    if sample_size is not None:
        sample_size = whole_number(sample_size, "sample_size", 2)
    given, codes, mass = _checked(X, labels, weights, metric, device, sampled=sample_size is not None)
    if sample_size is not None:
        ids = torch.from_numpy(_draw(given.rows.count, sample_size, random_state))
        given, mass = picked(given, ids, square=metric == "precomputed"), None if mass is None else mass[ids]
        codes, classes = encoded(codes[ids].numpy())
        _check_classes(classes, len(ids), "the sample")
    values = _samples(given, codes, mass, metric, verbose).cpu()
    return total(values) / len(values) if mass is None else total(values * mass) / total(mass)


def _draw(count: int, sample_size: int, random_state: Any) -> Any:
    if isinstance(random_state, numpy.random.RandomState):
        return random_state.permutation(count)[:sample_size]
    return numpy.random.RandomState(seed_of(random_state)).permutation(count)[:sample_size]


def _checked(
    X: Any, labels: Any, weights: Any, metric: MetricName, device: Device, sampled: bool = False
) -> tuple[Given, torch.Tensor, torch.Tensor | None]:
    """The points, their class numbers and their weights (n,) float64, both on the CPU."""
    given = read(X, "X", metric, device)
    codes, classes = encoded(read_labels(labels, given.rows.count))
    _check_classes(classes, given.rows.count, "labels", sampled)
    if metric == "precomputed":
        _check_matrix(given)
    return given, codes, None if weights is None else _read_weights(weights, given.rows.count)


def _check_classes(classes: int, count: int, where: str, sampled: bool = False) -> None:
    if classes < 2 or (classes >= count and not sampled):
        what = "class" if classes == 1 else "classes"
        raise InputError(
            f"{where} has {classes} {what} for {count} rows: a silhouette needs at least 2 and fewer than rows; "
            "Valid values are 2 to n_samples - 1 (inclusive)"
        )


def _check_matrix(given: Given) -> None:
    if given.sparse is not None:
        raise InputError("X is a sparse matrix of some distances, and a silhouette needs all of them; give a dense one")
    check_matrix(given.rows, "X", square=True)
    tolerance = 100 * torch.finfo(given.rows.dtype).eps
    for start, block in _matrix_tiles(given):
        own = block.diagonal(start)
        if float(own.abs().max()) > tolerance:
            row = int(own.abs().argmax())
            raise InputError(
                f"precomputed distances must be 0 on the diagonal, got {float(own[row]):g} at row {start + row}; "
                "use numpy.fill_diagonal(X, 0)"
            )


def _read_weights(weights: Any, count: int) -> torch.Tensor:
    array = read_labels(weights, count, "weights")
    if array.dtype.kind not in "biuf":
        raise InputError(f"weights must be numbers, got dtype {array.dtype}")
    mass = torch.from_numpy(array.astype(numpy.float64))
    if float(mass.min()) < 0:
        row = int(mass.argmin())
        raise OptionError(f"weights must not be negative, got {float(mass[row]):g} at row {row}")
    if float(mass.max()) == 0:
        raise OptionError("weights are all 0; at least one row must count")
    return mass / mass.max()


def _tile_rows(given: Given) -> int:
    elements = 1 << (22 if given.rows.device.type == "cpu" else 26)
    return max(1, min(given.rows.count, elements // given.rows.count))


def _matrix_tiles(given: Given) -> Iterator[tuple[int, torch.Tensor]]:
    step = _tile_rows(given)
    for start in range(0, given.rows.count, step):
        yield start, given.rows.block(start, min(start + step, given.rows.count))


def _samples(
    given: Given, codes: torch.Tensor, mass: torch.Tensor | None, metric: MetricName, verbose: bool
) -> torch.Tensor:
    """The silhouettes, (n,) float64 on the device of the points."""
    device, count = given.rows.device, given.rows.count
    order = torch.argsort(codes, stable=True)
    lengths = torch.bincount(codes).tolist()
    step = _tile_rows(given)
    if metric == "precomputed":
        tiles = _matrix_tiles(given)
    else:
        tiles = distance_tiles(source_of(given), metric=metric, rows=step)
    weight = torch.ones(count, dtype=Exact) if mass is None else mass
    heavy = torch.tensor([total(part) for part in weight[order].split(lengths)], dtype=Exact, device=device)
    order, weight, codes = order.to(device), weight.to(device), codes.to(device)
    result = torch.empty(count, dtype=Exact, device=device)
    for start, tile in steps(tiles, -(-count // step), "silhouette", verbose):
        rows = slice(start, start + len(tile))
        tile = tile.to(Exact, copy=True)
        tile.diagonal(start).fill_(0)
        tile = tile.index_select(1, order) if mass is None else (tile * weight).index_select(1, order)
        sums = torch.stack([row_totals(part) for part in tile.split(lengths, dim=1)], dim=1)
        result[rows] = _from_sums(sums, codes[rows], weight[rows], heavy)
    return result


def _from_sums(sums: torch.Tensor, codes: torch.Tensor, weight: torch.Tensor, heavy: torch.Tensor) -> torch.Tensor:
    """Silhouettes of some rows from their weighted sums of distances to each class, (r, c)."""
    own = codes[:, None]
    others = heavy[codes] - weight
    alone = others <= 1e-12 * heavy[codes]  # what is left of a class of one, or of rows without weight, is rounding
    inside = sums.gather(1, own).squeeze(1) / torch.where(alone, 1.0, others)
    outside = torch.where(heavy > 0, sums / torch.where(heavy > 0, heavy, 1.0), torch.inf)
    outside = outside.scatter(1, own, torch.inf).amin(dim=1)
    larger = torch.maximum(inside, outside)
    defined = ~alone & (larger > 0) & (outside < torch.inf)
    return torch.where(defined, (outside - inside) / torch.where(defined, larger, 1.0), 0.0)
