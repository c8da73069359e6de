"""Optional packages, imported when they are first used."""

from __future__ import annotations

import importlib
from types import ModuleType

from cartograd.errors import MissingExtraError


def required(package: str, extra: str, purpose: str) -> ModuleType:
    """Import `package`, or say which extra of cartograd brings it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs the package {package.split('.')[0]!r}, which cannot be imported ({error}). "
            f'Install it with: pip install "cartograd[{extra}]"'
        ) from error
