"""Which rows a process owns: whole blocks of rows, cut in the same places for any number of processes.

A row is computed in the same way wherever it stands in a vector register or tile, as long as ranges begin at a multiple
of the register's length; that is why maps have the same bits for 1, 2 and 4 processes.
"""

from __future__ import annotations

BLOCK = 64
"""Rows of a block of a small map."""
LARGE = 4000
"""From so many rows on blocks are larger: parts of the rows that kernels work on one by one."""
PARTS, LEAST_PART, MULTIPLE = 16, 1024, 256


def block_rows(n: int, parts: int = 1) -> int:
    """How many rows a block of a map of n rows has; with more processes than `PARTS`, fewer."""
    if n < LARGE:
        return BLOCK
    return MULTIPLE if parts > PARTS else max(LEAST_PART, -(-n // (PARTS * MULTIPLE)) * MULTIPLE)


def row_bounds(n: int, parts: int) -> list[int]:
    """Where the ranges of `parts` processes begin among n rows, and n: ``parts + 1`` numbers, at ends of blocks.

    Examples
    --------
    >>> row_bounds(300, 2), row_bounds(300, 4)
    ([0, 128, 300], [0, 64, 128, 192, 300])
    """
    block = block_rows(n, parts)
    blocks = -(-n // block)
    return [min(n, block * (blocks * part // parts)) for part in range(parts)] + [n]
