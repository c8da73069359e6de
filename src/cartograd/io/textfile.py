"""Opening text for reading: plain or gzipped, in the encoding it has, within the limits."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TextIO

from cartograd.core.checks import show
from cartograd.errors import DataFileError
from cartograd.io.archives import is_zip, open_member
from cartograd.io.dialect import SAMPLE, encoding_of
from cartograd.io.foreign import foreign
from cartograd.io.limits import CountedStream, check_expansion
from cartograd.io.raw import Options

GZIP = b"\x1f\x8b"
MOST_THAT_DEFLATE_CAN = 1100
"""A run of equal bytes is packed 1,032 to 1, and nothing better."""
LONGEST_LINE = 2**26
NO_TEXTS = frozenset(["idna", "punycode", "undefined", "unicode-escape", "unicode_escape", "raw-unicode-escape"])
"""Codecs of Python that are for names of hosts and for its own source."""


@contextmanager
def open_bytes(path: Path, max_bytes: int) -> Iterator[IO[bytes]]:
    """Open the bytes of a file, unpacked where it is gzipped or zipped; unpacking stops at the limits."""
    with open(path, "rb") as file, ExitStack() as opened:
        first = file.read(4)
        file.seek(0)
        if is_zip(first):
            with foreign("a zip archive"):
                archive = opened.enter_context(zipfile.ZipFile(file))
            member, packed = open_member(archive, max_bytes)
            stream = CountedStream(opened.enter_context(member), lambda: packed, max_bytes, "zipped text")
            yield io.BufferedReader(stream)
        elif first.startswith(GZIP):
            _check_claim(file)
            unpacked = opened.enter_context(gzip.GzipFile(fileobj=file))
            yield io.BufferedReader(CountedStream(unpacked, file.tell, max_bytes, "gzipped text"))
        else:
            yield file


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
    """Return the encodings to try in turn: the one asked for, or what the beginning says and then cp1252."""
    if options.encoding is not None:
        return [options.encoding]
    found = encoding_of(sample)
    return ["utf-8", "cp1252"] if found == "utf-8" else [found]


def check_encoding(name: str) -> None:
    """Refuse a name that is no encoding of text, or one of Python's own purposes."""
    try:
        codec = codecs.lookup(name)
        known = codec.name not in NO_TEXTS and bool(bytes(4).decode(name, "replace"))
    except (LookupError, ValueError):
        known = False
    if not known:
        raise DataFileError(f"the encoding {show(name)} is unknown; try 'utf-8' or 'latin-1'")
