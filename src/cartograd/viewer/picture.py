"""`plot`: a map as a matplotlib picture."""

from __future__ import annotations

import importlib
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from cartograd.errors import InputError, MissingExtraError, OptionError
from cartograd.io.atomic import open_atomic
from cartograd.viewer.colors import MISSING, SCALE, category_colors
from cartograd.viewer.columns import Column, column
from cartograd.viewer.places import densest_places
from cartograd.viewer.points import map_points, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Palette = Sequence[Any] | Mapping[Any, Any] | str
MOST_ENTRIES = 30
"""Categories beyond this number are named on the map instead of beside it, the largest of them."""


def plot(
    embedding: Any,
    labels: Any = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    size: float | None = None,
    palette: Palette | None = None,
    legend: bool = True,
    save: str | os.PathLike[str] | None = None,
) -> Axes:
    """Draw a map with matplotlib.

    Parameters
    ----------
    embedding : array-like or tensor
        (n, 1), (n, 2) or (n, 3): the place of each row.
    labels : sequence or None, default=None
        One value for each row. Strings, truth values and few whole numbers are categories; other numbers get a
        colour scale. None, NaN, and -1 among cluster numbers are grey.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw; None makes a figure. A map of three dimensions needs one with ``projection="3d"``.
    title : str or None, default=None
        Stands above the map.
    size : float or None, default=None
        Diameter of a point, in typographic points; None chooses by the number of rows.
    palette : sequence or mapping or str or None, default=None
        Colours in the order of the categories, or a colour for each category, or the name of a matplotlib colour map;
        None takes colours that most colour-blind readers can tell apart.
    legend : bool, default=True
        Say what the colours mean.
    save : str or os.PathLike or None, default=None
        A file to write the figure to; its ending says the format.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> axes = plot([[0.0, 0.0], [1.0, 1.0]], ["a", "b"], title="two points")
    >>> axes.get_title(loc="left")
    'two points'
    """
    points = map_points(embedding)
    values = None if labels is None else _label_column(labels, len(points))
    if size is not None and not 0 < size <= 1000:
        raise OptionError(f"size must be above 0 and at most 1000 points, got {size}")
    if save is not None:
        _check_ending(Path(save))
    shown = spread(points) if points.shape[1] == 1 else points
    axes = _axes(ax, shown.shape[1])
    diameter = size or float(numpy.clip(6.0 * (1000 / len(points)) ** 0.25, 0.7, 6.5))
    style = {"s": diameter**2, "linewidths": 0, "alpha": 0.9 if len(points) < 20000 else 0.6, "rasterized": True}
    if values is None:
        _scatter(axes, shown, color=category_colors(1)[0], **style)
    elif values.kind == "category":
        _draw_categories(axes, shown, values, palette, style, legend)
    else:
        _draw_numbers(axes, shown, values, palette, style, legend)
    if title:
        _never_parsed(axes.set_title(_shown(title), loc="left", fontsize=13, fontweight="bold"))
    if save is not None:
        _save(axes, Path(save))
    return axes


def _matplotlib(module: str) -> Any:
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise MissingExtraError(
            f"plot needs matplotlib, which cannot be imported ({error}). "
            'Install it with: pip install "cartograd[plot]", or write a page with cartograd.viewer.write_page'
        ) from error


def _label_column(labels: Any, count: int) -> Column:
    name = getattr(labels, "name", None)
    found = column(str(name) if name is not None else "", labels, count)
    return column(found.name, labels, count, kind="category") if found.kind == "text" else found


def _axes(ax: Axes | None, dimensions: int) -> Any:
    if ax is None:
        options = {"projection": "3d"} if dimensions == 3 else {}
        figure = _matplotlib("pyplot").figure(figsize=(7.2, 6.0), layout="constrained")
        ax = figure.add_subplot(**options)
    elif (ax.name == "3d") != (dimensions == 3):
        raise InputError(
            f"the map has {dimensions} dimensions and ax is {'a' if ax.name == '3d' else 'not a'} 3d one: "
            "make it with projection='3d' for three, without for fewer"
        )
    axes: Any = ax
    if dimensions == 3:
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.set_ticklabels([])
            axis.set_pane_color((0.965, 0.965, 0.96, 1.0))
    else:
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
        axes.spines[:].set_visible(False)
    return axes


def _scatter(axes: Any, points: Any, **style: Any) -> Any:
    return axes.scatter(*points.T, **({"depthshade": True} if axes.name == "3d" else {}), **style)


def _draw_categories(
    axes: Any, points: Any, values: Column, palette: Palette | None, style: dict[str, Any], legend: bool
) -> None:
    colors = _category_palette(values, palette)
    grey = (values.values == len(values.names)) | (values.values == values.unlabelled)
    _scatter(axes, points[grey], color=MISSING, **style)
    # in a shuffled order, so that no category covers another
    order = numpy.random.default_rng(0).permutation(numpy.flatnonzero(~grey))
    _scatter(axes, points[order], color=numpy.array(colors)[values.values[order]], **style)
    if not legend:
        return
    if len(values.names) <= MOST_ENTRIES:
        _category_legend(axes, values, colors, bool(grey.any()))
    else:
        _category_names(axes, points, values)


