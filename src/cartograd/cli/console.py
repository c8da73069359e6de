"""What a command says and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from cartograd.cli.progress import Activity, ticking
from cartograd.cli.wording import one_line, printable

SHOWN_WARNINGS = (UserWarning, RuntimeWarning)
"""Kinds of warnings that are meant for the user; all others are for programmers."""


@dataclass
class Console:
    """Where a command's words go.

    Parameters
    ----------
    quiet : bool, default=False
        Say nothing but errors, and the object of `json`.
    verbose : bool, default=False
        Show what is logged at INFO: what was decided, and how long it took.
    json : bool, default=False
        Print one JSON object instead of the text for people.
    debug : bool, default=False
        Show the traceback of an error.
    """

    quiet: bool = False
    verbose: bool = False
    json: bool = False
    debug: bool = False
    notes: list[str] = field(default_factory=list)
    activity: Activity = field(default_factory=Activity)

    @property
    def progress(self) -> bool:
        """Whether to show bars: to a person who looks at a terminal."""
        return not self.quiet and sys.stderr.isatty()

    def say(self, *lines: str) -> None:
        """Print a result for people."""
        if not (self.quiet or self.json):
            click.echo("\n".join(map(printable, lines)))

    def step(self, text: str, detail: Callable[[], str] | None = None) -> None:
        """Say what is being done now: on a terminal at once, in a log every half minute with how far it has come."""
        self.activity = Activity(text, detail)
        if self.progress:
            click.echo(f"{printable(text)} ...", err=True)

    def idle(self) -> None:
        """Say nothing more in a log: what was to be done is done."""
        self.activity = Activity()

    def _tick(self) -> None:
        if self.activity.text and not self.quiet:
            click.echo(printable(self.activity.line()), err=True)

    def note(self, text: str) -> None:
        """Say something the user should know; it is in the JSON object, too."""
        if text in self.notes:
            return
        self.notes.append(text)
        if not self.quiet:
            click.echo(f"Note: {one_line(text)}", err=True)

    def result(self, entries: dict[str, Any]) -> None:
        """Print the JSON object, where one is wanted."""
        if self.json:
            text = json.dumps(_plain(entries), ensure_ascii=False, allow_nan=False, indent=2)
            click.echo(text.encode("utf-8", "backslashreplace").decode())  # lone surrogates, as JSON escapes them

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Show warnings as notes, and the library's log on standard error."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.INFO if self.verbose else logging.ERROR if self.quiet else logging.WARNING)
        handler.setFormatter(logging.Formatter("%(message)s"))
        log = logging.getLogger("cartograd")
        before = log.level
        log.addHandler(handler)
        log.setLevel(logging.INFO if self.verbose else before)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for kind in SHOWN_WARNINGS:
                    warnings.simplefilter("default", kind)
                warnings.showwarning = self._warned  # type: ignore[assignment]
                with contextlib.nullcontext() if self.quiet or self.progress else ticking(self._tick):
                    yield
        finally:
            log.removeHandler(handler)
            log.setLevel(before)

    def _warned(self, message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, SHOWN_WARNINGS):
            self.note(str(message))


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers of NumPy as Python's, what is not finite as null, everything else as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
