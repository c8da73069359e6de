"""Kernels for the CPU, compiled by numba.

A module holds the kernels of one purpose. They carry their signatures, so that importing the module compiles them, or
loads from the cache on disk (`cartograd.kernels.cache`) what an earlier process compiled; hence nobody imports these
modules at the top of a file: `load` does it at first use, `prepare` beforehand in a thread, while something else (a
search) is at work.

Kernels run on one thread without Python's lock, on a range of rows; callers spread ranges over threads. So a kernel
cannot depend on the number of threads, and no threading layer has to be set up.

Where numba is broken or absent, `usable` says so once in the log, and callers that ask it compute with torch instead.
"""

from __future__ import annotations

import ast
import functools
import importlib
import logging
import os
import pkgutil
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

from cartograd.errors import KernelError
from cartograd.kernels import cache

log = logging.getLogger("cartograd.kernels")

LONGEST_IMPORT = 10.0
"""Seconds a fork waits for imports in other threads."""

_ready: dict[str, ModuleType] = {}
_loading = threading.RLock()


def names() -> list[str]:
    """The modules of kernels, in alphabetical order, without those that only hold parts of others' kernels."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if kernels_of(found.name))


def kernels_of(name: str) -> list[str]:
    """The kernels of a module, read off its source: functions that carry a signature, in alphabetical order."""
    source = (cache.SOURCES / f"{name}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return sorted(
        function.name
        for function in functions
        if any(isinstance(decorator, ast.Call) and decorator.args for decorator in function.decorator_list)
    )


def load(name: str) -> ModuleType:
    """The module of kernels, compiled; waits for `prepare` if that is at it.

    Parameters
    ----------
    name : str
        One of `names`.

    Raises
    ------
    KernelError
        Where numba cannot compile here.
    """
    found = _ready.get(name)
    if found is not None:
        return found
    with _loading:
        if name not in _ready:
            _ready[name] = _compiled(name)
        return _ready[name]


def at_hand(name: str) -> bool:
    """Whether a module of kernels is there without a compiler's work: loaded, or in the cache on disk."""
    if name in _ready:
        return True
    return cache.kernels_in(cache.expected_folder(), name) == kernels_of(name)


def prepare(*names: str) -> threading.Thread:
    """Begin to load modules of kernels in a thread of their own; an error in it is met again by `load`."""

    def work() -> None:
        for name in names:
            if not threading.main_thread().is_alive():
                return  # the program ends, and waits for this thread
            try:
                load(name)
            except KernelError as error:
                log.debug("%s", error)

    thread = threading.Thread(target=work, name="cartograd-compile")  # a compiler must not be cut off at the exit
    thread.start()
    return thread


@functools.cache
def usable() -> bool:
    """Return whether numba can be imported; log a warning, once, if not."""
    try:
        with _loading:
            importlib.import_module("numba")
    except Exception as error:  # a foreign package that is broken breaks in any way
        log.warning(
            "numba cannot be used (%s: %s): computing with torch alone, several times slower on large data; "
            'mend it with: pip install --force-reinstall "numba>=0.61"',
            type(error).__name__,
            error,
        )
        return False
    return True


def _compiled(name: str) -> ModuleType:
    """Import a module with the cache, and if anything in that is broken (a damaged file, a full disk) without."""
    try:
        return _import(name, cache.folder())
    except Exception as error:
        log.info("kernels %s: not from the cache (%s: %s)", name, type(error).__name__, error)
    try:
        return _import(name, cache.private_folder())
    except Exception as error:
        raise KernelError(
            f"the kernels {name!r} cannot be compiled here ({type(error).__name__}: {error}); mend numba with: "
            'pip install --force-reinstall "numba>=0.61"; if it stays so, report it with the output of: cartograd info'
        ) from error


def _import(name: str, folder: Path) -> ModuleType:
    """Import a module while numba's cache is in `folder`."""
    full = f"{__name__}.{name}"
    if full in sys.modules:  # by somebody who did not ask `load`
        return importlib.import_module(full)
    config = importlib.import_module("numba").config
    config.reload_config()  # otherwise the first compilation does, and forgets the folder
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        module = importlib.import_module(full)
        cache.close(folder)
        return module
    finally:
        config.CACHE_DIR = before


def _hold_for_fork() -> None:
    """Let a fork wait for the end of compilations and imports in other threads, whose locks it would copy locked."""
    _loading.acquire()
    end = time.monotonic() + LONGEST_IMPORT
    while _is_importing() and time.monotonic() < end:
        time.sleep(0.001)


def _is_importing() -> bool:
    """Return whether another thread is importing a module; False where this Python does not tell."""
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    owners = {getattr(found(), "owner", None) for found in list(locks.values())}
    return bool(owners - {None, threading.get_ident()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_for_fork, after_in_parent=_loading.release, after_in_child=_loading.release)
