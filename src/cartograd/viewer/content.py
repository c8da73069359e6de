"""What a page holds: a header that describes the map and its columns, blocks with their values, and the poster."""

from __future__ import annotations

from typing import Any

import numpy

from cartograd.errors import OptionError
from cartograd.viewer.colors import MISSING, PALETTE, SCALE
from cartograd.viewer.columns import Column
from cartograd.viewer.pack import Blocks
from cartograd.viewer.places import densest_places
from cartograd.viewer.points import map_points, spread
from cartograd.viewer.poster import poster
from cartograd.viewer.table import read_table
from cartograd.viewer.thumbnails import thumbnails

FORMAT = 1
QUANTISED_FROM = 300_000
"""Maps of more points are stored in steps of 1/65535 of their extent, in half the space."""
LABELLED = 1000
"""Columns of more categories get no names on the map."""


def content(
    embedding: Any, *, data: Any, color: Any, label: Any, text: Any, images: Any, title: str, point_size: float | None
) -> tuple[dict[str, Any], Blocks, str]:
    """Return the header, the blocks and the poster of a page; the arguments are those of `write_page`."""
    points = map_points(embedding)
    if point_size is not None and not 0 < point_size <= 100:
        raise OptionError(f"point_size must be above 0 and at most 100 pixels, got {point_size}")
    table = read_table(len(points), data, color=color, label=label, text=text)
    blocks = Blocks()
    shown = spread(points) if points.shape[1] == 1 else points
    units, place = _units(shown)
    header = {
        "format": FORMAT,
        "title": str(title),
        "count": len(points),
        "dimensions": points.shape[1],
        "coordinates": _coordinates(units, blocks) | place,
        "columns": [_column(column, units, blocks) for column in table.columns],
        "color": table.color,
        "label": table.label,
        "text": table.text,
        "images": None if images is None else _images(images, len(points), blocks),
        "pointSize": point_size,
        "palette": list(PALETTE),
        "scale": list(SCALE),
        "missing": MISSING,
    }
    colored = None if table.color is None else table.columns[table.color]
    return header, blocks, poster(units, colored, _scale_of(colored), point_size)


def _scale_of(column: Column | None) -> tuple[float, float] | None:
    """Where the color scale of a column begins and ends; None for categories, and where there is no number."""
    if column is None or column.kind == "category":
        return None
    ends = _range(column.values)
    return None if ends["low"] is None or ends["high"] is None else (ends["low"], ends["high"])


def _units(points: Any) -> tuple[Any, dict[str, Any]]:
    """The points moved and scaled as one into [-1, 1], and how to undo it: ``x = offset + factor u``."""
    low, high = points.min(axis=0), points.max(axis=0)
    offset = low / 2 + high / 2
    factor = float((high / 2 - low / 2).max())
    # a factor so small that dividing by it overflows belongs to points that are one point
    factor = factor if factor > 1e-300 else 1.0
    return (points - offset) / factor, {"offset": offset.tolist(), "factor": factor}


def _coordinates(units: Any, blocks: Blocks) -> dict[str, Any]:
    """Places as float32, or of very many points as uint16 from -1 (0) to 1 (65535)."""
    if len(units) <= QUANTISED_FROM:
        return {"block": blocks.add(units.astype(numpy.float32)), "type": "float32", "width": units.shape[1]}
    steps = numpy.rint((units + 1.0) * 32767.5).clip(0, 65535).astype(numpy.uint16)
    return {"block": blocks.add(steps), "type": "uint16", "width": units.shape[1]}


def _column(column: Column, units: Any, blocks: Blocks) -> dict[str, Any]:
    described: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.kind in ("number", "time"):
        values = _numbers(column.values)
        return described | {"block": blocks.add(values), "type": str(values.dtype)} | _range(column.values)
    codes = column.values.astype(_code_type(len(column.names)))
    described |= {"block": blocks.add(codes), "type": str(codes.dtype)}
    described |= {"names": blocks.add_strings(column.names), "distinct": len(column.names)}
    if column.kind == "category":
        counts = numpy.bincount(column.values, minlength=len(column.names) + 1)
        described |= {"counts": blocks.add(counts.astype(numpy.uint32)), "unlabelled": column.unlabelled}
        if len(column.names) <= LABELLED:
            places = densest_places(units, column.values, len(column.names))
            described["places"] = blocks.add(places.astype(numpy.float32))
    return described


def _code_type(distinct: int) -> Any:
    """The smallest kind that holds the codes and the one for a missing value."""
    return numpy.uint8 if distinct < 2**8 else numpy.uint16 if distinct < 2**16 else numpy.uint32


def _numbers(values: Any) -> Any:
    """As float32, unless that would lose more than a millionth of the range or a whole number's last digit."""
    finite = values[numpy.isfinite(values)]
    if len(finite) == 0:
        return values.astype(numpy.float32)
    if numpy.abs(finite).max() > 3e38:
        return values
    error = float(numpy.abs(finite.astype(numpy.float32).astype(numpy.float64) - finite).max())
    whole = bool((finite == numpy.floor(finite)).all())
    close = error == 0.0 if whole else error <= 1e-6 * float(numpy.ptp(finite))
    return values.astype(numpy.float32) if close else values


def _range(values: Any) -> dict[str, float | None]:
    """Where the colour scale begins and ends: at the extremes, or without the outer hundredths if those are far out."""
    finite = values[numpy.isfinite(values)]
    if len(finite) == 0:
        return {"low": None, "high": None, "least": None, "most": None}
    low, high = numpy.quantile(finite, [0.01, 0.99]).tolist()
    least, most = float(finite.min()), float(finite.max())
    if low == high or most / 2 - least / 2 <= 1.5 * (high - low):
        low, high = least, most
    return {"low": low, "high": high, "least": least, "most": most}


def _images(images: Any, count: int, blocks: Blocks) -> dict[str, int]:
    small = thumbnails(images, count)
    _, height, width, channels = small.shape
    return {"block": blocks.add(small), "height": height, "width": width, "channels": channels}
