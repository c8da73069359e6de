"""`view`: the page where the reader is, in the notebook or in a browser."""

from __future__ import annotations

import atexit
import html
import os
import sys
from pathlib import Path
from typing import Any

from cartograd.errors import OptionError
from cartograd.io.atomic import open_atomic
from cartograd.viewer.page import page_html
from cartograd.viewer.server import PageServer

FETCH_PATIENCE = 10.0
"""Seconds a program that is about to end waits for the browser it opened to fetch the page."""


class View:
    """A map on show: in a notebook it displays itself, elsewhere it is served until it is closed.

    Parameters
    ----------
    page : str
        The page's HTML.
    height : int, default=600
        Height in a notebook, in pixels.
    """

    def __init__(self, page: str, height: int = 600) -> None:
        self._page, self._height = page, height
        self._server: PageServer | None = None

    @property
    def url(self) -> str | None:
        """Where the page is served, or None where it is not."""
        return self._server.url if self._server else None

    def serve(self, port: int = 0, open_browser: bool = True) -> None:
        """Serve the page from a thread of its own and open it.

        Parameters
        ----------
        port : int, default=0
            The port; 0 takes one that is free.
        open_browser : bool, default=True
            Open the page in the browser.
        """
        self.close()
        self._server = server = PageServer(self._page.encode(), port)
        if open_browser and server.open_browser():
            # the page needs no server once the browser has it: a script may end right after it has shown its map
            atexit.register(server.read_once.wait, FETCH_PATIENCE)
        elif open_browser:
            print(f"No browser could be opened. The map is at {server.url}", file=sys.stderr)

    def wait(self) -> None:
        """Serve until Ctrl-C."""
        if self._server:
            self._server.wait()

    def close(self) -> None:
        """Stop serving."""
        if self._server:
            atexit.unregister(self._server.read_once.wait)
            self._server.close()
            self._server = None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file."""
        with open_atomic(path) as file:
            file.write(self._page.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        """The page in a frame that can run its own script and save files, and reach nothing of the notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self._page)}" sandbox="allow-scripts allow-downloads" '
            f'width="100%" height="{self._height}" style="border: 0; border-radius: 8px" title="Map"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<map at {self.url}>" if self.url else "<map>"


def view(
    embedding: Any,
    data: Any = None,
    color: Any = None,
    *,
    label: Any = None,
    text: Any = None,
    images: Any = None,
    title: str = "",
    point_size: float | None = None,
    height: int = 600,
    port: int = 0,
    open_browser: bool = True,
) -> View:
    """Show a map: in the notebook, or in the browser.

    In a notebook the result displays itself and nothing is served. Elsewhere the page is served to this computer
    alone, from a thread of its own, and opened in the browser.

    Parameters
    ----------
    embedding : array-like or tensor
        (n, 1), (n, 2) or (n, 3): the place of each row.
    data : mapping or frame or None, default=None
        Column name -> one value for each row.
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
    height : int, default=600
        Height in a notebook, in pixels.
    port : int, default=0
        The port to serve on outside a notebook; 0 takes one that is free.
    open_browser : bool, default=True
        Open the browser, outside a notebook.

    Returns
    -------
    View
        Its `url` says where it is served, `save` writes it to a file, `close` ends the serving.

    Examples
    --------
    >>> shown = view([[0.0, 0.0], [1.0, 1.0]], {"name": ["a", "b"]}, open_browser=False)
    >>> shown.url.startswith("http://127.0.0.1:")
    True
    >>> shown.close()
    """
    if not 50 <= height <= 20000:
        raise OptionError(f"height must be from 50 to 20000 pixels, got {height}")
    options = {"data": data, "color": color, "label": label, "text": text, "images": images}
    shown = View(page_html(embedding, title=title, point_size=point_size, **options), height)
    if not _in_notebook():
        shown.serve(port, open_browser)
    return shown


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this; it has imported IPython, so we need not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
