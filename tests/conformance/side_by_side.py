"""One call with torch's engine and with ours: the same value, the same gradients."""

import torch

import cartograd
from cartograd.engine.fallback import TorchPlan


def values(*shape, low=-1.0, high=1.0, seed=0, dtype=torch.float64):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=dtype, generator=generator) * (high - low) + low


def agree(call, *inputs, wanted=None, own=True):
    """Values and gradients of ``call(*inputs)`` are torch's; `wanted` lists the inputs that require grad."""
    floats = [i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor) and one.is_floating_point()]
    wanted = floats if wanted is None else wanted
    theirs = [one.clone().requires_grad_() if i in wanted else one for i, one in enumerate(inputs)]
    ours = [cartograd.tensor(one.clone(), requires_grad=True) if i in wanted else one for i, one in enumerate(inputs)]
    expected, result = call(*theirs), call(*ours)
    assert type(result) is cartograd.Tensor
    torch.testing.assert_close(result.data, expected.detach(), rtol=1e-12, atol=1e-13)
    if own:
        foreign = [node.name for node in cartograd.trace(result).nodes if isinstance(node.plan, TorchPlan)]
        assert not foreign
    seed = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(1))
    expected.backward(seed)
    result.backward(seed)
    for i in wanted:
        assert ours[i].grad is not None, f"input {i} has no gradient"
        torch.testing.assert_close(ours[i].grad.data, theirs[i].grad, rtol=1e-11, atol=1e-12)
    return result
