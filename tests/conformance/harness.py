"""Compares our ops with torch's autograd over PyTorch's own OpInfo samples, in float64.

OpInfo is a private module of torch (and needs `expecttest`): this file is the only one that touches it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import cartograd
from cartograd.engine.fallback import TorchPlan

CAP = 60
NOT_EVERYWHERE = {"native_group_norm": "not in the OpInfo of 2.11", "cholesky": "not in the OpInfo of 2.15"}
"""Entries that some torch we support does not have."""
NEW_DERIVATIVES = {"aminmax"}
"""Ops that torch 2.11 cannot differentiate, so that there is nothing to compare ours with."""
counts: dict[str, int] = {}
asked: set[str] = set()
"""The names that the files of this folder compare, as far as they were imported."""


@functools.cache
def database() -> dict[str, list[Any]]:
    """OpInfo entries by name; several variants may share one."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Any]] = {}
    for entry in op_db:
        found.setdefault(entry.name, []).append(entry)
    return found


def entries(names: list[str]) -> list[Any]:
    """One pytest parameter for each entry with one of these names."""
    asked.update(names)
    missing = [name for name in names if name not in database() and name not in NOT_EVERYWHERE]
    assert not missing, f"not in OpInfo: {missing}"
    return [
        pytest.param(
            entry,
            id=f"{name}{'.' + entry.variant_test_name if entry.variant_test_name else ''}",
            marks=pytest.mark.skipif(
                name in NEW_DERIVATIVES and not entry.supports_autograd, reason="this torch cannot differentiate it"
            ),
        )
        for name in names
        for entry in database().get(name, [])
    ]


def samples(entry: Any, cap: int = CAP) -> Iterator[Any]:
    """Sample inputs, evenly thinned to `cap`; more of them for entries that have few."""
    torch.manual_seed(0)
    every = list(entry.sample_inputs("cpu", torch.float64, requires_grad=True))
    if len(every) < 4:
        every += list(entry.reference_inputs("cpu", torch.float64, requires_grad=True))
    stride = max(1, -(-len(every) // cap))
    return iter(every[::stride])


def lift(tree: Any) -> tuple[Any, Any, list[tuple[torch.Tensor, Any]]]:
    """The same arguments with fresh torch leaves, and with tensors of ours; and pairs of those that require grad."""
    flat, structure = tree_flatten(tree)
    pairs: list[tuple[torch.Tensor, Any]] = []
    theirs, ours = [], []
    for value in flat:
        if isinstance(value, torch.Tensor):
            wanted = value.requires_grad
            theirs.append(value.detach().clone().requires_grad_(wanted))
            ours.append(cartograd.tensor(value.detach().clone(), requires_grad=wanted))
            if wanted:
                pairs.append((theirs[-1], ours[-1]))
        else:
            theirs.append(value)
            ours.append(value)
    return tree_unflatten(theirs, structure), tree_unflatten(ours, structure), pairs


def check_entry(entry: Any, call: Any = None, own: bool = True, cap: int = CAP, rtol: float = 1e-10) -> None:
    """Values and gradients of every sample equal torch's; with `own`, through our rules alone."""
    call = call or entry.op
    for number, sample in enumerate(samples(entry, cap)):
        try:
            compare(call, sample, own, rtol)
        except Exception as error:
            error.add_note(f"{entry.name}{entry.variant_test_name} sample {number}: {sample.summary()}")
            raise
        counts[entry.name] = counts.get(entry.name, 0) + 1


def compare(call: Any, sample: Any, own: bool, rtol: float) -> None:
    """One sample: run both, compare outputs, then gradients from the same random seeds."""
    theirs, ours, pairs = lift((sample.input, sample.args, sample.kwargs))
    results = []
    for first, rest, options in (theirs, ours):
        torch.manual_seed(1)
        results.append(outputs(sample.output_process_fn_grad(call(first, *rest, **options))))
    expected, result = results
    assert len(result) == len(expected)
    for mine, other in zip(result, expected, strict=True):
        assert isinstance(mine, cartograd.Tensor), f"{type(mine)} came out"
        torch.testing.assert_close(mine.data, other.detach(), rtol=rtol, atol=1e-12, equal_nan=True)
        assert mine.requires_grad == other.requires_grad, f"requires_grad is {mine.requires_grad}"
    chosen = [(o, t) for o, t in zip(result, expected, strict=True) if t.requires_grad]
    if not chosen:
        return
    if own:
        foreign = [n.name for n in cartograd.trace(*(o for o, _ in chosen)).nodes if isinstance(n.plan, TorchPlan)]
        assert not foreign, f"torch's derivative was used for {foreign}"
    seeds = [torch.randn_like(t) for _, t in chosen]
    wanted = torch.autograd.grad([t for _, t in chosen], [t for t, _ in pairs], seeds, allow_unused=True)
    found = cartograd.grad([o for o, _ in chosen], [o for _, o in pairs], seeds, allow_unused=True)
    for mine, other, (leaf, _) in zip(found, wanted, pairs, strict=True):
        zero = torch.zeros_like(leaf)
        mine = zero if mine is None else mine.data
        other = zero if other is None else other
        torch.testing.assert_close(mine, other, rtol=rtol, atol=1e-10, equal_nan=True)


def outputs(result: Any) -> list[Any]:
    """The floating-point tensors of a result, in order."""
    flat, _ = tree_flatten(result)
    return [one for one in flat if isinstance(one, (torch.Tensor, cartograd.Tensor)) and one.dtype.is_floating_point]
