"""One call, compared with torch: for the tests of single ops, where OpInfo has no sample."""

from __future__ import annotations

from typing import Any

import torch

import cartograd
from cartograd.engine.fallback import TorchPlan


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Random numbers; the seed is printed."""
    print("seed", seed)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def agree(function: Any, *tensors: torch.Tensor, own: bool = True, needs: Any = None) -> list[Any]:
    """Run `function` on our tensors and on torch's; values, dtypes and gradients must be the same. Returns ours.

    Floating-point tensors require grad, or those only that `needs` says; with `own`, torch's derivative is not used.
    """
    floats = [tensor.is_floating_point() for tensor in tensors]
    wanted = floats if needs is None else needs
    pairs = list(zip(tensors, wanted, strict=True))
    theirs = [tensor.clone().requires_grad_(need) for tensor, need in pairs]
    ours = [cartograd.tensor(tensor.clone(), requires_grad=need) for tensor, need in pairs]
    expected, result = function(*theirs), function(*ours)
    assert isinstance(result, cartograd.Tensor)
    torch.testing.assert_close(result.data, expected.detach(), equal_nan=True)
    assert result.requires_grad == expected.requires_grad
    if own:
        foreign = [node.name for node in cartograd.trace(result).nodes if isinstance(node.plan, TorchPlan)]
        assert not foreign, f"torch's derivative was used for {foreign}"
    seed = torch.arange(1, expected.numel() + 1).reshape(expected.shape).to(expected.dtype)
    expected.backward(seed)
    result.backward(seed)
    for mine, other, need in zip(ours, theirs, wanted, strict=True):
        if not need:
            assert mine.grad is None
            continue
        wanted_grad = torch.zeros_like(other) if other.grad is None else other.grad
        found = torch.zeros_like(other) if mine.grad is None else mine.grad.data
        torch.testing.assert_close(found, wanted_grad, equal_nan=True)
    return [None if mine.grad is None else mine.grad.data for mine in ours]
