"""Where compiled CPU kernels are kept from one process to the next.

The first of these folders that can be written to: the one that ``NUMBA_CACHE_DIR`` names, ``__pycache__`` beside the
sources, the user's folder for caches; and where none can (a read-only system), one that only this process has and that
it removes, so that kernels are compiled anew in each.

In it is a folder for each state of the sources, named after a digest of them all. Machine code of an older version is
never met again, not even where a function of one file was inlined into another file's (which numba does not see), and
processes of two versions do not disturb each other.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

log = logging.getLogger("cartograd.kernels")

SOURCES = Path(__file__).parent / "cpu"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder() -> Path:
    """The folder of this state of the sources, made if need be."""
    for root in _roots():
        if _is_usable(root / _digest()):
            return root / _digest()
    return private_folder()


def expected_folder() -> Path | None:
    """The same, but nothing is made: None where it would be a folder of this process alone."""
    for root in _roots():
        wanted = root / _digest()
        present = next(part for part in (wanted, *wanted.parents) if part.exists())
        if present.is_dir() and os.access(present, os.W_OK | os.X_OK) and (present != wanted or _is_own(present)):
            return wanted
    return None


@functools.cache
def private_folder() -> Path:
    """A folder that nobody else can write to, removed when the process ends."""
    made = tempfile.mkdtemp(prefix="cartograd-kernels-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def kernels_in(folder: Path | None, module: str) -> list[str]:
    """The names of the kernels of a module that are compiled in a folder, in order."""
    if folder is None or not folder.is_dir():
        return []
    found = folder.rglob(f"{module}.*.py{sys.version_info[0]}{sys.version_info[1]}*.nbi")
    return sorted({path.name.removeprefix(f"{module}.").rpartition("-")[0] for path in found})


def _roots() -> Iterator[Path]:
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named)
    yield SOURCES / "__pycache__"
    yield _user_caches() / "cartograd"


def _user_caches() -> Path:
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


@functools.cache
def _digest() -> str:
    """A name for the sources of all kernels, as this version of numba compiles them."""
    found = hashlib.sha256(metadata.version("numba").encode() if _has_numba() else b"")
    for path in sorted(SOURCES.glob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)} ".encode() + content)
    return f"cartograd-{found.hexdigest()[:16]}"


def _has_numba() -> bool:
    try:
        metadata.version("numba")
    except metadata.PackageNotFoundError:
        return False
    return True


def close(folder: Path) -> None:
    """Take from other users the right to write to what lies in a folder, which the umask may have given them."""
    if os.name == "posix":
        for path in (folder, *folder.rglob("*")):
            mode = path.lstat().st_mode
            if mode & OTHERS_WRITE and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~OTHERS_WRITE)


def _is_usable(folder: Path) -> bool:
    """Return whether this user alone can make files in the folder, which is made where it is absent.

    What lies in it is executed. So it is closed to other users whatever the umask is; one that belongs to another user
    is left alone, and one that others could write to is emptied.
    """
    try:
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_own(folder):
            log.warning("%s belongs to another user, or others may replace it: kernels are not read from it", folder)
            return False
        if os.name == "posix" and folder.stat().st_mode & OTHERS_WRITE:
            shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that other users cannot write to them."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)


def _is_own(folder: Path) -> bool:
    """Return whether a folder belongs to this user, is no link, and cannot be replaced by another user."""
    if os.name != "posix":
        return True
    found, above = folder.lstat(), folder.parent.stat().st_mode
    replaceable = above & stat.S_IWOTH and not above & stat.S_ISVTX
    return found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode) and not replaceable
