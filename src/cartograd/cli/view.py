"""`cartograd view`: the page of a map in the browser, served to this computer alone."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from cartograd.cli.command import command
from cartograd.cli.console import Console
from cartograd.cli.options import LOOKS, MAP
from cartograd.cli.reading import read_map
from cartograd.cli.wording import help_text
from cartograd.errors import FileAbsentError, OptionError

PAGES = (".html", ".htm")
HELP = help_text(
    """Shows a map in the browser. Serves its page to this computer alone, at an address that nobody can guess, until
    Ctrl-C.""",
    [
        ("cartograd view map.html", "a page"),
        ("cartograd view placed.parquet --color cell_type", "a table with columns x and y"),
        ("cartograd view map.html --port 8000 --no-browser", "print the address only"),
    ],
    "MAP is a page, a table with columns x and y (and z), an array (n, 2), or a model.",
)


@command("view", HELP)
@MAP
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port; 0, the default, is a free one."
)
@click.option("--label", metavar="COLUMN", help="The column whose names stand on the map.")
@LOOKS
@click.option("--title", metavar="TEXT", help="What stands above the map.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
def view(console: Console, map_file: str, port: int, no_browser: bool, **looks: Any) -> None:
    """Serve a page that is there, or make one of a table."""
    from cartograd.viewer import PageServer

    page = _page(console, map_file, looks)
    with PageServer(page, port) as server, contextlib.suppress(KeyboardInterrupt):  # which is how it ends
        console.say(server.url)
        console.result({"command": "view", "map": map_file, "url": server.url, "port": server.port})
        if not no_browser and not server.open_browser():
            console.note("no browser could be opened; open the address above")
        if console.progress:
            click.echo("Ctrl-C ends this.", err=True)
        console.idle()
        server.wait()


def _page(console: Console, map_file: str, looks: dict[str, Any]) -> Path | bytes:
    if not Path(map_file).exists():
        raise FileAbsentError(f"{map_file}: there is no such file; make a map with: cartograd map INPUT -o {map_file}")
    if Path(map_file).suffix.lower() in PAGES:
        for name, value in looks.items():
            if value is not None:
                raise OptionError(f"--{name}: {map_file} is a page already; choose that in it, or give the table")
        return Path(map_file)
    from cartograd.viewer import page_html

    console.step(f"Reading {map_file}")
    shown = read_map(map_file)
    title = looks.pop("title") or Path(map_file).stem
    return page_html(shown.Z, data=shown.columns, title=title, **looks).encode()