def _category_legend(axes: Any, values: Column, colors: list[Any], with_grey: bool) -> None:
    line = _matplotlib("lines").Line2D
    entries = [
        (name, color)
        for code, (name, color) in enumerate(zip(values.names, colors, strict=True))
        if code != values.unlabelled
    ]
    entries += [("unlabelled", MISSING)] if with_grey else []
    handles = [line([], [], marker="o", linestyle="", markersize=7, color=color) for _, color in entries]
    made = axes.legend(
        handles,
        [_plain(name) for name, _ in entries],
        title=_plain(values.name) or None,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
        handletextpad=0.2,
        ncols=1 + (len(entries) > 15),
    )
    _never_parsed(made.get_title(), *made.get_texts())


def _category_names(axes: Any, points: Any, values: Column) -> None:
    effects = _matplotlib("patheffects")
    halo = [effects.withStroke(linewidth=2.5, foreground="white")]
    counts = numpy.bincount(values.values, minlength=len(values.names) + 1)[: len(values.names)]
    places = densest_places(points, values.values, len(values.names))
    apart = 0.05 * float(numpy.ptp(points, axis=0).max())
    named: list[Any] = []
    for code in numpy.argsort(-counts, kind="stable"):
        crowded = any(numpy.abs(places[code] - place).max() < apart for place in named)
        if counts[code] and code != values.unlabelled and not crowded and len(named) < MOST_ENTRIES:
            named.append(places[code])
            name = _plain(values.names[code])
            _never_parsed(axes.text(*places[code], name, ha="center", va="center", path_effects=halo))


def _draw_numbers(
    axes: Any, points: Any, values: Column, palette: Palette | None, style: dict[str, Any], legend: bool
) -> None:
    colors = _matplotlib("colors")
    if isinstance(palette, Mapping):
        raise OptionError("palette gives a colour for each category, and labels are numbers: name a colour map instead")
    scale = palette if isinstance(palette, str) else list(palette or SCALE)
    ramp = _colormap(scale) if isinstance(scale, str) else colors.LinearSegmentedColormap.from_list("cartograd", scale)
    numbers = numpy.where(numpy.isfinite(values.values), values.values, numpy.nan)
    grey = numpy.isnan(numbers)
    _scatter(axes, points[grey], color=MISSING, **style)
    drawn = _scatter(axes, points[~grey], c=numbers[~grey], cmap=ramp, **style)
    if legend and not grey.all():
        bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.5, aspect=24, pad=0.02, label=_plain(values.name))
        _never_parsed(bar.ax.yaxis.label)
        bar.outline.set_visible(False)
        bar.solids.set_alpha(1)
        if values.kind == "time":
            ticks = bar.get_ticks()
            bar.set_ticks(ticks, labels=numpy.array(ticks, dtype="datetime64[ms]").astype("datetime64[D]").astype(str))


def _category_palette(values: Column, palette: Palette | None) -> list[Any]:
    """A colour for each category, as RGBA."""
    rgba = _matplotlib("colors").to_rgba
    count = len(values.names)
    if palette is None:
        return [rgba(color) for color in category_colors(count, values.unlabelled)]
    if isinstance(palette, str):
        ramp = _colormap(palette)
        listed = getattr(ramp, "colors", None) if ramp.N <= 40 else None
        return [rgba(listed[i % ramp.N]) if listed else ramp(i / max(1, count - 1)) for i in range(count)]
    if isinstance(palette, Mapping):
        named = {str(key): color for key, color in palette.items()}
        lacking = [name for name in values.names if name not in named]
        if lacking:
            raise OptionError(f"palette has no colour for {lacking[0]!r}; it has some for {sorted(named)}")
        return [rgba(named[name]) for name in values.names]
    if not palette:
        raise OptionError("palette is empty: give at least one colour, or None")
    return [rgba(palette[i % len(palette)]) for i in range(count)]


def _colormap(name: str) -> Any:
    maps = importlib.import_module("matplotlib").colormaps
    if name not in maps:
        raise OptionError(f"palette={name!r} is not a colour map of matplotlib; viridis, tab20 and magma are")
    return maps[name]


def _plain(name: str) -> str:
    """A name of a legend: not too long, and no underscore at its beginning, which hides an entry."""
    short = _shown(name if len(name) <= 40 else f"{name[:39]}…")
    return f"\u200b{short}" if short.startswith("_") else short


def _shown(text: str) -> str:
    """A text without what fonts and files cannot hold: control characters become spaces, lone surrogates marks."""
    spaced = "".join(" " if unicodedata.category(char) == "Cc" else char for char in text)
    return spaced.encode("utf-8", "replace").decode("utf-8")


def _never_parsed(*texts: Any) -> None:
    """Draw texts as they are: what stands between dollars is data, and no mathematics."""
    for text in texts:
        text.set_parse_math(False)
        text.set_usetex(False)


def _ending(place: Path) -> str:
    return place.suffix.removeprefix(".").lower() or "png"


def _check_ending(place: Path) -> None:
    known = _matplotlib("backend_bases").FigureCanvasBase.get_supported_filetypes()
    if _ending(place) not in known:
        raise OptionError(f"save={str(place)!r}: the ending must be one of {', '.join(sorted(known))}")


def _save(axes: Any, place: Path) -> None:
    with open_atomic(place) as file:
        axes.figure.savefig(file, format=_ending(place), dpi=200, bbox_inches="tight")
