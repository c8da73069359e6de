"""The interactive page: one HTML file that needs no network and cannot run what is in the data.

The page's own script and style stand in it as text, and its content-security policy allows exactly those two, by
their SHA-256. The data stand in elements that browsers do not execute: binary blocks in base64, and a JSON header.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import importlib.resources
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cartograd.io.atomic import open_atomic
from cartograd.viewer.content import content
from cartograd.viewer.pack import json_text

SCRIPTS = (
    "data.js",
    "colors.js",
    "camera.js",
    "grid.js",
    "shaders.js",
    "gl.js",
    "canvas.js",
    "labels.js",
    "legend.js",
    "card.js",
    "search.js",
    "lasso.js",
    "csv.js",
    "link.js",
    "gestures.js",
    "keys.js",
    "painter.js",
    "app.js",
)
"""The page's script, in the order in which its files are joined; all share one scope."""


def write_page(
    path: str | os.PathLike[str],
    embedding: Any,
    *,
    data: Any = None,
    color: Any = None,
    label: Any = None,
    text: Any = None,
    images: Any = None,
    title: str = "",
    point_size: float | None = None,
) -> Path:
    """Write a map as one self-contained HTML file.

    The file opens in any browser without a network. It is written beside its place and renamed, so that a reader
    sees the old file or the new one, never half of one.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write; the folder must exist.
    embedding : array-like or tensor
        (n, 1), (n, 2) or (n, 3): the place of each row.
    data : mapping or frame or None, default=None
        Column name -> one value for each row. Shown on hover, searched, exported; any can colour the points.
    color : str or sequence or None, default=None
        A column of `data`, or values, to colour by at first; None is `label`, or the first column of categories.
    label : str or sequence or None, default=None
        A column of `data`, or values, whose names stand on the map; None follows the colour.
    text : str or sequence or None, default=None
        A column of `data`, or texts, that head the hover card.
    images : array-like or tensor or None, default=None
        (n, h, w), (n, h, w, 3) or (n, h, w, 4) pictures of the rows, shown on hover.
    title : str, default=""
        Stands above the map.
    point_size : float or None, default=None
        Diameter of a point in pixels; None chooses by the number of points.

    Returns
    -------
    pathlib.Path
        Where the page is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_page(f"{folder}/map.html", [[0.0, 0.0], [1.0, 2.0]], data={"name": ["a", "b"]})
    ...     print(page.name, page.read_text().count("<script"))
    map.html 9
    """
    options = {"data": data, "color": color, "label": label, "text": text, "images": images}
    with open_atomic(path) as file:
        file.writelines(part.encode() for part in page_parts(embedding, title=title, point_size=point_size, **options))
    return Path(path)


def page_html(
    embedding: Any,
    *,
    data: Any = None,
    color: Any = None,
    label: Any = None,
    text: Any = None,
    images: Any = None,
    title: str = "",
    point_size: float | None = None,
) -> str:
    """The text of the page that `write_page` writes, with the same arguments.

    Parameters
    ----------
    embedding : array-like or tensor
        (n, 1), (n, 2) or (n, 3): the place of each row.
    data : mapping or frame or None, default=None
        Column name -> one value for each row.
    color, label, text : str or sequence or None, default=None
        A column of `data`, or values: the first colour, the names on the map, the head of the hover card.
    images : array-like or tensor or None, default=None
        Pictures of the rows.
    title : str, default=""
        Stands above the map.
    point_size : float or None, default=None
        Diameter of a point in pixels.

    Examples
    --------
    >>> page_html([[0.0, 1.0]], title="a & b").count("<title>a &amp; b</title>")
    1
    """
    options = {"data": data, "color": color, "label": label, "text": text, "images": images}
    return "".join(page_parts(embedding, title=title, point_size=point_size, **options))


def page_parts(embedding: Any, *, title: str, point_size: float | None, **options: Any) -> Iterator[str]:
    """The page piece by piece; everything is checked before the first piece comes."""
    header, blocks, poster = content(embedding, title=title, point_size=point_size, **options)
    style, early, script = _web("page.css"), _web("theme.js"), _script()
    filled = {
        "policy": policy(scripts=(early, script), style=style),
        "title": _escaped(str(title) or "Map"),
        "style": style,
        "theme": early,
        "poster": poster,
        "heading": _escaped(str(title)),
        "header": json_text(header),
        "script": script,
    }
    return _assembled(filled, blocks.elements())


def _escaped(text: str) -> str:
    """Escape a text for HTML; lone surrogates, which UTF-8 does not have, become question marks."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def policy(*, scripts: tuple[str, ...], style: str) -> str:
    """The content-security policy that allows these scripts and this style and nothing else.

    Examples
    --------
    >>> policy(scripts=("",), style="")[:60]
    "default-src 'none'; script-src 'sha256-47DEQpj8HBSa+/TImW+5J"
    """
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _assembled(filled: dict[str, str], blocks: Iterator[str]) -> Iterator[str]:
    # only the template is looked through for slots: what fills them may contain anything
    for index, piece in enumerate(re.split(r"\{\{(\w+)\}\}", _web("page.html"))):
        if index % 2 == 0:
            yield piece
        elif piece == "blocks":
            yield from blocks
        else:
            yield filled[piece]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


@functools.cache
def _web(name: str) -> str:
    return importlib.resources.files("cartograd.viewer").joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    joined = "\n".join(_web(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{joined}\n}})();\n'
