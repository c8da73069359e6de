"""How much a file may ask for: bytes in all, expansion of packed data, columns."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from cartograd.errors import DataFileError
from cartograd.io.foreign import foreign

MAX_BYTES = 8 * 2**30
"""The default of `max_bytes`: what a table may take in memory."""
LARGEST_EXPANSION = 200
"""How many times its packed size data may have. Tables of numbers reach 2 to 20, mostly empty ones 100."""
FREE_EXPANSION = 2**20
"""Data that expand to no more than this are never refused for their ratio."""
MOST_COLUMNS = 200_000


def check_total(wanted: int, max_bytes: int, what: str) -> None:
    """Refuse what would take more than `max_bytes`, before it is read."""
    if wanted > max_bytes:
        raise DataFileError(
            f"{what} would take {wanted:,} bytes, and max_bytes is {max_bytes:,}; raise it to read this"
        )


def check_expansion(expanded: int, packed: int, what: str) -> None:
    """Refuse what is far larger unpacked than packed, before it is unpacked."""
    if expanded > FREE_EXPANSION and expanded > LARGEST_EXPANSION * max(packed, 1):
        raise DataFileError(
            f"{what} would expand from {packed:,} to {expanded:,} bytes, more than {LARGEST_EXPANSION} times: "
            "refused as a decompression bomb. If the data are as they should be, store them without compression"
        )


def check_columns(count: int) -> None:
    """Refuse absurdly wide tables."""
    if count > MOST_COLUMNS:
        raise DataFileError(f"it has {count:,} columns, more than {MOST_COLUMNS:,}; is it a table of rows by columns?")


class CountedStream(io.RawIOBase):
    """A stream that is unpacked while it is read, with both limits checked on the way.

    Parameters
    ----------
    stream : file
        The source of the unpacked bytes.
    packed : callable
        Returns how many packed bytes were used.
    max_bytes : int
        How many bytes may come out.
    kind : str
        What the text is, for messages.
    """

    def __init__(self, stream: Any, packed: Callable[[], int], max_bytes: int, kind: str) -> None:
        super().__init__()
        self._stream, self._packed, self._max_bytes, self._kind = stream, packed, max_bytes, kind
        self._count = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        with foreign(self._kind):
            data = self._stream.read(len(buffer))
        self._count += len(data)
        check_expansion(self._count, self._packed(), "the packed text")
        check_total(self._count, self._max_bytes, "the unpacked text")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close what is below too."""
        self._stream.close()
        super().close()
