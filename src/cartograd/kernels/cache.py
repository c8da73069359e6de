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
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

SOURCES = Path(__file__).parent / "cpu"


def folder() -> Path:
    """The folder of this state of the sources, made if need be."""
    for root in _roots():
        if _writable(root / _digest()):
            return root / _digest()
    return private_folder()


def expected_folder() -> Path | None:
    """The same, but nothing is made: None where it would be a folder of this process alone."""
    for root in _roots():
        present = next(part for part in (root / _digest(), *(root / _digest()).parents) if part.exists())
        if present.is_dir() and os.access(present, os.W_OK | os.X_OK):
            return root / _digest()
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


def _writable(folder: Path) -> bool:
    """Whether files can be made in the folder, which is made where it is absent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
