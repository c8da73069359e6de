"""One JSON array of rows, read element by element: memory for the text of one row, not of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TextIO

from cartograd.errors import DataFileError

PIECE = 2**20
"""Characters read at a time."""
LONGEST = 2**26
"""Characters that one row may have."""
NEAR_END = 16
"""Characters within which a word or a mark of JSON ends."""
BLANK = " \t\r\n"


def is_array(beginning: str) -> bool:
    """Return whether a text begins as an array of objects or lists, and not as lines of JSON.

    Examples
    --------
    >>> is_array('[{"a": 1},'), is_array('[1, 2]'), is_array('{"a": 1}')
    (True, False, False)
    """
    text = beginning.lstrip(BLANK + "\ufeff")
    if not text.startswith("["):
        return False
    inner = text[1:].lstrip(BLANK)
    return inner.startswith(("{", "[")) and not _is_one_of_lines(text)


def _is_one_of_lines(text: str) -> bool:
    """Return whether the first line is a whole value and another line follows: a row of lists, of lines of JSON."""
    line, _, rest = text.partition("\n")
    if not rest.strip(BLANK):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def elements(file: TextIO) -> Iterator[tuple[int, int, object]]:
    """Yield (number from 1, characters, value) of each element of the array that a file holds."""
    decoder = json.JSONDecoder()
    text = _Window(file)
    if text.next() != "[":
        raise DataFileError("it is no JSON array: it does not begin with [")
    text.place += 1
    number = 0
    closed = text.next() == "]"
    while not closed:
        number += 1
        value, length = _value(decoder, text, number)
        yield number, length, value
        mark = text.next()
        if mark not in (",", "]") or not mark:
            raise DataFileError(f"after row {number} it is no JSON: {'a comma or ]' if mark else ']'} is missing")
        text.place += 1
        closed = mark == "]"
    if closed and number == 0:
        text.place += 1
    if text.next():
        raise DataFileError("it is no JSON array: something follows its end")


def _value(decoder: json.JSONDecoder, text: _Window, number: int) -> tuple[object, int]:
    """Decode the next value; read on, twice as much each time, until it is whole."""
    text.next()
    while True:
        try:
            value, end = decoder.raw_decode(text.held, text.place)
        except (ValueError, RecursionError) as error:
            if isinstance(error, json.JSONDecodeError) and _is_cut(error, text.held) and text.more():
                continue
            raise DataFileError(f"row {number} is no JSON: {error}") from error
        if end == len(text.held) and text.more():  # a number may go on
            continue
        length = end - text.place
        text.place = end
        return value, length


def _is_cut(error: json.JSONDecodeError, held: str) -> bool:
    """Return whether a value may be wrong only because its end was not read yet."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(held) - NEAR_END


class _Window:
    """The part of a text that is held, and the place in it that is read next.

    Parameters
    ----------
    file : text file
        The source.
    """

    def __init__(self, file: TextIO) -> None:
        self.file, self.held, self.place = file, "", 0

    def more(self) -> bool:
        """Drop what was read and read as much again as is held; return whether there was any."""
        self.held = self.held[self.place :]
        self.place = 0
        if len(self.held) > LONGEST:
            raise DataFileError(f"it has a row of more than {LONGEST:,} characters; it is no table")
        piece = self.file.read(max(PIECE, len(self.held)))
        self.held += piece
        return bool(piece)

    def next(self) -> str:
        """Go to the next character that is not blank, and return it; nothing at the end."""
        while True:
            while self.place < len(self.held):
                if self.held[self.place] not in BLANK:
                    return self.held[self.place]
                self.place += 1
            if not self.more():
                return ""
