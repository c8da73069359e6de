r"""What each metric means: the one place where distances are defined.

With rows :math:`x, y \in R^d`:

==============  ==========================================================================================
sqeuclidean     :math:`\sum_c (x_c - y_c)^2`
euclidean       :math:`\sqrt{\sum_c (x_c - y_c)^2}`
manhattan       :math:`\sum_c |x_c - y_c|`
cosine          :math:`1 - \cos(x, y)`; a row of zeros is at 1 from all others and at 0 from its equals
angular         :math:`\arccos(\cos(x, y)) / \pi`, between 0 and 1
hamming         the share of columns in which x and y differ
jaccard         :math:`1 - |A \cap B| / |A \cup B|` of the sets of non-zero columns; 0 for two empty sets
sqhyperbolic    :math:`\mathrm{arccosh}^2(1 + 2 |x-y|^2 / ((1-|x|^2)(1-|y|^2)))`, rows inside the unit ball
==============  ==========================================================================================

A search ranks by a *raw* value that orders pairs as the metric does and is cheap in tiles (for the first five, and the
cosine family on rows of length one, the squared distance by one matrix product). `Metric.pairs` then gives the raw
value of single pairs exactly, and `Metric.finish` turns raw values into distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Metric:
    """One metric, in the pieces a search needs.

    Parameters
    ----------
    name : str
        Its public name.
    tile : callable
        ``tile(A, B)``, (r, d) and (m, d) to raw values (r, m).
    finish : callable
        Raw values to distances, elementwise and rising.
    pairs : callable
        ``pairs(A, B)``, two (..., d) that broadcast to the exact raw values (...) of row by row. May overwrite A.
    slack : callable, default=None
        ``slack(A, raw)``: how far the raw values (r,) of `tile` may be off. None where `tile` is exact already.
    centred : bool, default=False
        Whether `tile` loses digits on data far from the origin, and so wants them moved there.
    unit : bool, default=False
        Whether it is computed on rows divided by their length.
    symmetric : bool, default=True
        Whether ``d(x, y) = d(y, x)``.
    parallel : bool, default=True
        Whether it may be called from several threads at once.
    degree : int, default=0
        Distances of ``s * X`` are ``s ** degree`` times those of X.
    """

    name: str
    tile: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    finish: Callable[[torch.Tensor], torch.Tensor]
    pairs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    slack: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    centred: bool = False
    unit: bool = False
    symmetric: bool = True
    parallel: bool = True
    degree: int = 0


def squared_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r""":math:`|a|^2 + |b|^2 - 2 a \cdot b`, by one matrix product."""
    return torch.addmm(_squares(b)[None, :], a, b.T, alpha=-2).add_(_squares(a)[:, None])


def squared_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r""":math:`\sum_c (a_c - b_c)^2` row by row: no cancellation, never negative, exact on small integers."""
    return a.sub_(b).square_().sum(-1)


def squared_slack(a: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
    r"""The rounding of `squared_tile`, of the order :math:`\epsilon\sqrt{d}(|a|^2 + |b|^2)`.

    A candidate's own length is not asked for: :math:`|b|^2 \le 2|a|^2 + 2 |a - b|^2`.
    """
    eps = torch.finfo(a.dtype).eps * (4 + 0.5 * math.sqrt(a.shape[1]))
    return eps * (3 * _squares(a) + 2 * raw.clamp(min=0))


def manhattan_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r""":math:`\sum_c |a_c - b_c|`, without a three-dimensional temporary."""
    return torch.cdist(a, b, p=1.0)


def manhattan_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r""":math:`\sum_c |a_c - b_c|` row by row."""
    return a.sub_(b).abs_().sum(-1)


def manhattan_slack(a: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
    """The rounding of a sum of d terms."""
    return torch.finfo(a.dtype).eps * (4 + math.sqrt(a.shape[1])) * raw


def hamming_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The share of columns that differ."""
    return torch.cdist(a, b, p=0.0).div_(a.shape[1])


def hamming_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The share of columns that differ, row by row."""
    return (a != b).sum(-1).to(a.dtype).div_(a.shape[-1])


def jaccard_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r""":math:`1 - |A \cap B| / |A \cup B|`; counts below 2^24 are exact in float32."""
    a, b = (a != 0).to(a.dtype), (b != 0).to(b.dtype)
    both = a @ b.T
    either = a.sum(1)[:, None] + b.sum(1)[None, :] - both
    return torch.where(either > 0, 1 - both / either.clamp(min=1), torch.zeros_like(both))


def jaccard_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r""":math:`1 - |A \cap B| / |A \cup B|` row by row."""
    a_set, b_set = a != 0, b != 0
    either = (a_set | b_set).sum(-1).to(a.dtype)
    both = (a_set & b_set).sum(-1).to(a.dtype)
    return torch.where(either > 0, 1 - both / either.clamp(min=1), torch.zeros_like(both))


def hyperbolic_tile(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """u = |a-b|^2 / ((1-|a|^2)(1-|b|^2)) in float64: near the rim of the ball float32 has no digits left."""
    a, b = a.to(torch.float64), b.to(torch.float64)
    apart = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_()
    return apart.div_((1 - _squares(a))[:, None] * (1 - _squares(b))[None, :])


def hyperbolic_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """u = |a-b|^2 / ((1-|a|^2)(1-|b|^2)) row by row."""
    a, b = a.to(torch.float64), b.to(torch.float64)
    return _squares(a - b) / ((1 - _squares(a)) * (1 - _squares(b)))


def hyperbolic_finish(raw: torch.Tensor) -> torch.Tensor:
    r""":math:`\mathrm{arccosh}(1 + 2u) = 2\,\mathrm{arcsinh}\sqrt{u}`, which keeps its digits for small u."""
    return (2 * torch.asinh(raw.sqrt())).square()


def angular_finish(raw: torch.Tensor) -> torch.Tensor:
    r"""From the squared chord :math:`|u - v|^2`: :math:`2 \arcsin(|u - v| / 2) / \pi`."""
    return torch.asin((raw.sqrt() / 2).clamp(max=1)) * (2 / math.pi)


def _squares(a: torch.Tensor) -> torch.Tensor:
    return (a * a).sum(-1)


def _same(raw: torch.Tensor) -> torch.Tensor:
    return raw


def _squared(name: str, finish: Callable[[torch.Tensor], torch.Tensor], unit: bool = False, degree: int = 0) -> Metric:
    return Metric(name, squared_tile, finish, squared_pairs, squared_slack, centred=True, unit=unit, degree=degree)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _squared("sqeuclidean", _same, degree=2),
        _squared("euclidean", torch.sqrt, degree=1),
        _squared("cosine", lambda raw: raw / 2, unit=True),
        _squared("angular", angular_finish, unit=True),
        Metric("manhattan", manhattan_tile, _same, manhattan_pairs, manhattan_slack, degree=1),
        Metric("hamming", hamming_tile, _same, hamming_pairs),
        Metric("jaccard", jaccard_tile, _same, jaccard_pairs),
        Metric("sqhyperbolic", hyperbolic_tile, hyperbolic_finish, hyperbolic_pairs),
    )
}
"""name -> metric. `precomputed` and functions of the caller's own are looked up elsewhere."""

KNOWN = (*METRICS, "precomputed")
PRODUCT_METRICS = ("sqeuclidean", "euclidean", "cosine", "angular")
"""The metrics that are Euclidean distances of (perhaps unit) rows: what cells and faiss serve."""
