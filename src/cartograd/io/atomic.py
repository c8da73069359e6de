"""Files that are whole or absent: written beside their place under another name, then renamed over it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from cartograd.core.filenames import special_kind
from cartograd.errors import CartogradError, FileAbsentError, FileAccessError
from cartograd.io.leftovers import remove_leftovers, temporary_name
from cartograd.io.plainfile import checked_path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty temporary file in the same folder, which takes the place of `path` when the block ends well.

    At the end the file is flushed to the disk, renamed (one step: a reader sees the old file or the new one), and the
    folder is flushed. If the block raises, the temporary file is removed and `path` is as it was. A process that is
    killed leaves `path` as it was too, and a file ``.NAME.XXXX.tmp`` beside it, which the next call for a file of that
    folder removes.

    Parameters
    ----------
    path : str or path
        Where the file is to be. A symbolic link is followed; the permissions of a file that is there are kept.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = _checked_target(path)
    remove_leftovers(target.parent)
    temporary = _create_beside(target)
    mode = (target if target.exists() else temporary).stat().st_mode & 0o7777
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # what wrote it may have put another file in its place
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, CartogradError):
            raise _access_error(error, f"could not write {target}", "what was there before is unchanged") from error
        raise
    _flush_folder(target.parent)


@contextmanager
def open_atomic(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """`open` for writing, with the promise of `replacing`; `options` are those of `open`."""
    with replacing(path) as temporary, open(temporary, mode, **options) as file:
        yield file
        file.flush()


def _checked_target(path: str | os.PathLike[str]) -> Path:
    target = Path(os.path.realpath(checked_path(path)))
    if not target.parent.is_dir():
        raise FileAbsentError(f"cannot write {target.name}: the folder {target.parent} does not exist; make it first")
    if target.is_dir():
        raise FileAccessError(f"cannot write {target}: it is a folder; give the name of a file")
    kind = special_kind(target.stat().st_mode) if target.exists() else None
    if kind is not None:
        raise FileAccessError(f"cannot write {target}: it is {kind}; give the name of a plain file")
    return target


def _create_beside(target: Path) -> Path:
    """A new empty file with the permissions that the user's umask gives, as `open` would have made it."""
    temporary = target.with_name(temporary_name(target.name))
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        raise _access_error(error, f"cannot write into the folder {target.parent}", "choose another") from error
    return temporary


def _access_error(error: OSError, what: str, then: str) -> FileAccessError:
    ours = FileAccessError(f"{what}: {error.strerror or error}; {then}")
    ours.errno = error.errno
    return ours


def _flush_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system lets folders be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
