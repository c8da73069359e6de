"""Every layer of torch.nn in the engine's other ways: packed, checkpointed, on threads, in the least budget, replayed.

Whatever the way, the gradients of all parameters and inputs and the buffers have the bits of an ordinary pass.
"""

import copy

import pytest
import torch
from layers import CASES
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_leaves

import cartograd
from cartograd import errors

VALUES_DECIDE = {"AdaptiveLogSoftmaxWithLoss", "Embedding.by_frequency", "GaussianNLLLoss", "CTCLoss"}
VALUES_DECIDE |= {f"BatchNorm{rank}d.plain" for rank in (1, 2, 3)}  # without momentum: it divides by a count it reads
TORCHS_GRAPH = {"LinearCrossEntropyLoss", "weight_norm", "spectral_norm", "orthogonal"}


def build(case):
    torch.manual_seed(0)
    module = case.make().double().train(case.training)
    given = case.inputs()
    if any(isinstance(one, UninitializedParameter) for one in module.parameters()):
        with torch.no_grad():
            module(*lifted(given, case))
    return module, lifted(given, case)


def lifted(given, case):
    return tuple(
        lifted(one, case)
        if isinstance(one, tuple)
        else cartograd.tensor(one.clone(), requires_grad=one.is_floating_point() and place not in case.fixed)
        for place, one in enumerate(given)
    )


def loss_of(result):
    """Every output weighed with fixed numbers, all different."""
    outs = [one for one in tree_leaves(result) if isinstance(one, cartograd.Tensor) and one.requires_grad]
    weights = [torch.linspace(0.3 + k, 1.7, one.numel(), dtype=one.dtype).view(one.shape) for k, one in enumerate(outs)]
    return sum((one * weight).sum() for one, weight in zip(outs, weights, strict=True))


def outcome(module, given):
    leaves = [one for one in tree_leaves(given) if isinstance(one, cartograd.Tensor) and one.requires_grad]
    gradients = [getattr(one.grad, "data", one.grad) for one in [*module.parameters(), *leaves]]
    return [None if one is None else one.to_dense() for one in gradients] + [one.clone() for one in module.buffers()]


def plain(module, given):
    torch.manual_seed(1)
    loss_of(module(*given)).backward()


def packed(module, given):
    torch.manual_seed(1)
    with cartograd.saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda tensor: tensor):
        loss = loss_of(module(*given))
    loss.backward()


def checkpointed(module, given):
    torch.manual_seed(1)
    loss_of(cartograd.checkpoint(module, *given)).backward()


def on_threads(module, given):
    torch.manual_seed(1)
    loss_of(module(*given)).backward(workers=3)


def in_the_least_budget(module, given):
    state, limit = copy.deepcopy(module.state_dict()), 1
    for _ in range(2):
        torch.manual_seed(1)
        try:
            with cartograd.memory_budget(limit) as budget:
                loss_of(module(*given)).backward()
        except errors.BudgetError as error:
            limit = error.smallest
            module.load_state_dict(state)
        else:
            assert budget.plan.peak <= limit
            return
    raise AssertionError("the budget that was said to do did not")


def replayed(module, given):
    step = cartograd.capture(lambda *given: loss_of(module(*given)).backward(), *given)
    torch.manual_seed(1)
    step(*given)


@pytest.mark.parametrize("name", CASES)
def test_same_bits(name):
    module, given = build(CASES[name])
    plain(module, given)
    expected = outcome(module, given)
    for way in (packed, checkpointed, on_threads, in_the_least_budget, replayed):
        module, given = build(CASES[name])
        if way is replayed and name in VALUES_DECIDE:
            with pytest.raises(errors.CaptureError, match="depend on the values"):
                way(module, given)
            continue
        if way is replayed and name.split(".")[0] in TORCHS_GRAPH:
            with pytest.raises(errors.UnsupportedError, match="graph of torch's own"):
                way(module, given)
            continue
        way(module, given)
        found = outcome(module, given)
        assert len(found) == len(expected)
        for place, (one, right) in enumerate(zip(found, expected, strict=True)):
            assert (one is None) == (right is None), f"{way.__name__}: gradient {place}"
            assert one is None or torch.equal(one, right), f"{way.__name__}: gradient or buffer {place}"
