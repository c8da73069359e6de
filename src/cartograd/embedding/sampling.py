r"""Negatives: rows drawn uniformly from all that are allowed, by counting.

The draws of row i at step t are numbers of one stream, found by (seed, step, row, draw) alone: they do not depend
on the number of threads, on how rows are cut into pieces, or on what else is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cartograd.affinity.counter import below, small_integers, stream, uniform
from cartograd.errors import OptionError
from cartograd.neighbors import Graph


@dataclass(frozen=True)
class Complement:
    r"""For each row, the rows it may be pushed away from.

    With the excluded rows :math:`e_0 < e_1 < \dots` of row i and r uniform among the n - m that are left, the draw is

    .. math:: r + \#\{t : e_t - t \le r\}

    which is uniform over the complement. Rows may have different numbers of exclusions.

    Parameters
    ----------
    n : int
        The number of rows.
    allowed : torch.Tensor
        (n,) int64, how many are left for each row.
    keys : torch.Tensor
        (e,) int64, e_t - t + i (n + 1) of all rows i in turn, rising.
    indptr : torch.Tensor
        (n + 1,) where each row's keys begin.
    """

    n: int
    allowed: torch.Tensor
    keys: torch.Tensor
    indptr: torch.Tensor

    @classmethod
    def of_self(cls, n: int, device: torch.device) -> Complement:
        """All rows but the row itself."""
        own = torch.arange(n, device=device)
        return cls._of(n, own, own)

    @classmethod
    def of_neighbours(cls, graph: Graph) -> Complement:
        """All rows but the row itself and its neighbours in the graph."""
        own = torch.arange(graph.n, device=graph.device)
        keys = torch.cat([own * graph.n + own, graph.rows() * graph.n + graph.indices])
        keys = torch.unique(keys, sorted=True)
        return cls._of(graph.n, torch.div(keys, graph.n, rounding_mode="floor"), keys % graph.n)

    @classmethod
    def _of(cls, n: int, rows: torch.Tensor, excluded: torch.Tensor) -> Complement:
        counts = torch.bincount(rows, minlength=n)
        indptr = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])
        rank = torch.arange(len(rows), device=rows.device) - indptr[rows]
        return cls(n, n - counts, excluded - rank + rows * (n + 1), indptr)

    def check(self, wanted: int, name: str = "n_negatives") -> None:
        """Refuse rows that may be pushed away from fewer than `wanted` others."""
        fewest = int(self.allowed.min())
        if fewest < wanted:
            row = int(self.allowed.argmin())
            raise OptionError(
                f"{name}={wanted}, but only {fewest} of the {self.n} rows are neither row {row} nor its neighbours; "
                f"use {name} <= {fewest}, discard_NNs=False, fewer neighbours or more rows"
            )

    def draw(self, rows: torch.Tensor, counters: torch.Tensor, key: int) -> torch.Tensor:
        """One allowed row for each of `rows`, drawn with the numbers `counters` of the stream `key`, (m,) int64.

        By 32 random bits each, so off the even by at most n 2^-32.
        """
        if len(self.keys) == self.n:  # only the row itself is excluded
            rank = below(key, counters, self.n - 1)
            return rank.add_(rank >= rows)
        rank = below(key, counters, self.allowed[rows])
        offset = rows * (self.n + 1)
        return rank + torch.searchsorted(self.keys, offset + rank, right=True) - self.indptr[rows]

    def draw_all(self, count: int, seed: int, step: int, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """`count` allowed rows for each of the rows start to stop, with repetition, (stop - start, count) int64."""
        rows = torch.arange(start, self.n if stop is None else stop, device=self.keys.device)
        key = stream(seed, "negatives", step)
        allowed = self.allowed[rows, None]
        if self.n <= 1 << 24:
            rank = small_integers(key, allowed, (len(rows), count), start)
        else:
            rank = (uniform(key, (len(rows), count), rows.device, first=start * count) * allowed).to(torch.int64)
        if len(self.keys) == self.n:  # only the row itself is excluded
            return rank.add_(rank >= rows[:, None])
        place = torch.searchsorted(self.keys, (rows[:, None] * (self.n + 1) + rank), right=True)
        return rank + place - self.indptr[rows, None]
