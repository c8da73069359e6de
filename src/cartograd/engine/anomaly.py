"""Finding the first op that makes a NaN or an Inf, for `detect_anomaly`, and for torch's, which is about gradients."""

from __future__ import annotations

import sys
from typing import Any

import torch

from cartograd.engine import modes
from cartograd.engine.graph import Node, calling_place, describe_place
from cartograd.errors import AnomalyError


def bad_value(value: Any) -> str | None:
    """`"a NaN"`, `"an Inf"` or `None`. One sum tells that all is well; only a suspicion is looked into."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return None
    value = value.detach()
    if value.numel() == 0 or torch.isfinite(value.sum()):
        return None
    if torch.isnan(value).any():
        return "a NaN"
    return "an Inf" if torch.isinf(value).any() else None


def worst(values: Any) -> str | None:
    """Return "a NaN" if one of `values` has one, else "an Inf" if one has one, else None."""
    found = set(map(bad_value, values))
    return next((kind for kind in ("a NaN", "an Inf") if kind in found), None)


def watches_torch() -> bool:
    """Return whether ``torch.autograd.detect_anomaly`` checks gradients for NaN."""
    return torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()


def check_forward(name: str, inputs: Any, out: Any) -> None:
    """Raise if a value of `out` is not finite and the op, not its inputs, is to blame."""
    if not modes.watch.depth:
        return
    found = worst(out if isinstance(out, (tuple, list)) else [out])
    if found is None or not _counts(found, inputs):
        return
    place = describe_place(*calling_place(sys._getframe(1)))
    given = any(bad_value(value) == "a NaN" for value in _flat(inputs))
    verb = "was given" if found == "a NaN" and given else "made"
    raise AnomalyError(f"{name} {verb} {found} at {place}; its inputs: {describe(inputs)}")


def check_backward(node: Node, g: Any, gradients: list[Any], saved: tuple[Any, ...]) -> None:
    """Raise if a gradient of `node` is not finite; for torch's anomaly mode, if it is NaN."""
    if not modes.watch.depth and not watches_torch():
        return
    incoming = g if isinstance(g, (tuple, list)) else [g]
    found = worst([getattr(one, "data", one) for one in gradients])
    if found is None or not _counts(found, [getattr(one, "data", one) for one in incoming]):
        return
    known = describe(saved)
    raise AnomalyError(
        f"the gradient of {node.name} has {found}; the op was called at {node.where()}; "
        f"incoming gradient: {describe(incoming)}; saved: {known}"
    )


def _counts(found: str, inputs: Any) -> bool:
    """An Inf counts only if asked for and if no argument had one already (a mask of -inf is meant)."""
    if found == "a NaN":
        return True
    return bool(modes.watch.depth) and modes.watch.inf and not any(_infinite(value) for value in _flat(inputs))


def _infinite(value: Any) -> bool:
    if isinstance(value, float):
        return value in (float("inf"), float("-inf"))
    return bad_value(value) == "an Inf"


def _flat(values: Any) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat.extend(_flat(value)) if isinstance(value, (tuple, list)) else flat.append(value)
    return flat


def describe(values: Any) -> str:
    """Shapes and ranges of the tensors among `values`, numbers as they are."""
    return ", ".join(filter(None, map(_describe_one, _flat(values)))) or "none"


def _describe_one(value: Any) -> str:
    value = getattr(value, "data", value)
    if isinstance(value, float):
        return str(value)
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.is_complex():
        return ""
    low, high = (value.min().item(), value.max().item()) if value.dtype != torch.bool else (0, 1)
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')} in [{low:.4g}, {high:.4g}]"
