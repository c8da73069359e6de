"""What the pictures of the docs are made of: the data, panels in the viewer's colours, small files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy
from matplotlib import patheffects
from PIL import Image
from sklearn.datasets import load_digits

import cartograd
from cartograd.metrics import neighborhood_preservation

matplotlib.use("agg")
from matplotlib import pyplot

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
GROUND, INK, QUIET, LINE = "#fbfaf7", "#1f2328", "#696f78", "#e4e3df"
PANEL = 2.3
MOST_BYTES = 60_000


class Panel(NamedTuple):
    """One map of a picture.

    Parameters
    ----------
    title, quiet : str
        What stands above it, and the quieter line below that.
    places : numpy.ndarray
        (n, 2).
    labels : numpy.ndarray or None
        (n,), for the colours.
    names : bool, default=True
        Whether the labels stand on the map, too.
    """

    title: str
    places: Any
    labels: Any
    quiet: str
    names: bool = True


@lru_cache(maxsize=1)
def digits() -> tuple[Any, Any]:
    """1,797 handwritten digits of 8 x 8 pixels, (1797, 64), and which digit each is."""
    X, y = load_digits(return_X_y=True)
    return X.astype("float32"), y


@lru_cache(maxsize=1)
def tree(each: int = 90, dimensions: int = 40) -> tuple[Any, Any]:
    """Rows along the branches of a tree: a trunk that parts into three limbs, each of which parts into two."""
    rng = numpy.random.default_rng(0)
    rows, names = [], []
    along = numpy.linspace(0, 1, each)[:, None]

    def grow(start: Any, name: int, length: float) -> Any:
        way = rng.normal(size=dimensions)
        end = start + length * way / numpy.linalg.norm(way)
        rows.append(start + along * (end - start) + rng.normal(scale=0.035, size=(each, dimensions)))
        names.append(numpy.full(each, name))
        return end

    top = grow(numpy.zeros(dimensions), 0, 2.0)
    for limb in range(3):
        fork = grow(top, 1 + 3 * limb, 2.0)
        for twig in range(2):
            grow(fork, 2 + 3 * limb + twig, 1.5)
    return numpy.concatenate(rows).astype("float32"), numpy.concatenate(names)


def kept(X: Any, Z: Any, metric: str = "euclidean", in_map: str = "euclidean") -> str:
    """The share of neighbours that the map keeps, as a quiet line."""
    share = neighborhood_preservation(X, Z, 15, metric=metric, embedding_metric=in_map)
    return f"{100 * share:.0f} % of neighbours kept"


def on_digits(title: str, model: Any, y: Any = None) -> Panel:
    """A panel of the digits by a method."""
    X, names = digits()
    Z = model.fit_transform(X) if y is None else model.fit_transform(X, y)
    return Panel(title, Z, names, kept(X, Z))


def sheet(columns: int, rows: int = 1, size: float = PANEL, below: float = 0.0) -> tuple[Any, list[Any]]:
    """A figure of empty panels on the viewer's ground."""
    high = size + 0.42 + below
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(columns * size, rows * high), squeeze=False, facecolor=GROUND
    )
    left, top = 0.12 / (columns * size), 0.46 / (rows * high)
    figure.subplots_adjust(left, 0.1 / (rows * high), 1 - left, 1 - top, wspace=0.06, hspace=0.52 / size)
    return figure, list(axes.ravel())


def headed(ax: Any, title: str, quiet: str = "") -> None:
    """What stands above a panel: a name, and a quieter line under it."""
    kind = ax.text2D if ax.name == "3d" else ax.text
    kind(0.0, 1.1, title, transform=ax.transAxes, fontsize=9, fontweight="bold", color=INK, va="bottom")
    kind(0.0, 1.03, quiet, transform=ax.transAxes, fontsize=6.5, color=QUIET, va="bottom")


def framed(ax: Any) -> None:
    """A panel without ticks, in a thin frame."""
    ax.set(xticks=[], yticks=[], facecolor="white")
    ax.spines[:].set(visible=True, color=LINE, linewidth=0.8)


def named(ax: Any, Z: Any, labels: Any) -> None:
    """The name of each class at the median of its points."""
    halo = [patheffects.withStroke(linewidth=1.8, foreground="white")]
    style = {"ha": "center", "va": "center", "fontsize": 7, "fontweight": "bold", "color": INK, "path_effects": halo}
    for name in numpy.unique(labels):
        ax.text(*numpy.median(Z[labels == name], axis=0), str(name), **style)


def panels(found: Sequence[Panel], columns: int = 4, size: float = 1.9) -> Any:
    """Small multiples: one map beside the other."""
    figure, axes = sheet(min(columns, len(found)), -(-len(found) // columns))
    for ax, panel in zip(axes, found, strict=True):
        cartograd.plot(panel.places, panel.labels, ax=ax, legend=False, size=size)
        framed(ax)
        headed(ax, panel.title, panel.quiet)
        if panel.names and panel.labels is not None:
            named(ax, panel.places, panel.labels)
    return figure


def save(figure: Any, name: str) -> int:
    """Write docs/pictures/NAME.png with as few colours as it takes to be small; its bytes."""
    raw = io.BytesIO()
    figure.savefig(raw, dpi=150, facecolor=GROUND)
    pyplot.close(figure)
    picture = Image.open(raw).convert("RGB")
    for colors in (128, 64, 40, 24):
        packed = io.BytesIO()
        few = picture.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(packed, "png", optimize=True)
        if packed.tell() <= MOST_BYTES:
            break
    else:
        raise SystemExit(f"{name}.png has {packed.tell()} bytes, at most {MOST_BYTES} are wanted: draw fewer panels")
    (FOLDER / f"{name}.png").write_bytes(packed.getvalue())
    return packed.tell()
