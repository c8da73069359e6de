"""One process's part of a map: its rows, and what it asks of the others about theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from cartograd.distributed.group import Ranks


@dataclass(frozen=True)
class Part:
    """The rows of a map that this process owns.

    Parameters
    ----------
    ranks : Ranks
        The processes.
    bounds : list of int
        Where the rows of each begin, and how many there are in all.
    """

    ranks: Ranks
    bounds: list[int]

    @property
    def own(self) -> slice:
        """The rows of this process."""
        return slice(self.bounds[self.ranks.rank], self.bounds[self.ranks.rank + 1])

    def share(self, places: torch.Tensor) -> None:
        """Get the others' rows of a layout (n, c), of which this process has moved its own."""
        self.ranks.share_rows(places, self.bounds)

    def whole(self, own: torch.Tensor, what: str) -> torch.Tensor:
        """Values of all rows, (n, ...), from those of each process's own."""
        return self.ranks.gathered(own, what)

    def total(self, own: torch.Tensor, what: str) -> torch.Tensor:
        """The sum of the processes' values."""
        return self.ranks.total(own, what)

    def placed(self, own: torch.Tensor, n: int) -> torch.Tensor:
        """Values of own rows among those of all n, which are 0."""
        out = own.new_zeros((n, *own.shape[1:]))
        out[self.own] = own
        return out

    def sums_of_own(self, values: torch.Tensor, what: str) -> torch.Tensor:
        """For own rows the sum over all processes of their values (n, ...), (m, ...), added up as a tree."""
        parts = [values[a:b] for a, b in pairwise(self.bounds)]
        return tree_sum(self.ranks.exchanged(parts, what))


def tree_sum(parts: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """The sum of tensors, neighbours first: ((a + b) + (c + d)) + ...; None where a place has none, but not in all.

    What 2, 4 or 8 processes hold of 8 places are branches of the tree, so that it does not matter who adds which.
    """
    level = list(parts)
    while len(level) > 1:
        level = [_added(level[i], level[i + 1] if i + 1 < len(level) else None) for i in range(0, len(level), 2)]
    assert level[0] is not None
    return level[0]


def _added(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b
