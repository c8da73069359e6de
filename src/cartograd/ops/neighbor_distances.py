"""The distances of chosen pairs of rows, and chosen elements of a matrix of distances: what `knn` is differentiated by.

Both gradients are scatters over the n k pairs. No tensor of n x n, nor (but for second derivatives) of n x k x d, is
made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cartograd.engine.accumulate import raw
from cartograd.engine.primitive import primitive
from cartograd.ops.nearest import Space, parts, unit


@primitive()
def neighbor_distances(
    X: Tensor, indices: Tensor, queries: Tensor | None = None, metric: str = "euclidean", tile: int = 2048
) -> Tensor:
    """out[i, m] = distance of q_i and x_j with j = indices[i, m], where the queries q are the rows x if none are given.

    d/dq_i = sum over m of g[i, m] s(q_i, x_j),  d/dx_j = -(the same, summed over all i, m that name j), with s

    - euclidean: (q_i - x_j) / out, and 0 where out is 0,
    - sqeuclidean: 2 (q_i - x_j),
    - manhattan: sign(q_i - x_j), which is 0 at 0,
    - cosine, 1 - cos = |u - v|^2 / 2 with u = q_i / |q_i| and v = x_j / |x_j|: u - v, then through each division by
      the length. A row of zeros is 1 away from every other and 0 from its like, and gets gradient 0.
    """
    rows = X if queries is None else queries
    space = Space.of(metric, X) if queries is None else Space.of(metric, X, queries)
    k, width = indices.shape[1], X.shape[1]
    out = torch.empty(indices.shape, dtype=X.dtype, device=X.device)
    for part in parts(len(rows), k * width, tile, X.device):
        theirs = X.index_select(0, indices[part].reshape(-1)).view(-1, k, width)
        out[part] = space.finish(space.pairs(rows[part].unsqueeze(1), theirs))
    return out


@neighbor_distances.vjp("X", "queries")
def _(
    g: Tensor, X: Tensor, indices: Tensor, queries: Any, metric: str, tile: int, out: Tensor, need: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    rows = X if queries is None else queries
    points, askers = (unit(X), unit(rows)) if metric == "cosine" else (X, rows)
    numbers = torch.arange(len(rows), device=X.device).repeat_interleave(indices.shape[1])
    slope, length = g.reshape(-1), out.reshape(-1) if metric == "euclidean" else None
    to_rows = to_points = None
    if need[1] or queries is None:
        to_rows = _pulls(askers, points, numbers, indices.reshape(-1), slope, length, metric, tile)
    if need[0]:
        named, order = torch.sort(indices.reshape(-1), stable=True)
        length = None if length is None else length[order]
        to_points = _pulls(points, askers, named, numbers[order], slope[order], length, metric, tile)
        to_points = to_points if to_rows is None or queries is not None else to_points.add_(to_rows)
    if metric == "cosine":
        to_points = None if to_points is None else _through_length(to_points, X, points)
        to_rows = None if to_rows is None else _through_length(to_rows, rows, askers)
    return to_points, to_rows if need[1] else None


def _pulls(
    own: Tensor,
    others: Tensor,
    owner: Tensor,
    other: Tensor,
    slope: Tensor,
    length: Tensor | None,
    metric: str,
    tile: int,
) -> Tensor:
    """For each row v of `own` the sum of slope * s(own_v, others_u) over its pairs; `owner` (of pairs) is rising.

    A pair pulls its two ends by opposite vectors, so both ends are served by this one function. The pairs of a row are
    added one after another, in their order: the same bits at any thread count, tile, and on a GPU.
    """
    out = torch.zeros_like(own, memory_format=torch.contiguous_format)
    first = torch.searchsorted(owner, torch.arange(len(own) + 1, device=owner.device))
    for rows, part in _row_parts(first.cpu(), own.shape[1], tile, own.device):
        pull = own.index_select(0, owner[part]).sub_(others.index_select(0, other[part]))
        if metric == "manhattan":
            pull.sign_()
        if length is not None:  # the division first: it leaves numbers of at most 1
            pull.div_(length[part].masked_fill(length[part] == 0, torch.inf).unsqueeze(1))
        pull.mul_((2 * slope[part] if metric == "sqeuclidean" else slope[part]).unsqueeze(1))
        bags = first[rows] - part.start
        out[rows] = F.embedding_bag(torch.arange(len(pull), device=own.device), pull, bags, mode="sum")
    return out


def _row_parts(first: Tensor, width: int, tile: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Slices of rows and of their pairs, where row v has the pairs first[v] to first[v + 1]; whole rows only."""
    for wanted in parts(int(first[-1]), width, tile, device):
        # the rows whose first pair lies in this part
        low, high = torch.searchsorted(first[:-1], torch.tensor([wanted.start, wanted.stop])).tolist()
        if high > low:
            yield slice(low, high), slice(int(first[low]), int(first[high]))


