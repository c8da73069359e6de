"""The border to other libraries that read files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cartograd.errors import CartogradError, DataFileError


@contextmanager
def foreign(kind: str) -> Iterator[None]:
    """Calls into another library, which may raise anything at all on a broken file; it becomes a `DataFileError`.

    Examples
    --------
    >>> with foreign("a number"):
    ...     int("seven")
    Traceback (most recent call last):
        ...
    cartograd.errors.DataFileError: it cannot be read as a number: invalid literal for int() with base 10: 'seven'
    """
    try:
        yield
    except CartogradError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataFileError(f"it cannot be read as {kind}: {reason}") from error
