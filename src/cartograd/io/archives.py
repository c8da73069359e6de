"""Zip archives: arrays of NumPy, one packed text table, or something that must be unpacked or saved anew first."""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath
from typing import IO

from cartograd.core.filenames import show_name
from cartograd.errors import DataFileError
from cartograd.io.foreign import foreign
from cartograd.io.limits import check_expansion, check_total

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""How an archive begins, one without members the second way."""
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How spreadsheets of the older kind begin."""
SPREADSHEET = "it is a spreadsheet, which is not read; save its sheet as .csv ('Save as', 'CSV UTF-8') and give that"
SHEETS = frozenset(["[Content_Types].xml", "mimetype", "Index/Document.iwa"])
"""Members that spreadsheets of Excel, LibreOffice and Numbers have."""
TEXTS = frozenset([".csv", ".tsv", ".tab", ".txt", ".jsonl", ".ndjson", ".json"])
SHOWN = 3
"""Members that a message names."""


def is_zip(first: bytes) -> bool:
    """Return whether a file that begins so is a zip archive."""
    return first.startswith(ZIP)


def member_names(file: IO[bytes]) -> list[str]:
    """Return the names of the files in an archive, without those that systems add."""
    with foreign("a zip archive"), zipfile.ZipFile(file) as archive:
        return [info.filename for info in _members(archive)]


def text_suffix(names: list[str]) -> str:
    """Return the suffix of the only text table in an archive; refuse archives that hold anything else."""
    if SHEETS & set(names):
        raise DataFileError(SPREADSHEET)
    suffix = PurePosixPath(names[0]).suffix.lower() if len(names) == 1 else ""
    if suffix not in TEXTS:
        listed = ", ".join(f"'{show_name(name)}'" for name in names[:SHOWN])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise DataFileError(
            f"it is a zip archive that holds {listed or 'nothing'}{more}, not one text table and no NumPy archive "
            "(.npz); unpack it and give one of its files"
        )
    return suffix


def open_member(archive: zipfile.ZipFile, max_bytes: int) -> tuple[IO[bytes], int]:
    """Open the only text table of an archive, within the limits; return it and its packed size."""
    text_suffix([info.filename for info in _members(archive)])
    (info,) = _members(archive)
    check_expansion(info.file_size, info.compress_size, f"its member '{show_name(info.filename)}'")
    check_total(info.file_size, max_bytes, f"its member '{show_name(info.filename)}'")
    with foreign("a zip archive"):
        return archive.open(info), info.compress_size


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    return [info for info in archive.infolist() if info.filename and not _is_ignored(info.filename)]


def _is_ignored(name: str) -> bool:
    """Return whether a member is a folder, or a file that a system adds to archives."""
    return name.endswith(("/", ".DS_Store")) or name.startswith("__MACOSX/")
