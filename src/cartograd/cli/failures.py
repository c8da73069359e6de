"""Errors as the user of a command reads them: one line, a hint, and an exit status."""

from __future__ import annotations

import re
import traceback

import click

from cartograd.cli.console import Console
from cartograd.cli.wording import one_line
from cartograd.errors import CartogradError, OptionError

FAILED, WRONG_COMMAND, INTERRUPTED = 1, 2, 130

ARGUMENT = re.compile(
    r"\b(columns|one_hot|missing|key|header|delimiter|encoding|max_bytes|n_components|device)="
    r"(?:\[?(['\"])(.*?)\2\]?)?"
)
"""An argument of a Python function as messages name it, where a command has an option of the same name."""


def report(error: BaseException, console: Console) -> int:
    """Print an error on standard error and return the exit status."""
    if isinstance(error, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    if console.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    line, hint = described(error)
    click.echo(f"Error: {one_line(line)}", err=True)
    if hint:
        click.echo(f"Hint: {one_line(hint)}", err=True)
    return WRONG_COMMAND if isinstance(error, OptionError) else FAILED


def described(error: BaseException) -> tuple[str, str]:
    """What happened, in one line, and what to do, or nothing.

    Examples
    --------
    >>> described(OptionError("a.csv: row 3: the value is missing; use missing='mean'"))
    ('a.csv: row 3: the value is missing', 'use --missing mean')
    >>> described(KeyError("z"))[0]
    "an unexpected KeyError: 'z'"
    """
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) and not isinstance(error, CartogradError):
        return "there is not enough memory for this", "use fewer rows or columns, or a larger machine"
    if not isinstance(error, CartogradError):
        line = f"an unexpected {type(error).__name__}: {text}"
        return line, "this should not happen; --debug shows where it did, for a report to the maintainers"
    text = in_words_of_commands(text)
    line, _, hint = text.rpartition("; ")
    if not line:
        line, found, rest = text.partition(" Install it with: ")
        hint = f"install it with: {rest}" if found else ""
    return line.removesuffix("."), hint.replace("'", "") if "--missing " in hint else hint


def in_words_of_commands(text: str) -> str:
    """Arguments of functions as the options they are here.

    Examples
    --------
    >>> in_words_of_commands("name some with columns=, or use one_hot=['kind']")
    'name some with --columns, or use --one-hot kind'
    >>> in_words_of_commands("leave it out with columns=['-a']")
    'leave it out with --columns=-a'
    """

    def option(match: re.Match[str]) -> str:
        name, value = f"--{match[1].replace('_', '-')}", match[3]
        return name if value is None else f"{name}={value}" if value.startswith("-") else f"{name} {value}"

    return ARGUMENT.sub(option, text)
