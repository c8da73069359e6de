"""Arrow's files, .parquet, .arrow and .feather, through pyarrow."""

from __future__ import annotations

import os
from typing import Any

from cartograd.errors import DataFileError
from cartograd.io.arrow_bounds import CELL
from cartograd.io.arrow_columns import raw_of_arrow
from cartograd.io.arrow_sizes import unpacked_size
from cartograd.io.foreign import foreign
from cartograd.io.limits import FREE_EXPANSION, check_expansion, check_total
from cartograd.io.packages import required
from cartograd.io.parquet_footer import Column, parquet_columns
from cartograd.io.raw import Given, Options, Raw

MAGIC, OLD_MAGIC = b"ARROW1", b"FEA1"
LARGEST_ENCODED = 1000
"""How many times its file a Parquet table may have: runs of equal values are stored as one, whatever their length."""
BATCH_BYTES, BATCH_ROWS = 2**27, 65_536
"""What a batch may take where texts are stored as differences, and its rows at most."""


def read_parquet(given: Given, options: Options) -> Raw:
    """Read a Parquet file. Its own account of its size is checked first; equal texts are held once."""
    parquet = required("pyarrow.parquet", "tables", "reading Parquet")
    size = os.stat(given.path).st_size
    with open(given.path, "rb") as opened:
        columns = parquet_columns(opened)
    with foreign("Parquet"):
        try:
            table = _read_groups(parquet, given, columns, size, options.max_bytes)
        except NotImplementedError:  # dictionaries within lists, in several pieces
            for column in columns:
                column.is_delta |= column.is_text and "." in column.path
            table = _read_groups(parquet, given, columns, size, options.max_bytes)
    return raw_of_arrow(table, given.name, options.max_bytes, size)


def _read_groups(parquet: Any, given: Given, columns: list[Column], size: int, max_bytes: int) -> Any:
    """Read the row groups one by one: texts within lists can be held once in one row group, not across several."""
    import pyarrow

    texts = [column.path for column in columns if column.is_text and not column.is_delta]
    delta = max((column.stored for column in columns if column.is_delta), default=0)
    with parquet.ParquetFile(given.path, read_dictionary=texts) as file:
        _check_parquet(file, columns, size, max_bytes)
        if delta:
            return _in_batches(file, delta, max_bytes)
        if file.num_row_groups < 2:
            return file.read()
        return pyarrow.concat_tables([file.read_row_group(place) for place in range(file.num_row_groups)])


def _check_parquet(file: Any, columns: list[Column], size: int, max_bytes: int) -> None:
    """Only what the row groups say: asking a damaged file for its column chunks can end the process (pyarrow 26)."""
    metadata = file.metadata
    unpacked = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    check_expansion(unpacked, size, "the table")
    values = sum(column.size for column in columns)
    wanted = max(unpacked, values, CELL * metadata.num_rows * metadata.num_columns)
    check_total(wanted, max_bytes, "the table")
    if wanted > FREE_EXPANSION and wanted > LARGEST_ENCODED * size:
        raise DataFileError(
            f"it would expand from {size:,} to {wanted:,} bytes, more than {LARGEST_ENCODED} times: refused as a bomb"
        )


def _in_batches(file: Any, longest: int, max_bytes: int) -> Any:
    """Read texts that are stored as what differs from the text before, each of which may be as long as its chunk."""
    import pyarrow

    rows = max(1, min(BATCH_ROWS, BATCH_BYTES // longest))
    batches, total = [], 0
    for batch in file.iter_batches(batch_size=rows):
        total += batch.nbytes
        check_total(total, max_bytes, "the table")
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, schema=file.schema_arrow)


def read_arrow(given: Given, options: Options) -> Raw:
    """Read an Arrow file or stream (Feather is the same): the file is a stream between a mark and an index."""
    pyarrow = required("pyarrow", "tables", "reading Arrow files")
    size = os.stat(given.path).st_size
    check_total(size, options.max_bytes, "the file")
    with foreign("an Arrow file"), pyarrow.memory_map(os.fspath(given.path)) as file:
        beginning = file.read(8)
        if beginning.startswith(OLD_MAGIC):
            raise DataFileError("it is Feather of version 1, which is no longer read; write it again as version 2")
        start = 8 if beginning.startswith(MAGIC) else 0
        file.seek(start)
        end = _check_batches(pyarrow, file, size, options.max_bytes)
    with open(given.path, "rb") as opened:
        content = opened.read(end)  # a length that lies is then an error of a slice, not an allocation
    with foreign("an Arrow file"), pyarrow.BufferReader(content) as file:
        file.seek(start)
        table = pyarrow.ipc.open_stream(file).read_all()
    return raw_of_arrow(table, given.name, options.max_bytes, size)


def _check_batches(pyarrow: Any, file: Any, size: int, max_bytes: int) -> int:
    """Check every message, without reading the bodies, and return where the last one ends."""
    reader = pyarrow.ipc.MessageReader.open_stream(file)
    total = 0
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return int(file.tell())
        rows, unpacked = unpacked_size(message.metadata, message.body or b"")
        total += max(rows, unpacked)
        check_total(total, max_bytes, "the table")
        check_expansion(total, size, "the table")
