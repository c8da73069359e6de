"""The poster: a picture of the map that stands in the page until the map itself is drawn, and that is printed.

The poster is an SVG element of at most 60 kB. The map is cut into square cells, each cell with points in it becomes one
dot in the color of one of its points, and the dots of a color are one path. Where there are too many dots the cells
grow. The ground is transparent, so that the page's light or dark ground shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy

from cartograd.viewer.colors import MISSING, PALETTE, SCALE, category_colors
from cartograd.viewer.columns import Column

MOST_BYTES = 56_000
DOT_BYTES = 6
"""What the shortest dot takes."""
CELLS = (1024, 724, 512, 362, 304, 256, 215, 181, 152, 128, 108, 91, 76, 64, 45, 32)
"""Cells along the longer side, from the finest to the coarsest grid that is tried."""
LAYERS = 4
"""Paths a color: the other colors are drawn between them, so that no color covers the others."""
SCALE_STEPS = 32
USUAL_SIDE = 640
"""Pixels of the longer side in a usual window, for which the size of the dots is chosen."""


def poster(units: Any, column: Column | None, scale: tuple[float, float] | None, point_size: float | None) -> str:
    """Draw a map as an SVG element.

    Parameters
    ----------
    units : numpy.ndarray
        (n, 2) or (n, 3): the points in [-1, 1].
    column : Column or None
        The column that colors the points; None for one color.
    scale : (float, float) or None
        Where the color scale of a column of numbers begins and ends; None where the column has no number.
    point_size : float or None
        Diameter of a point in pixels; None chooses by the number of points.

    Examples
    --------
    >>> print(poster(numpy.array([[-1.0, 0.0], [1.0, 0.5]]), None, None, 9.0))
    <svg viewBox="-.5 -.5 1024 256"><g stroke-linecap="round" stroke-width="14.4"><path ...
    """
    codes, colors = _row_colors(len(units), column, scale)
    corner, extent, shape = _box(units)
    # the last point of a cell is drawn: in a random order, so that it is one of any color
    rows = numpy.random.default_rng(0).permutation(len(units))
    drawn = ""
    for cells in CELLS:
        places, last = _one_of_each(_cells_of(units, rows, corner, extent, cells), cells)
        if cells == CELLS[0]:
            rows, last = rows[last], slice(None)
        if len(places) * DOT_BYTES > MOST_BYTES:
            continue
        diameter = max(_usual_diameter(len(units), point_size) * cells / USUAL_SIDE, 1.2)
        drawn = _element(shape * cells, diameter, _paths(places, codes[rows[last]], colors))
        if len(drawn) <= MOST_BYTES:
            break
    return drawn


def _row_colors(count: int, column: Column | None, scale: tuple[float, float] | None) -> tuple[Any, list[str]]:
    """The color of each row, as a place in the list of colors."""
    if column is None or (column.kind != "category" and scale is None):
        return numpy.zeros(count, dtype=numpy.int64), [PALETTE[0]]
    if column.kind == "category":
        return column.values, [*category_colors(len(column.names), column.unlabelled), MISSING]
    low, high = scale or (0.0, 1.0)
    with numpy.errstate(all="ignore"):  # infinite values, which are at the ends of the scale
        share = (column.values / 2 - low / 2) / (high / 2 - low / 2) if high > low else column.values * 0.0 + 0.5
    steps = numpy.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0).clip(0.0, 1.0) * (SCALE_STEPS - 1)
    codes = numpy.where(numpy.isnan(column.values), SCALE_STEPS, numpy.rint(steps).astype(numpy.int64))
    return codes, [*_scale_colors(), MISSING]


def _scale_colors() -> list[str]:
    """The colors of the scale's steps, mixed between its stops."""
    stops = numpy.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in SCALE])
    places = numpy.linspace(0, len(SCALE) - 1, SCALE_STEPS)
    mixed = [numpy.interp(places, numpy.arange(len(SCALE)), stops[:, part]) for part in range(3)]
    return ["#" + "".join(f"{round(part):02x}" for part in color) for color in numpy.column_stack(mixed).tolist()]


def _box(units: Any) -> tuple[Any, float, Any]:
    """The left upper corner of what is shown at first, its longer side, and both sides as shares of that one."""
    if units.shape[1] == 3:  # a map that turns is shown within its sphere
        radius = max(float(numpy.sqrt((units**2).sum(axis=1).max())), 1e-6)
        return numpy.array([-radius, radius]), 2 * radius, numpy.ones(2)
    low, high = units.min(axis=0), units.max(axis=0)
    extent = float((high - low).max())
    if extent < 1e-6:
        return (low + high) / 2 + numpy.array([-0.5, 0.5]), 1.0, numpy.ones(2)
    return numpy.array([low[0], high[1]]), extent, (high - low) / extent


def _cells_of(units: Any, rows: Any, corner: Any, extent: float, cells: int) -> Any:
    """The cell of each of these rows: its column from the left and its row from the top."""
    shares = (units[rows, :2] - corner) * numpy.array([1.0, -1.0]) / extent
    return (shares * cells).astype(numpy.int64).clip(0, cells - 1)


def _one_of_each(places: Any, cells: int) -> tuple[Any, Any]:
    """The cells that have any rows, and the last row of each, in the rows' order."""
    last = numpy.full(cells * cells, -1, dtype=numpy.int64)
    last[places[:, 1] * cells + places[:, 0]] = numpy.arange(len(places))
    last = numpy.sort(last[last >= 0])
    return places[last], last


def _usual_diameter(count: int, point_size: float | None) -> float:
    """The diameter of a point in pixels, as the page chooses it."""
    return point_size or float(numpy.clip(9 * (1000 / count) ** 0.25, 1.5, 9))


def _paths(places: Any, codes: Any, colors: list[str]) -> Iterator[str]:
    for layer in range(LAYERS):
        here, named = places[layer::LAYERS], numpy.array(colors)[codes[layer::LAYERS]]
        for color in numpy.unique(named):
            yield f'<path stroke="{color}" d="{_dots(here[named == color])}"/>'


def _dots(places: Any) -> str:
    """Lines of no length, which round caps make dots; each begins relative to the one before it."""
    ordered = places[numpy.lexsort((places[:, 1], places[:, 0]))]
    steps = numpy.diff(ordered, axis=0, prepend=numpy.zeros((1, 2), dtype=ordered.dtype)).tolist()
    return "".join(f"m{right}{'' if down < 0 else ' '}{down}h0" for right, down in steps).replace("m", "M", 1)


def _element(sides: Any, diameter: float, paths: Iterator[str]) -> str:
    wide, high = (f"{max(side, 1.0):.6g}" for side in sides.tolist())
    style = f'stroke-linecap="round" stroke-width="{diameter:.3g}"'
    return f'<svg viewBox="-.5 -.5 {wide} {high}"><g {style}>{"".join(paths)}</g></svg>'
