"""Arrays and JSON as text that may stand inside an HTML page."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from cartograd.errors import InputError

WORTH_IT = 0.9
"""A block is stored compressed if that leaves less than this share of it."""
LARGEST_BLOCK = 360 * 2**20
"""Bytes of the largest block: V8 holds strings of at most 2^29 - 24 characters."""
ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def json_text(value: Any) -> str:
    r"""JSON that no HTML parser and no script parser takes for anything else: no <, >, &, U+2028, U+2029.

    Examples
    --------
    >>> print(json_text({"a": "</script>"}))
    {"a":"\u003c/script\u003e"}
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


class Blocks:
    """The binary parts of a page: each the base64 of a little-endian array, compressed where that helps.

    Examples
    --------
    >>> blocks = Blocks()
    >>> blocks.add(numpy.array([1, 2], dtype=numpy.uint8))
    0
    >>> print("".join(blocks.elements()))
    <script type="application/octet-stream" id="block-0" data-packing="none">AQI=</script>
    <BLANKLINE>
    """

    def __init__(self) -> None:
        self._stored: list[tuple[str, bytes]] = []

    def add(self, array: Any) -> int:
        """Store an array; return the number by which the header speaks of it."""
        data = numpy.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        return self.add_bytes(data)

    def add_bytes(self, data: bytes) -> int:
        """Store bytes; return their number.

        What a browser cannot hold as one string, some 500 MB in base64, is refused.
        """
        sample = data[: 2**18]
        packing = "none"
        if len(data) > 512 and len(zlib.compress(sample, 1)) < WORTH_IT * len(sample):
            packed = zlib.compress(data, 6)
            if len(packed) < WORTH_IT * len(data):
                packing, data = "deflate", packed
        if len(data) > LARGEST_BLOCK:
            raise InputError(
                f"a column takes {len(data) / 2**20:.0f} MiB of the page, browsers hold {LARGEST_BLOCK // 2**20}: "
                "leave it out, shorten its texts, or show fewer rows"
            )
        self._stored.append((packing, data))
        return len(self._stored) - 1

    def add_strings(self, texts: Iterable[str]) -> dict[str, int]:
        """Store texts as UTF-8 one after the other, and where each begins; lone surrogates become question marks."""
        encoded = [text.encode("utf-8", "replace") for text in texts]
        if sum(map(len, encoded)) >= 2**32:
            raise InputError("the texts of a column take more than 4 GiB: leave it out, or shorten them")
        starts = numpy.zeros(len(encoded) + 1, dtype=numpy.uint32)
        numpy.cumsum([len(piece) for piece in encoded], out=starts[1:])
        return {"starts": self.add(starts), "bytes": self.add_bytes(b"".join(encoded))}

    def elements(self) -> Iterator[str]:
        """The blocks as data elements of the page, one at a time."""
        for number, (packing, data) in enumerate(self._stored):
            yield f'<script type="application/octet-stream" id="block-{number}" data-packing="{packing}">'
            yield base64.b64encode(data).decode("ascii")
            yield "</script>\n"