def _through_length(pull: Tensor, rows: Tensor, units: Tensor) -> Tensor:
    """The gradient of the rows from that of the rows divided by their length: (p - u (u.p)) / |x|, and 0 for x = 0."""
    pull, units = pull[:, :-1], units[:, :-1]
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    across = pull - units * (units * pull).sum(1, keepdim=True)
    return across / length.masked_fill(length == 0, torch.inf)


@neighbor_distances.restate
def _(X: Any, indices: Any, queries: Any, metric: str, tile: int) -> Any:
    rows = X if queries is None else queries
    if metric == "cosine":
        rows, X = _unit_again(rows), _unit_again(X)
    theirs = torch.index_select(X, 0, indices.reshape(-1)).reshape(*indices.shape, X.shape[1])
    difference = rows.unsqueeze(1) - theirs
    if metric == "manhattan":
        return torch.abs(difference).sum(-1)
    if metric == "euclidean":
        return _length_again(difference)[0].squeeze(-1)
    return (difference * difference).sum(-1) / (2 if metric == "cosine" else 1)


def _length_again(rows: Any) -> tuple[Any, Any]:
    """Lengths along the last axis, with all derivatives 0 where they are 0, and where that is."""
    zero = torch.linalg.vector_norm(raw(rows).detach(), dim=-1, keepdim=True) == 0
    length = torch.linalg.vector_norm(torch.masked_fill(rows, zero, 1.0), dim=-1, keepdim=True)
    return torch.masked_fill(length, zero, 0.0), zero


def _unit_again(rows: Any) -> Any:
    length, zero = _length_again(rows)
    return torch.cat([rows / torch.masked_fill(length, zero, 1.0), zero.to(rows.dtype)], -1)


@neighbor_distances.example
def _(make: Any) -> Any:
    return make(5, 3), torch.tensor([[1, 4], [0, 2], [1, 0], [4, 1], [3, 0]])


@neighbor_distances.example
def _(make: Any) -> Any:
    return make(4, 2), torch.tensor([[3, 1], [0, 3]]), make(2, 2), "sqeuclidean"


@neighbor_distances.example
def _(make: Any) -> Any:
    return make(4, 2), torch.tensor([[3, 1], [0, 3], [3, 0]]), make(3, 2), "manhattan", 1


@neighbor_distances.example
def _(make: Any) -> Any:
    return make(4, 3), torch.tensor([[3, 1], [0, 3], [1, 0], [0, 2]]), None, "cosine"


@neighbor_distances.example
def _(make: Any) -> Any:
    return make(4, 3), torch.tensor([[3, 1], [0, 3]]), make(2, 3), "cosine"


@primitive(extra=True)
def picked_distances(distances: Tensor, indices: Tensor) -> Any:
    """out[i, m] = distances[i, indices[i, m]].   d/ddistances = g, scattered to those places: g, not g / d"""
    return distances.gather(1, indices), tuple(distances.shape)


@picked_distances.vjp("distances")
def _(g: Any, indices: Tensor, extra: tuple[int, int]) -> Any:
    # a row names no column twice, so nothing is added up, and the order of writing does not matter
    return torch.scatter(torch.zeros(extra, dtype=g.dtype, device=g.device), 1, indices, g)


@picked_distances.example
def _(make: Any) -> Any:
    return make(3, 4), torch.tensor([[3, 0], [1, 2], [0, 1]])
