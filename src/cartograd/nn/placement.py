"""Parameters on the engine that the data is on."""

from __future__ import annotations

from typing import Any

from torch import nn

from cartograd.engine.tensor import Tensor as Recorded
from cartograd.engine.transparent import lifted


def on_engine_of(value: Any, parameter: nn.Parameter) -> Any:
    """The parameter, such that a view of it is recorded by the engine that `value` is on: ours or torch's."""
    return lifted(parameter) if type(value) is Recorded else parameter
