"""Names of files: which ones no file can have, and how an error message shows them."""

from __future__ import annotations

import os
import stat

LONGEST_NAME, LONGEST_PATH = 255, 4095
"""Bytes that file systems take."""
LONGEST_SHOWN = 300
"""Characters of a name that an error message shows at most."""
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def wrong_name(path: str) -> str | None:
    r"""Return what no file can be called in `path`, or None.

    Examples
    --------
    >>> wrong_name("a.csv"), wrong_name("a\0b")
    (None, 'a name holds no character NUL')
    >>> wrong_name("é" * 128)
    'a name of a file has at most 255 bytes, this one has 256'
    """
    if not path:
        return "a name of a file is not empty"
    if "\0" in path:
        return "a name holds no character NUL"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "a name holds no character that the system cannot write"
    longest = max(len(part) for part in encoded.split(os.fsencode(os.sep)))
    if longest > LONGEST_NAME:
        return f"a name of a file has at most {LONGEST_NAME} bytes, this one has {longest:,}"
    if len(encoded) > LONGEST_PATH:
        return f"a path has at most {LONGEST_PATH:,} bytes, this one has {len(encoded):,}"
    return None


def special_kind(mode: int) -> str | None:
    """Return what a file of the mode `mode` is instead of a plain file, in words, or None for a plain file.

    Examples
    --------
    >>> special_kind(os.stat("/").st_mode), special_kind(stat.S_IFREG)
    ('a folder', None)
    """
    return None if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "a special file")


def show_name(path: str) -> str:
    r"""Return a name as one line of printable characters for an error message.

    Examples
    --------
    >>> show_name("a b.csv"), show_name("a\nb.csv")
    ('a b.csv', 'a\\nb.csv')
    """
    text = path if path.isprintable() else ascii(path)[1:-1]
    half = LONGEST_SHOWN // 2
    return text if len(text) <= LONGEST_SHOWN else f"{text[:half]}...{text[-half:]}"
