"""Refuse interpreters in which torch and NumPy do not work."""

from __future__ import annotations

import importlib

from cartograd.errors import UnsupportedError


def refuse_subinterpreter() -> None:
    """Raise in a subinterpreter of Python, where importing NumPy or torch waits forever or ends the process."""
    if not _is_main():
        raise UnsupportedError(
            "cartograd cannot be used in a subinterpreter, because NumPy and torch cannot; use a process, for example "
            "with concurrent.futures.ProcessPoolExecutor"
        )


def _is_main() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # Python 3.13 and later, before
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True
