"""How large the batches of an Arrow file are once unpacked, found without unpacking them.

The messages of the format begin with a flatbuffer. Only four of its tables matter here, so it is read by hand: a table
begins with the (signed) distance back to its list of fields, and that list has a 16-bit place for each field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

HEADER_KIND, HEADER = 1, 2
"""Fields of ``Message``."""
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
"""Values of the field HEADER_KIND."""
DICTIONARY_DATA = 1
"""Field of ``DictionaryBatch``."""
LENGTH, BUFFERS, COMPRESSION = 0, 2, 3
"""Fields of ``RecordBatch``."""


def unpacked_size(metadata: Any, body: Any) -> tuple[int, int]:
    """(rows, bytes) of one message when unpacked: every packed buffer begins with its unpacked length."""
    raw = memoryview(metadata)
    message = _pointer(raw, 0)
    kind = _field(raw, message, HEADER_KIND)
    header = _field(raw, message, HEADER)
    if kind is None or header is None or raw[kind] not in (DICTIONARY_BATCH, RECORD_BATCH):
        return 0, 0
    batch = _pointer(raw, header)
    if raw[kind] == DICTIONARY_BATCH:
        data = _field(raw, batch, DICTIONARY_DATA)
        if data is None:
            return 0, 0
        batch = _pointer(raw, data)
    rows = _field(raw, batch, LENGTH)
    count = struct.unpack_from("<q", raw, rows)[0] if rows is not None else 0
    if _field(raw, batch, COMPRESSION) is None:
        return count, len(body)
    return count, sum(_unpacked(memoryview(body), *span) for span in _buffers(raw, batch))


def _pointer(raw: memoryview, place: int) -> int:
    return place + int(struct.unpack_from("<I", raw, place)[0])


def _field(raw: memoryview, table: int, number: int) -> int | None:
    """Where a field of the table lies; None where it is not set."""
    fields = table - struct.unpack_from("<i", raw, table)[0]
    if fields < 0 or 4 + 2 * number >= struct.unpack_from("<H", raw, fields)[0]:
        return None
    offset = struct.unpack_from("<H", raw, fields + 4 + 2 * number)[0]
    return table + offset if offset else None


def _buffers(raw: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of each buffer in the body."""
    field = _field(raw, batch, BUFFERS)
    if field is None:
        return
    vector = _pointer(raw, field)
    for place in range(struct.unpack_from("<I", raw, vector)[0]):
        yield struct.unpack_from("<qq", raw, vector + 4 + 16 * place)


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    if length < 8:
        return 0
    size = int(struct.unpack_from("<q", body, offset)[0])
    return length if size == -1 else size
