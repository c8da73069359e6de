"""The exact search behind `knn`: products find candidates, differences rank them; never a matrix of all pairs.

For a block of rows, tile after tile of ``|b|^2 - 2 a.b`` (about a centre, so that no digits are lost to an offset) is
made, and each row keeps its k best and a few spare. Those are measured again in float64 as ``sum (a - b)^2`` and
ranked, ties by index. A row whose last spare candidate is within rounding of its k-th neighbour could have lost one:
such rows are searched again by differences alone. Memory is O(n k + tile^2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

METRICS = ("cosine", "euclidean", "manhattan", "sqeuclidean")
SPARE = 6
"""Candidates kept beyond k, so that the rounding of a product pushes no true neighbour out."""


def default_tile(device: torch.device) -> int:
    """tile^2 scores are made at a time: on a CPU what its cache likes, on a GPU what keeps it busy."""
    return 2048 if device.type == "cpu" else 8192


def sides(tile: int) -> tuple[int, int]:
    """Rows and columns of a tile. Wide ones: the fewer there are in a row, the less is chosen twice."""
    rows = max(1, tile // 4)
    return rows, max(1, tile * tile // rows)


def parts(count: int, each: int, tile: int, device: torch.device) -> Iterator[slice]:
    """`count` things of `each` numbers in slices that hold no more numbers than a tile, or than a cache likes."""
    step = max(1, min(tile * tile, 1 << (20 if device.type == "cpu" else 25)) // max(1, each))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def unit(rows: Tensor) -> Tensor:
    """Rows divided by their length, and a column that is 1 for a row of zeros: at a right angle to all others."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    zero = length == 0
    return torch.cat([rows / length.masked_fill(zero, 1), zero.to(rows.dtype)], dim=-1)


@dataclass(frozen=True)
class Space:
    """How rows are measured: the metric, and a power of two that keeps squares in range."""

    metric: str
    factor: float

    @classmethod
    def of(cls, metric: str, *tables: Tensor) -> Space:
        """The space of these tables, all of one dtype."""
        largest = max(float(table.abs().amax()) for table in tables)
        limit = 120 if tables[0].dtype is torch.float32 else 1000
        exponent = max(-limit, min(limit, math.frexp(largest)[1])) if largest > 0 else 0
        return cls(metric, math.ldexp(1.0, -exponent))

    def place(self, rows: Tensor) -> Tensor:
        """Rows as they are compared: scaled, and of length one for cosine."""
        rows = rows * self.factor
        return unit(rows) if self.metric == "cosine" else rows

    def pairs(self, own: Tensor, theirs: Tensor) -> Tensor:
        """The sum of squared (manhattan: absolute) differences of rows given in full, in float64."""
        difference = self.place(own.to(torch.float64)) - self.place(theirs.to(torch.float64))
        return (difference.abs_() if self.metric == "manhattan" else difference.square_()).sum(-1)

    def all_pairs(self, own: Tensor, theirs: Tensor) -> Tensor:
        """The same for every row of one with every row of the other, (r, m), also by differences."""
        own, theirs = self.place(own.to(torch.float64)), self.place(theirs.to(torch.float64))
        if self.metric == "manhattan":
            return torch.cdist(own, theirs, p=1.0)
        return torch.cdist(own, theirs, compute_mode="donot_use_mm_for_euclid_dist").square_()

    def finish(self, raw: Tensor) -> Tensor:
        """What `pairs` gave, as distances."""
        if self.metric == "cosine":
            return raw / 2  # |u - v|^2 = 2 (1 - u.v)
        if self.metric == "euclidean":
            return raw.sqrt() / self.factor
        return raw / self.factor / (self.factor if self.metric == "sqeuclidean" else 1.0)


