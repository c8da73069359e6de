"""Which way to compute t-SNE's repulsion."""

from __future__ import annotations

from typing import Literal

EXACT_ROWS = {1: 1_000, 2: 4_000, 3: 20_000}
"""Up to so many points, all pairs take no longer than the transforms of a grid, for a map of so many dimensions."""


def choose(n: int, c: int) -> Literal["exact", "fft"]:
    """The faster way for n points in c dimensions: "fft" for many points in at most three, "exact" for the others."""
    return "fft" if n > EXACT_ROWS.get(c, n) else "exact"
