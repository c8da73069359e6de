"""Where to compute where a caller does not say."""

from __future__ import annotations

import os
from typing import Any

import torch

from cartograd.errors import OptionError
from cartograd.neighbors.validate import check_device

VARIABLE = "CARTOGRAD_DEVICE"
"""The environment variable that names a device, "cpu" or "cuda" or "cuda:1"; not set, or empty, it says nothing."""


def device_or_default(device: Any) -> Any:
    """The device; where it is None or "auto" the one of `VARIABLE`, or None if that says nothing."""
    if not (device is None or (isinstance(device, str) and device == "auto")):
        return device
    named = os.environ.get(VARIABLE)
    return _checked(named) if named else None


def _checked(named: str) -> torch.device:
    try:
        return check_device(named)
    except OptionError as error:
        raise OptionError(f"of the environment variable {VARIABLE}: {error}") from None
