"""Opening text for reading: plain or gzipped, in the encoding it has, within the limits."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

from cartograd.errors import DataFileError
from cartograd.io.dialect import SAMPLE, encoding_of
from cartograd.io.limits import CountedStream, check_expansion
from cartograd.io.raw import Options

GZIP = b"\x1f\x8b"
MOST_THAT_DEFLATE_CAN = 1100
"""A run of equal bytes is packed 1,032 to 1, and nothing better."""
LONGEST_LINE = 2**26


@contextmanager
def open_bytes(path: Path, max_bytes: int) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where it is gzipped; unpacking stops at the limits."""
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        _check_claim(file)
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield io.BufferedReader(CountedStream(unpacked, file, max_bytes))


def _check_claim(file: IO[bytes]) -> None:
    """Refuse at once what says of itself, in its last four bytes, that it expands absurdly."""
    size = file.seek(0, os.SEEK_END)
    if size >= 18:  # the shortest gzipped file there is
        file.seek(-4, os.SEEK_END)
        claim = int.from_bytes(file.read(4), "little")
        if claim <= MOST_THAT_DEFLATE_CAN * size:  # a larger claim is no claim: the file was cut
            check_expansion(claim, size, "the packed text")
    file.seek(0)


def beginning(path: Path, options: Options) -> bytes:
    """The first bytes of a text."""
    with open_bytes(path, options.max_bytes) as file:
        return file.read(SAMPLE)


@contextmanager
def open_text(path: Path, encoding: str, options: Options) -> Iterator[TextIO]:
    """The text of a file. Line ends stay as they are, so that those within quotes are kept."""
    with open_bytes(path, options.max_bytes) as file:
        yield io.TextIOWrapper(file, encoding=encoding, errors="strict", newline="")


def lines(file: TextIO) -> Iterator[str]:
    """The lines of a text, refused where one is too long to be one of a table."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise DataFileError(f"it has a line of more than {LONGEST_LINE:,} characters; it is no table")
        yield line


def encodings(sample: bytes, options: Options) -> list[str]:
    """The encodings to try in turn: the one asked for, or what the beginning says and then Western Windows text."""
    if options.encoding is not None:
        try:
            "".encode(options.encoding)
        except LookupError as error:
            raise DataFileError(f"the encoding {options.encoding!r} is unknown; try 'utf-8' or 'latin-1'") from error
        return [options.encoding]
    found = encoding_of(sample)
    return ["utf-8", "cp1252"] if found == "utf-8" else [found]
