"""Optional packages, imported when they are first used."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from cartograd.errors import MissingExtraError


def available(package: str) -> bool:
    """Whether `package` can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def required(package: str, backend: str) -> ModuleType:
    """Import `package`, or say how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"backend {backend!r} needs the package {package!r}, which cannot be imported ({error}). "
            'Install it with: pip install "cartograd[ann]", or use backend="auto"'
        ) from error
