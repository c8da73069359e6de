"""How texts are put together: help with its examples, numbers, names for a sentence."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence

KEEP = "\b\n"
"""click fills paragraphs anew unless they begin with this."""
LONGEST_LINE = 900


def help_text(summary: str, examples: Sequence[tuple[str, str]], more: str = "") -> str:
    """The help of a command: what it does, how it is called, and what else there is to know.

    Parameters
    ----------
    summary : str
        What it does; its first sentence stands in the list of commands.
    examples : sequence of (str, str)
        Commands, and what each is for.
    more : str, default=""
        Paragraphs that follow, an empty line between them.

    Examples
    --------
    >>> print(help_text("Greets.", [("greet", "hello"), ("greet you", "hello, you")]).partition("Examples:")[2])
    <BLANKLINE>
      greet      # hello
      greet you  # hello, you
    """
    width = max(len(command) for command, _ in examples)
    if width + max(len(purpose) for _, purpose in examples) <= 88:
        lines = [f"  {command:<{width}}  # {purpose}" for command, purpose in examples]
    else:
        lines = [f"  # {purpose}\n  {command}" for command, purpose in examples]
    parts = [_filled(summary), f"{KEEP}Examples:\n" + "\n".join(lines)]
    return "\n\n".join([*parts, *(_filled(part) for part in more.split("\n\n"))] if more else parts)


def _filled(paragraph: str) -> str:
    return " ".join(paragraph.split())


def counted(number: int, noun: str) -> str:
    """A number with what it counts.

    Examples
    --------
    >>> counted(1, "row"), counted(1797, "row")
    ('1 row', '1,797 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    r"""Return a text with escapes for the characters that a terminal would obey, or could not write.

    Examples
    --------
    >>> printable("red \x1b[31m, half \udcff")
    'red \\x1b[31m, half \\udcff'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    r"""Return a text as one line of at most 900 characters; in a longer one, the middle of long words is left out.

    Examples
    --------
    >>> one_line("there is no\ncolumn 'a\0b'")
    "there is no column 'a\\x00b'"
    >>> len(one_line("x" * 10_000))
    105
    """
    line = printable(" ".join(text.split()))
    if len(line) > LONGEST_LINE:
        line = re.sub(r"\S{300,}", lambda word: f"{word[0][:80]} ... {word[0][-20:]}", line)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 205]} ... {line[-200:]}"


def table_lines(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell.

    Examples
    --------
    >>> table_lines([("a", "1"), ("long", "2")])
    ['  a     1', '  long  2']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [(indent + line).rstrip() for line in padded]


def program() -> str:
    """What to type to call this program: its name where the shell finds it, otherwise as it was called."""
    called = sys.argv[0] if sys.argv else ""
    if shutil.which("cartograd"):
        return "cartograd"
    return called if os.path.basename(called) == "cartograd" else "python -m cartograd"