class Scores:
    """Fast, rounded values of `Space.pairs` for tiles; those of the squared metrics lack the row's own |a|^2."""

    def __init__(self, space: Space, data: Tensor) -> None:
        self.space = space
        self.by_products = space.metric != "manhattan"
        self.dtype = data.dtype if _products_are_full() else torch.float64
        ids = torch.linspace(0, len(data) - 1, min(len(data), 1023), dtype=torch.float64).round().long()
        sample = torch.sort(space.place(data.index_select(0, ids.to(data.device)).to(self.dtype)), dim=0).values
        self.centre = sample[len(sample) // 2]  # the median: outliers do not move it

    def place(self, rows: Tensor) -> Tensor:
        """Rows about the centre."""
        rows = self.space.place(rows.to(self.dtype))
        return rows - self.centre if self.by_products else rows

    def tile(self, own: Tensor, theirs: Tensor) -> Tensor:
        """The scores of placed rows, (r, m)."""
        if not self.by_products:
            return torch.cdist(own, theirs, p=1.0)
        return torch.addmm(_squares(theirs)[None, :], own, theirs.T, alpha=-2)

    def doubtful(self, own: Tensor, last: Tensor, edge: Tensor) -> Tensor:
        """Rows whose worst kept score may, but for rounding, be below their k-th true value `edge`.

        The rounding of a product of d terms is of the order eps sqrt(d) (|a|^2 + |b|^2), and
        |b|^2 <= 2 |a|^2 + 2 |a - b|^2.
        """
        squares = _squares(own) if self.by_products else torch.zeros_like(last)
        eps = torch.finfo(own.dtype).eps * (4 + math.sqrt(own.shape[1]))
        return last + squares <= edge + 2 * eps * (3 * squares + 2 * edge)


def _squares(rows: Tensor) -> Tensor:
    return (rows * rows).sum(-1)


def _products_are_full() -> bool:
    """Whether float32 matrices are multiplied in float32, and not in the 10 bits of a tensor core."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # both of torch's ways to say so have been used
        return False


@torch.no_grad()
def nearest(data: Tensor, queries: Tensor, k: int, metric: str, without_self: bool, tile: int) -> Tensor:
    """The ids of the k nearest rows of `data` for each of `queries`, (m, k) int64; nearest first, ties by id.

    With `without_self`, query i is row i of `data`, and left out of its own list.
    """
    space = Space.of(metric, data) if queries is data else Space.of(metric, data, queries)
    scores = Scores(space, data)
    ids = torch.empty((len(queries), k), dtype=torch.int64, device=data.device)
    doubtful, rows = [], sides(tile)[0]
    for start in range(0, len(queries), rows):
        names = torch.arange(start, min(start + rows, len(queries)), device=data.device)
        found, doubt = _by_products(scores, data, queries, names, k, without_self, tile)
        ids[names] = found
        doubtful.append(names[doubt])
    for names in torch.cat(doubtful).split(rows):
        ids[names] = _by_differences(space, data, queries, names, k, without_self, tile)
    return ids


def _by_products(
    scores: Scores, data: Tensor, queries: Tensor, names: Tensor, k: int, without_self: bool, tile: int
) -> tuple[Tensor, Tensor]:
    """Neighbours of the queries called `names`, and which of these may have lost one to rounding."""
    available = len(data) - without_self
    width = min(k + SPARE, available)
    own = scores.place(queries.index_select(0, names))
    value = torch.full((len(names), width), torch.inf, dtype=own.dtype, device=data.device)
    ids = torch.zeros((len(names), width), dtype=torch.int64, device=data.device)
    columns = sides(tile)[1]
    for start in range(0, len(data), columns):
        new = scores.tile(own, scores.place(data[start : start + columns]))
        _leave_out(new, names, start, without_self)
        new, at = new.topk(min(width, new.shape[1]), dim=1, largest=False, sorted=False)
        value, chosen = torch.cat([value, new], 1).topk(width, dim=1, largest=False, sorted=False)
        ids = torch.cat([ids, at + start], 1).gather(1, chosen)
    ids, raw = _ranked(scores.space, data, queries, names, ids, tile)
    if width == available:
        return ids[:, :k], torch.zeros(len(names), dtype=torch.bool, device=data.device)
    return ids[:, :k], scores.doubtful(own, value.amax(1), raw[:, k - 1].to(own.dtype))


def _by_differences(
    space: Space, data: Tensor, queries: Tensor, names: Tensor, k: int, without_self: bool, tile: int
) -> Tensor:
    """The same with no rounding to speak of, and slowly."""
    own = queries.index_select(0, names)
    value = torch.full((len(names), k), torch.inf, dtype=torch.float64, device=data.device)
    ids = torch.zeros((len(names), k), dtype=torch.int64, device=data.device)
    columns = sides(tile)[1]
    for start in range(0, len(data), columns):
        new = space.all_pairs(own, data[start : start + columns])
        _leave_out(new, names, start, without_self)
        here = torch.arange(start, start + new.shape[1], device=data.device).expand_as(new)
        value, here = torch.cat([value, new], 1), torch.cat([ids, here], 1)
        chosen = lowest(value, k)  # older columns have lower ids, and so win ties
        value, ids = value.gather(1, chosen), here.gather(1, chosen)
    return ids


def _leave_out(scores: Tensor, names: Tensor, start: int, without_self: bool) -> None:
    """Put row i out of its own reach, in the tile whose columns begin at `start`."""
    if without_self:
        at = names - start
        row = torch.nonzero((at >= 0) & (at < scores.shape[1])).squeeze(1)
        scores[row, at[row]] = torch.inf


def _ranked(
    space: Space, data: Tensor, queries: Tensor, names: Tensor, ids: Tensor, tile: int
) -> tuple[Tensor, Tensor]:
    """Candidates nearest first by exact measure, ties by id, and their measures."""
    ids = torch.sort(ids, dim=1).values
    raw = torch.empty(ids.shape, dtype=torch.float64, device=ids.device)
    for part in parts(len(names), ids.shape[1] * data.shape[1], tile, data.device):
        theirs = data.index_select(0, ids[part].reshape(-1)).view(-1, ids.shape[1], data.shape[1])
        raw[part] = space.pairs(queries.index_select(0, names[part])[:, None], theirs)
    raw, order = torch.sort(raw, dim=1, stable=True)
    return ids.gather(1, order), raw


def lowest(scores: Tensor, k: int) -> Tensor:
    """Positions (r, k) of the k lowest of each row, lowest first, ties by position."""
    if k < scores.shape[1]:
        values, at = scores.topk(k + 1, dim=1, largest=False)
        tied = torch.nonzero(values[:, k] == values[:, k - 1]).squeeze(1)
        at = at[:, :k].contiguous()
        if len(tied):  # topk promises nothing about those
            at[tied] = torch.sort(scores[tied], dim=1, stable=True).indices[:, :k]
    else:
        at = torch.arange(k, device=scores.device).expand(len(scores), k)
    at = torch.sort(at, dim=1).values
    return at.gather(1, torch.sort(scores.gather(1, at), dim=1, stable=True).indices)


@torch.no_grad()
def smallest(matrix: Tensor, k: int, without_self: bool, tile: int) -> Tensor:
    """The columns of the k smallest values of each row, smallest first, ties by column, (n, k) int64."""
    ids = torch.empty((len(matrix), k), dtype=torch.int64, device=matrix.device)
    for part in parts(len(matrix), 4 * matrix.shape[1], tile, matrix.device):
        rows = matrix[part]
        if without_self:  # by taking the column out: infinity is a distance that may be given
            diagonal = torch.arange(part.start, part.stop, device=matrix.device)[:, None]
            columns = torch.arange(matrix.shape[1] - 1, device=matrix.device)
            columns = columns + (columns >= diagonal)
            ids[part] = columns.gather(1, lowest(rows.gather(1, columns), k))
        else:
            ids[part] = lowest(rows, k)
    return ids
