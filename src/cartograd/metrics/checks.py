"""What can be wrong with the arguments of a score, each with its message, checked before any work."""

from __future__ import annotations

from typing import Any

from cartograd.errors import InputError, OptionError
from cartograd.neighbors.intake import Given
from cartograd.neighbors.validate import check_count


def check_same_rows(X: Given, Z: Given) -> None:
    """Refuse a map that has not one point for every row."""
    if X.rows.count != Z.rows.count:
        raise InputError(
            f"X has {X.rows.count} rows and Z has {Z.rows.count}: row i of Z must be the place of row i of X on the map"
        )


def rank_count(k: Any, n_neighbors: Any, count: int) -> int:
    """The k of trustworthiness and continuity, whose normalisation holds for k < n/2 only.

    There ``2n - 3k - 1 > 0``, and ``n k (2n - 3k - 1) / 2`` is the largest possible sum of rank errors.
    """
    if n_neighbors is not None:
        if k != 15:
            raise OptionError(
                f"n_neighbors is another name of k: give one of them, got k={k}, n_neighbors={n_neighbors}"
            )
        k = n_neighbors
    if count < 3:
        raise InputError(f"X has {count} rows, and ranks of neighbours need at least 3")
    k = check_count(k, count, without_self=True)
    if 2 * k >= count:
        raise OptionError(
            f"k={k} is too large for {count} rows: the score is defined for k < n / 2 only; use k <= {(count - 1) // 2}"
        )
    return k
