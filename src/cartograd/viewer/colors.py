"""The colours of the page and the picture: one palette for categories, one scale for numbers.

The palette was chosen one colour at a time. Each is the one whose smallest OKLab distance to the earlier ones is
largest, the smallest also over how protanopes, deuteranopes and tritanopes see them (Machado, Oliveira and Fernandes,
2009), among colours of middling lightness that stand out from white and from near-black. The first ten stay 0.11
apart in ordinary, protan and deutan vision, where those of matplotlib's default cycle come as near as 0.007.
"""

from __future__ import annotations

import itertools

PALETTE: tuple[str, ...] = (
    "#3b6fb5",
    "#e8833a",
    "#66c1fe",
    "#9a3c02",
    "#add8ac",
    "#659da5",
    "#febf12",
    "#803d67",
    "#c55c49",
    "#9c81f7",
    "#87b993",
    "#a3587b",
    "#244eb5",
    "#6adeef",
    "#5489c5",
    "#6fb8c7",
    "#d96a7b",
    "#fa9e59",
    "#776de0",
    "#904c51",
)
"""Categories take these in turn; the twenty-first begins again."""

SCALE: tuple[str, ...] = (
    "#46307e",
    "#3c4f8a",
    "#306a8e",
    "#26828e",
    "#1e9b8a",
    "#2eb37c",
    "#5cc863",
    "#9bd93c",
    "#dfe318",
)
"""Numbers, low to high: viridis without its darkest and lightest ends, which white or black would swallow."""

MISSING = "#a9abb0"
"""Rows without a value."""


def category_colors(count: int, unlabelled: int | None = None) -> list[str]:
    """One colour for each of `count` categories; the one that stands for no category is grey and takes none.

    Parameters
    ----------
    count : int
        How many.
    unlabelled : int or None, default=None
        The category that stands for none.

    Examples
    --------
    >>> category_colors(2)
    ['#3b6fb5', '#e8833a']
    >>> category_colors(2, unlabelled=0)
    ['#a9abb0', '#3b6fb5']
    """
    colors = itertools.cycle(PALETTE)
    return [MISSING if code == unlabelled else next(colors) for code in range(count)]
