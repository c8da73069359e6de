"""engine/transparent.py and ops/composed.py: torch's own bodies on our Tensors, by our rules."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd.engine.fallback import TorchPlan
from cartograd.engine.tensor import RULES
from cartograd.engine.transparent import lifted, transparent

CALLS = {
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize_p1": lambda x: F.normalize(x, p=1.0, dim=0, eps=0.1),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, tau=0.7),
    "gumbel_softmax_hard": lambda x: F.gumbel_softmax(x, hard=True, dim=0),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 2),
}
if hasattr(F, "linear_cross_entropy"):
    TARGET = torch.tensor([0, 1, 1])
    CALLS["linear_cross_entropy"] = lambda x: F.linear_cross_entropy(
        x, x[:2].cos(), TARGET, weight=torch.ones(2).double()
    )


@pytest.mark.parametrize("name", CALLS)
def test_bodies_run_on_our_rules(name):
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64)
    theirs, mine = x.clone().requires_grad_(), cartograd.tensor(x.clone(), requires_grad=True)
    torch.manual_seed(1)
    expected = CALLS[name](theirs)
    torch.manual_seed(1)
    found = CALLS[name](mine)
    torch.testing.assert_close(found.data, expected.detach(), rtol=1e-10, atol=1e-12)
    foreign = [node.name for node in cartograd.trace(found).nodes if isinstance(node.plan, TorchPlan)]
    assert not foreign
    assert len(list(cartograd.trace(found).nodes)) > 1
    seed = torch.randn_like(expected)
    (right,) = torch.autograd.grad(expected, theirs, seed)
    torch.testing.assert_close(cartograd.grad(found, mine, seed)[0].data, right, rtol=1e-10, atol=1e-10)


def test_torch_itself_is_unchanged():
    names = F.gumbel_softmax.__globals__
    assert names is vars(F)
    assert names["has_torch_function_unary"](cartograd.tensor(1.0))
    assert RULES[F.gumbel_softmax] is not F.gumbel_softmax


def test_defaults_keywords_and_closures_are_kept():
    offset = 2

    def body(x, *, factor=3):
        return x * factor + offset

    copied = transparent(body)
    assert copied(1) == 5
    assert copied(1, factor=4) == 6
    assert copied.__name__ == "body"
    with pytest.raises(TypeError, match="plain Python function"):
        transparent(torch.add)


def test_names_can_be_replaced():
    body = transparent(F._none_or_dtype, isinstance=lambda value, kind: True)
    assert body(cartograd.tensor([1.0])) is torch.float32


def test_views_of_parameters_are_recorded_by_us():
    """Cross attention splits its packed weight: `grad` must find the way back to the whole Parameter."""
    torch.manual_seed(2)
    module = nn.MultiheadAttention(4, 2, dtype=torch.float64)
    x, y = torch.randn(3, 2, 4, dtype=torch.float64), torch.randn(5, 2, 4, dtype=torch.float64)
    wanted = list(module.parameters())
    found = cartograd.grad(module(cartograd.tensor(x), y, y)[0].sin().sum(), wanted)
    expected = torch.autograd.grad(module(x, y, y)[0].sin().sum(), wanted)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.data, other, rtol=1e-10, atol=1e-10)


def test_lifting():
    parameter = nn.Parameter(torch.ones(2))
    tensor = lifted(parameter)
    (tensor * 3).sum().backward()
    assert parameter.grad.tolist() == [3, 3]
    assert lifted(torch.ones(2)) is not None
    assert not isinstance(lifted(torch.ones(2)), cartograd.Tensor)
    with cartograd.no_grad():
        assert lifted(parameter) is parameter
