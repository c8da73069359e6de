"""How large the columns of a Parquet file are once unpacked, found from its footer without unpacking them.

The footer is read by hand: asking pyarrow for the column chunks of a damaged file can end the process (pyarrow 26). It
is written in Thrift's compact protocol: a structure is a series of fields, each with the distance from the number of
the field before it and its type.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Any

from cartograd.errors import DataFileError

MAGIC = b"PAR1"
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)
DEEPEST = 16
SCHEMA, ROW_GROUPS = 2, 4
"""Fields of ``FileMetaData``."""
TYPE, TYPE_LENGTH, NAME, CHILDREN, CONVERTED, LOGICAL = 1, 2, 4, 5, 6, 10
"""Fields of ``SchemaElement``."""
COLUMNS, META = 1, 3
"""Fields of ``RowGroup`` and of ``ColumnChunk``."""
ENCODINGS, PATH, VALUES, UNCOMPRESSED = 2, 3, 5, 6
"""Fields of ``ColumnMetaData``."""
BYTE_ARRAY, FIXED_ARRAY = 6, 7
WIDTHS = {0: 8, 1: 8, 2: 8, 3: 12, 4: 8, 5: 8, BYTE_ARRAY: 8}
"""About what a value of each physical type takes as a NumPy column."""
DECIMAL = 5
DELTA_BYTE_ARRAY = 7


@dataclass
class Column:
    """One column of a Parquet file.

    Parameters
    ----------
    path : str
        Its name, with the names of the structures it is in.
    is_text : bool
        Whether its values are of any length.
    size : int
        About how many bytes its values take, each text once.
    stored : int
        The bytes of the largest of its chunks before compression.
    is_delta : bool
        Whether texts are stored as what differs from the text before.
    """

    path: str
    is_text: bool
    size: int = 0
    stored: int = 0
    is_delta: bool = False


def parquet_columns(file: IO[bytes]) -> list[Column]:
    """Return the columns of an open Parquet file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if size < 12 or end[4:] != MAGIC or length > size - 12:
        raise DataFileError("it cannot be read as Parquet: its end is missing or damaged, or it is encrypted")
    file.seek(size - 8 - length)
    try:
        footer = _Compact(file.read(length)).structure(0)
        return _columns(footer)
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, UnicodeDecodeError):
        raise DataFileError("it cannot be read as Parquet: its footer is damaged") from None


def _columns(footer: dict[int, Any]) -> list[Column]:
    leaves = [one for one in footer[SCHEMA] if not one.get(CHILDREN) and TYPE in one]
    found: list[Column] = []
    for group in footer.get(ROW_GROUPS, []):
        chunks = [chunk[META] for chunk in group[COLUMNS]]
        if len(chunks) != len(leaves):
            raise ValueError
        found = found or [Column(_path(chunk), _is_text(leaf)) for chunk, leaf in zip(chunks, leaves, strict=True)]
        for column, chunk, leaf in zip(found, chunks, leaves, strict=True):
            _add(column, chunk, leaf)
    return found


def _path(chunk: dict[int, Any]) -> str:
    return ".".join(part.decode() for part in chunk[PATH])


def _is_text(leaf: dict[int, Any]) -> bool:
    decimal = leaf.get(CONVERTED) == DECIMAL or DECIMAL in leaf.get(LOGICAL, {})
    return bool(leaf[TYPE] == BYTE_ARRAY) and not decimal


def _add(column: Column, chunk: dict[int, Any], leaf: dict[int, Any]) -> None:
    width = leaf[TYPE_LENGTH] if leaf[TYPE] == FIXED_ARRAY else WIDTHS[leaf[TYPE]]
    if chunk[VALUES] < 0 or chunk[UNCOMPRESSED] < 0 or width < 0:
        raise ValueError
    column.size += chunk[VALUES] * max(width, 1) + (chunk[UNCOMPRESSED] if column.is_text else 0)
    column.stored = max(column.stored, chunk[UNCOMPRESSED])
    column.is_delta |= column.is_text and DELTA_BYTE_ARRAY in chunk[ENCODINGS]


class _Compact:
    """Values of Thrift's compact protocol.

    Parameters
    ----------
    data : bytes
        The text of one structure.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def structure(self, depth: int) -> dict[int, Any]:
        """Return the fields of a structure by number."""
        if depth > DEEPEST:
            raise ValueError
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in INTEGERS:
            return self._integer()
        if kind == BINARY:
            return self._bytes(self._unsigned())
        if kind in (LIST, SET):
            return self._list(depth)
        if kind == STRUCT:
            return self.structure(depth + 1)
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == MAP:
            return self._map(depth)
        raise ValueError

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._unsigned()
        self._check(count)
        return [self._value(head & 15, depth + 1) for _ in range(count)]

    def _map(self, depth: int) -> None:
        count = self._unsigned()
        self._check(count)
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._value(kinds >> 4, depth + 1)
            self._value(kinds & 15, depth + 1)

    def _check(self, count: int) -> None:
        """Refuse more elements than there are bytes: each has one at least."""
        if count > len(self.data) - self.place:
            raise ValueError

    def _byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]

    def _bytes(self, length: int) -> bytes:
        self._check(length)
        self.place += length
        return self.data[self.place - length : self.place]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError

    def _integer(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
