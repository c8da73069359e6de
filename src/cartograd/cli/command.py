"""How a command is declared: its help, the options that all have, and what becomes of its errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from cartograd.cli.console import Console
from cartograd.cli.failures import report
from cartograd.cli.names import Kind as Kind
from cartograd.cli.processes import status_of

Decorator = Callable[[Any], Any]


def together(*decorators: Decorator) -> Decorator:
    """Several decorators as one, in the order in which they would stand above a function."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


SPEAKING = together(
    click.option("--json", "json", is_flag=True, help="Print one JSON object instead of text."),
    click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
    click.option("-v", "--verbose", is_flag=True, help="Say what was decided, and how long it took."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)


def command(name: str, help: str, **settings: Any) -> Decorator:
    """Make a command of a function of a `Console` and the command's options.

    Parameters
    ----------
    name : str
        What the command is called.
    help : str
        Its help, from `help_text`.
    **settings : Any
        Further arguments of ``click.command``.
    """

    def declare(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(json: bool, quiet: bool, verbose: bool, debug: bool, **options: Any) -> None:
            if quiet and verbose:
                raise click.UsageError("--quiet and --verbose contradict each other.")
            console = Console(quiet=quiet, verbose=verbose, json=json, debug=debug)
            with console.listening():
                status = _status(function, console, options)
            if status:
                raise click.exceptions.Exit(status)

        declared: click.Command = click.command(name, help=help, **settings)(SPEAKING(run))
        declared.params.sort(key=lambda parameter: parameter.name in ("json", "quiet", "verbose", "debug"))
        return declared

    return declare


def _status(function: Callable[..., None], console: Console, options: dict[str, Any]) -> int:
    """Run a command; its errors are printed, those of click (a wrong command, a closed pipe) are click's to print."""
    try:
        function(console, **options)
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        return status_of(error, report(error, console))
    return 0
