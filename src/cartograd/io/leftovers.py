"""Temporary files that a process left when it was killed in the middle of writing, and how they are recognized.

A temporary file is called ``.NAME.MACHINE-PROCESS-RANDOM.tmp``. MACHINE stands for where the number of a process means
that process: one computer since it was started, and one container on it. A folder can be shared by several of them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path

from cartograd.core.filenames import special_kind

LONGEST_NAME = 200
"""Bytes of the target's name that are repeated in the temporary one; file systems allow 255 in all."""
OLD = 24 * 3600.0
"""Seconds after which a temporary file counts as left, where it cannot be known whether its writer lives."""
OURS = re.compile(r"^\..+\.(?:([0-9a-f]{8})-([0-9]{1,10})-)?[0-9a-f]{8}\.tmp$", re.DOTALL)


def temporary_name(name: str) -> str:
    """Return a new name for the temporary file of a file called `name`."""
    stem = name.encode("utf-8", "surrogateescape")[:LONGEST_NAME].decode("utf-8", "ignore")
    return f".{stem}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.tmp"


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files in a folder whose writers no longer live; what cannot be removed stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = OURS.match(entry.name)
            if found is not None:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if special_kind(status.st_mode) is None and _is_left(found[1], found[2], status.st_mtime):
                        os.unlink(entry.path)


def _is_left(machine: str | None, process: str | None, written: float) -> bool:
    """Return whether a temporary file has no writer; names of version 0.1 do not name the writer."""
    if machine == _machine() and process is not None and os.name == "posix":
        return not _lives(int(process))
    return time.time() - written > OLD


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)  # which sends nothing
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@functools.cache
def _machine() -> str:
    """Return 8 digits for the computer, its start and the container."""
    parts = [platform.node()]
    for read in (lambda: Path("/proc/sys/kernel/random/boot_id").read_text(), lambda: os.readlink("/proc/self/ns/pid")):
        with suppress(OSError):
            parts.append(read())
    return hashlib.sha256(" ".join(parts).encode("utf-8", "replace")).hexdigest()[:8]
