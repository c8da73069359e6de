"""Names of files, columns and encodings as they come from the command line: checked before any file is touched."""

from __future__ import annotations

import csv
import os
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:
    Kind = click.ParamType  # which older versions of click cannot subscript


class FileName(Kind):
    """The name of a file or folder, which need not be there."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        from cartograd.core.filenames import wrong_name

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
    """The name of an encoding of text that Python knows."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        try:
            bytes(4).decode(value, "replace")  # some are no encodings of text, or cannot be read in pieces
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
