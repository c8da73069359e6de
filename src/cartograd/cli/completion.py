"""`cartograd completion`: the script that lets a shell complete commands, options and methods."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from cartograd.cli.wording import help_text

VARIABLE = "_CARTOGRAD_COMPLETE"
HELP = help_text(
    "Prints a script for the shell to complete commands, options and names of methods by Tab.",
    [
        ("cartograd completion bash >> ~/.bashrc", "for bash"),
        ("cartograd completion zsh >> ~/.zshrc", "for zsh"),
        ("cartograd completion fish > ~/.config/fish/completions/cartograd.fish", "for fish"),
    ],
    "Open a new shell afterwards.",
)


@click.command("completion", help=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print click's script for the shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "cartograd", VARIABLE)
    # not its own source(): that of bash starts a bash, which need not be on the machine that prints this
    click.echo(ShellComplete.source(made))
