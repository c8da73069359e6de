"""NumPy's files, .npy and .npz: headers are read and checked before anything is allocated; pickles never are."""

from __future__ import annotations

import logging
import math
import os
import zipfile
from dataclasses import dataclass
from typing import IO, Any

import numpy

from cartograd.errors import DataFileError, OptionError
from cartograd.io.foreign import foreign
from cartograd.io.limits import check_columns, check_expansion, check_total
from cartograd.io.matrices import raw_of_array, text_of
from cartograd.io.raw import Given, Options, Raw

log = logging.getLogger("cartograd.io")

LARGEST_LETTER = 0x10FFFF
LARGEST_HEADER = 100_000
MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class Head:
    """What the header of one array says.

    Parameters
    ----------
    shape : tuple of int
        Its shape.
    dtype : numpy.dtype
        Its kind of numbers.
    length : int
        How many bytes the header itself has.
    """

    shape: tuple[int, ...]
    dtype: Any
    length: int

    @property
    def nbytes(self) -> int:
        """What the array takes."""
        return int(math.prod(self.shape) * self.dtype.itemsize)


def read_npy(given: Given, options: Options) -> Raw:
    """Read one array, (n, d)."""
    with open(given.path, "rb") as file:
        array = _checked_array(file, os.fstat(file.fileno()).st_size, options, "the array")
    return raw_of_array(array)


def read_npz(given: Given, options: Options) -> Raw:
    """Read an archive of arrays: one matrix of features, and beside it columns of the same length."""
    with foreign("a .npz archive"), zipfile.ZipFile(given.path) as archive:
        heads = _heads(archive)
        chosen = _chosen(heads, options.key)
        count = heads[chosen].shape[0] if chosen else _common_length(heads)
        wanted = [name for name, head in heads.items() if name == chosen or _is_column(head, count)]
        for name in heads.keys() - set(wanted):
            log.info("%s: array %r of shape %s is no column and is left out", given.name, name, heads[name].shape)
        _check_archive(archive, wanted, heads, options)
        arrays = {name: _member(archive, name, options) for name in wanted}
    if chosen is None:
        return Raw({name: text_of(array) for name, array in arrays.items()})
    raw = raw_of_array(arrays.pop(chosen), chosen)
    raw.columns.update({name: text_of(array) for name, array in arrays.items() if name not in raw.columns})
    return raw


def read_head(file: IO[bytes]) -> Head:
    """Read the header of an array and nothing after it."""
    with foreign("a NumPy array"):
        version = numpy.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = numpy.lib.format.read_array_header_1_0(file, max_header_size=LARGEST_HEADER)
        else:
            shape, _, dtype = numpy.lib.format.read_array_header_2_0(file, max_header_size=LARGEST_HEADER)
    if any(extent < 0 for extent in shape):
        raise DataFileError(f"its header gives the shape {shape}")
    return Head(shape, dtype, file.tell())


def _checked_array(file: IO[bytes], size: int, options: Options, what: str) -> Any:
    """One array from an open file of `size` bytes, read only if the header tells the truth about its length."""
    head = read_head(file)
    if head.dtype.hasobject:
        raise DataFileError(f"{what} holds Python objects, which are pickled; pickles can run code and are never read")
    if head.nbytes != size - head.length:
        raise DataFileError(
            f"{what} should have {head.nbytes:,} bytes by its header (shape {head.shape}, {head.dtype}), and "
            f"{size - head.length:,} follow it; the file was cut, or its header is wrong"
        )
    check_total(head.nbytes, options.max_bytes, what)
    file.seek(0)
    with foreign("a NumPy array"):
        array = numpy.lib.format.read_array(file, allow_pickle=False, max_header_size=LARGEST_HEADER)
    _check_letters(array, what)
    return array


def _check_letters(array: Any, what: str) -> None:
    """Refuse texts of which a letter has a number beyond Unicode's, which Python cannot hold."""
    if array.dtype.kind == "U" and array.nbytes:
        numbers = numpy.ascontiguousarray(array).reshape(-1).view(numpy.dtype("u4").newbyteorder(array.dtype.byteorder))
        largest = int(numbers.max())
        if largest > LARGEST_LETTER:
            raise DataFileError(f"{what} holds a letter of number {largest:,}; Unicode ends at {LARGEST_LETTER:,}")


def _heads(archive: zipfile.ZipFile) -> dict[str, Head]:
    heads: dict[str, Head] = {}
    check_columns(len(archive.infolist()))
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in heads:
            raise DataFileError(f"it has two arrays of the name {name!r}")
        heads[name] = _head_of(archive, info)
    return heads


def _head_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Head:
    with archive.open(info) as member:
        if member.read(len(MAGIC)) != MAGIC:
            raise DataFileError(
                f"{info.filename!r} in it is no NumPy array (.npy), and an .npz archive holds nothing else"
            )
        member.seek(0)
        return read_head(member)


def _member(archive: zipfile.ZipFile, name: str, options: Options) -> Any:
    info = _info(archive, name)
    with archive.open(info) as member:
        array = _checked_array(member, info.file_size, options, f"array {name!r}")
        member.read(1)  # reaching the end compares the checksum
        return array


def _info(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(name + ".npy")
    except KeyError:
        return archive.getinfo(name)


def _check_archive(archive: zipfile.ZipFile, wanted: list[str], heads: dict[str, Head], options: Options) -> None:
    """Limits for all arrays together: a single column of few different values may well be packed a thousandfold."""
    infos = [_info(archive, name) for name in wanted]
    expanded = sum(max(info.file_size, heads[name].nbytes) for name, info in zip(wanted, infos, strict=True))
    check_expansion(expanded, sum(info.compress_size for info in infos), "its arrays")
    check_total(expanded, options.max_bytes, "its arrays")


def _chosen(heads: dict[str, Head], key: str | None) -> str | None:
    """The array of features: `key`, or "X", or the only matrix; None where all arrays are columns."""
    if key is not None:
        if key not in heads:
            raise OptionError(f"there is no array {key!r} in it; there are {', '.join(map(repr, heads)) or 'none'}")
        return key
    matrices = [name for name, head in heads.items() if len(head.shape) >= 2 and head.dtype.kind in "biuf"]
    if "X" in matrices:
        return "X"
    if len(matrices) > 1:
        shapes = ", ".join(f"{name!r} {heads[name].shape}" for name in matrices)
        raise DataFileError(f"it has several matrices: {shapes}; choose one, key='{matrices[0]}'")
    return matrices[0] if matrices else None


def _common_length(heads: dict[str, Head]) -> int:
    lengths = [head.shape[0] for head in heads.values() if len(head.shape) == 1]
    if not lengths:
        raise DataFileError("there is no table in it: no array with rows")
    return max(sorted(set(lengths)), key=lengths.count)


def _is_column(head: Head, count: int) -> bool:
    return len(head.shape) == 1 and head.shape[0] == count and head.dtype.kind in "biufUSMm"
