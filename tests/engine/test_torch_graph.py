"""A graph of ours that goes on into one of torch's, which ops of Parameters alone leave."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def model():
    torch.manual_seed(0)
    return nn.Linear(3, 2).double()


def penalized(layer, x):
    """A loss that reaches the weight by an op of ours, by torch's graph, and by both one after the other."""
    penalty = (layer.weight**2).sum()
    return layer(x).square().sum() + 0.5 * penalty + (x.sum() * penalty).sin() + penalty * layer.bias.exp().sum()


def expected(create_graph=False):
    layer = model()
    x = torch.arange(6.0, dtype=torch.float64).view(2, 3).requires_grad_()
    return layer, x, penalized(layer, x)


def ours():
    layer = model()
    x = cartograd.tensor(torch.arange(6.0, dtype=torch.float64).view(2, 3), requires_grad=True)
    return layer, x, penalized(layer, x)


def same(mine, theirs):
    torch.testing.assert_close(torch.as_tensor(mine.data), theirs.detach(), rtol=1e-12, atol=1e-12)


def test_the_weight_decay_of_a_parameter_is_part_of_its_gradient():
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    x = cartograd.tensor([1.0, 2.0])
    loss = (weight * x).sum() + 0.5 * (weight**2).sum()
    assert cartograd.grad(loss, weight, retain_graph=True)[0].tolist() == [4.0, 6.0]
    loss.backward(inputs=[weight])
    assert weight.grad.tolist() == [4.0, 6.0]


@pytest.mark.parametrize("wanted", ["weight", "bias", "both", "x and weight", "x"])
def test_grad_follows_torchs_graph_to_the_inputs(wanted):
    def chosen(layer, x):
        return {
            "weight": [layer.weight],
            "bias": [layer.bias],
            "both": [layer.bias, layer.weight, layer.bias],
            "x and weight": [x, layer.weight],
            "x": [x],
        }[wanted]

    layer, x, loss = ours()
    other, y, reference = expected()
    found = cartograd.grad(loss, chosen(layer, x))
    for mine, theirs in zip(found, torch.autograd.grad(reference, chosen(other, y)), strict=True):
        same(mine, theirs)
    assert layer.weight.grad is None


@pytest.mark.parametrize("workers", [1, 3])
def test_backward_into_some_inputs(workers):
    layer, x, loss = ours()
    other, y, reference = expected()
    loss.backward(inputs=[layer.weight, x], workers=workers)
    reference.backward(inputs=[other.weight, y])
    same(layer.weight.grad, other.weight.grad)
    same(x.grad, y.grad)
    assert layer.bias.grad is None


@pytest.mark.parametrize("workers", [1, 3])
def test_hooks_of_a_parameter_run_once_on_the_total(workers):
    """One total, one call of each hook, whatever the number of graphs that contribute."""
    found = []
    for layer, _, loss in (ours(), expected()):
        calls = []
        layer.weight.register_hook(lambda g, calls=calls: calls.append(("hook", g.clone())))
        layer.weight.register_post_accumulate_grad_hook(lambda p, calls=calls: calls.append(("post", p.grad.clone())))
        layer.bias.register_post_accumulate_grad_hook(lambda p, calls=calls: calls.append(("post", p.grad.clone())))
        loss.backward(**({"workers": workers} if isinstance(loss, cartograd.Tensor) else {}))
        found.append(sorted(calls, key=lambda call: (call[0], call[1].shape)))
    assert [call[0] for call in found[0]] == [call[0] for call in found[1]] == ["hook", "post", "post"]
    for (_, mine), (_, theirs) in zip(*found, strict=True):
        same(mine, theirs)


def test_a_result_of_torch_can_be_the_input():
    layer, x, _ = ours()
    other, y, _ = expected()
    found = []
    for one, value in ((layer, x), (other, y)):
        norm = (one.weight**2).sum()
        found.append((norm, (norm.exp() * value.sum()) + norm * value.mean()))
    (mine,) = cartograd.grad(found[0][1], found[0][0])
    (theirs,) = torch.autograd.grad(found[1][1], found[1][0])
    same(mine, theirs)


def test_second_derivatives_go_through_both_graphs():
    layer, x, loss = ours()
    other, y, reference = expected()
    mine = cartograd.grad(loss, [layer.weight, layer.bias, x], create_graph=True)
    theirs = torch.autograd.grad(reference, [other.weight, other.bias, y], create_graph=True)
    for one, two in zip(mine, theirs, strict=True):
        same(one, two)
    mine = cartograd.grad(sum((one * one).sum() for one in mine), [layer.weight, layer.bias, x])
    theirs = torch.autograd.grad(sum((one * one).sum() for one in theirs), [other.weight, other.bias, y])
    for one, two in zip(mine, theirs, strict=True):
        same(one, two)


def test_a_constant_seed_keeps_torchs_graph_for_the_second_derivative():
    weight = nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    loss = cartograd.tensor(2.0, dtype=torch.float64) * (weight**3).sum()
    (first,) = cartograd.grad(loss, weight, create_graph=True)
    (second,) = cartograd.grad(first.sum(), weight)
    assert second.tolist() == [36.0, 48.0]


def test_what_torch_cannot_carry_is_refused():
    layer, _, loss = ours()
    with pytest.raises(errors.NotTwiceDifferentiableError, match="hand a recorded gradient to torch's own graph"):
        loss.backward(create_graph=True)
    norm = (layer.weight**2).sum()
    value = cartograd.tensor(2.0, dtype=torch.float64, requires_grad=True)
    with pytest.raises(errors.NotTwiceDifferentiableError, match="at a result of torch's own graph"):
        cartograd.grad(value * value * norm.exp(), norm, create_graph=True)


def test_grad_raises_where_nothing_leads_to_the_input():
    layer, _, loss = ours()
    other = nn.Parameter(torch.ones(2))
    with pytest.raises(errors.NoGradientError, match="input 0 was not used"):
        cartograd.grad(loss, other, retain_graph=True)
    assert cartograd.grad(loss, [other, layer.bias], allow_unused=True)[0] is None


def test_only_what_leads_to_the_inputs_is_visited():
    """A hook above a torch graph that does not contain the input is not called."""
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    one = cartograd.tensor(1.0)
    upper, lower = one * (a**2).sum(), one * (b**2).sum()
    calls = []
    upper.register_hook(lambda g: calls.append("a"))
    lower.register_hook(lambda g: calls.append("b"))
    assert cartograd.grad(upper + lower, b)[0].tolist() == [2.0, 2.0]
    assert calls == ["b"]
