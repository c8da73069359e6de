"""A file that leads a browser to an address.

Other users of a computer can read the command line of a browser that is started with an address, but not a file that
belongs to one user alone.
"""

from __future__ import annotations

import html
import os
import tempfile
from contextlib import suppress
from pathlib import Path

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Map</title>
<p><a href="{url}">Open the map</a></p>
"""


def write_redirect(url: str) -> Path:
    """Return a new temporary page that leads to `url`, readable by this user alone (mode 0600).

    Examples
    --------
    >>> path = write_redirect("http://127.0.0.1:8000/token/")
    >>> "http://127.0.0.1:8000/token/" in path.read_text()
    True
    >>> remove(path)
    >>> path.exists()
    False
    """
    handle, name = tempfile.mkstemp(prefix="cartograd-", suffix=".html")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(PAGE.format(url=html.escape(url)))
    return Path(name)


def remove(path: Path) -> None:
    """Remove the page, where it is still there."""
    with suppress(OSError):
        path.unlink()
