"""Names of files, columns and encodings as they come from the command line: checked before any file is touched."""

from __future__ import annotations

import codecs
import csv
import os
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:
    Kind = click.ParamType  # which older versions of click cannot subscript

LONGEST_NAME, LONGEST_PATH = 255, 4095
"""Bytes that file systems take."""


def wrong_name(path: str) -> str | None:
    r"""Return what no file can be called in `path`, or None.

    Examples
    --------
    >>> wrong_name("a.csv"), wrong_name("a\0b")
    (None, 'a name holds no character NUL')
    >>> wrong_name("é" * 128)
    'a name of a file has at most 255 bytes, this one has 256'
    """
    if not path:
        return "a name of a file is not empty"
    if "\0" in path:
        return "a name holds no character NUL"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "a name holds no character that the system cannot write"
    longest = max(len(part) for part in encoded.split(os.fsencode(os.sep)))
    if longest > LONGEST_NAME:
        return f"a name of a file has at most {LONGEST_NAME} bytes, this one has {longest:,}"
    if len(encoded) > LONGEST_PATH:
        return f"a path has at most {LONGEST_PATH:,} bytes, this one has {len(encoded):,}"
    return None


class FileName(Kind):
    """The name of a file or folder, which need not be there."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        path = os.fsdecode(value)
        wrong = wrong_name(path)
        return path if wrong is None else self.fail(f"{path!r}: {wrong}.", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the mark by which the shell completes names of files."""
        return [CompletionItem(incomplete, type="file")]


class Names(Kind):
    """Names with commas between them; one that holds a comma stands in double quotes."""

    name = "A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return the names, without the spaces around them."""
        try:
            names = next(csv.reader([value], skipinitialspace=True), []) if isinstance(value, str) else value
        except csv.Error as error:
            self.fail(f"{value!r}: {error}; a name with a comma or a line break in it stands in double quotes.")
        found = [name.strip() for name in names if name.strip()]
        return found or self.fail("give at least one name.", param, ctx)


class Delimiter(Kind):
    """One character; a tab may also be written as an escape, or as the word."""

    name = "CHARACTER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the character."""
        return "\t" if value in ("\\t", "tab", "TAB") else str(value)


class Encoding(Kind):
    """The name of an encoding that Python knows."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        try:
            codecs.lookup(value)
        except (LookupError, ValueError):
            self.fail(f"there is no encoding {value!r}; utf-8, latin-1 and cp1252 are some.", param, ctx)
        return str(value)


class Count(click.IntRange):
    """A whole number from 1 on, up to what a machine may have.

    Parameters
    ----------
    most : int
        The largest that is allowed.
    """

    def __init__(self, most: int) -> None:
        super().__init__(min=1)
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        number = int(super().convert(value, param, ctx))
        return (
            number if number <= self.most else self.fail(f"{number} is not in the range 1<=x<={self.most}.", param, ctx)
        )
