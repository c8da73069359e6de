"""Files that may be opened: plain ones, whose bytes are on the disk and not holes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cartograd.core.filenames import show_name, special_kind, wrong_name
from cartograd.errors import DataFileError, OptionError, UnsupportedError
from cartograd.io.limits import FREE_EXPANSION, LARGEST_EXPANSION


def checked_path(path: Any, what: str = "the name of the file") -> str:
    """Return a path as text; refuse other types, and names that no file can have."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise UnsupportedError(f"{what} must be text or a path of text, got {type(text).__name__}")
    wrong = wrong_name(text)
    if wrong is not None:
        raise OptionError(f"{what} '{show_name(text)}' cannot be one: {wrong}")
    return text


def check_plain(path: Path) -> None:
    """Refuse pipes, sockets, devices and folders, which block or never end, and files that are mostly holes."""
    found = os.stat(path)
    kind = special_kind(found.st_mode)
    if kind is not None:
        raise DataFileError(f"it is {kind}, not a plain file; save its content to a file, or pipe it in and give '-'")
    there = _bytes_on_disk(path, found)
    if found.st_size > FREE_EXPANSION and found.st_size > LARGEST_EXPANSION * there:
        raise DataFileError(
            f"it is a file of {found.st_size:,} bytes, all but {there:,} of them holes: refused as a bomb"
        )


def _bytes_on_disk(path: Path, found: os.stat_result) -> int:
    """Return how many bytes of a file are no holes, or its size where the system does not say."""
    if not hasattr(os, "SEEK_DATA") or getattr(found, "st_blocks", found.st_size) * 512 >= found.st_size:
        return found.st_size
    count = place = 0
    with open(path, "rb", buffering=0) as file:
        while place < found.st_size and count * LARGEST_EXPANSION < found.st_size:
            try:
                place = file.seek(place, os.SEEK_DATA)
                end = file.seek(place, os.SEEK_HOLE)
            except OSError:  # nothing but holes follows
                break
            count, place = count + end - place, end
    return count
