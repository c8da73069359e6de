"""What a captured step depends on besides its arguments: where it has changed, the step is recorded again."""

import copy

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


class Scaled(nn.Module):
    """Reads attributes of every kind."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.extra = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.full((3,), 0.5))
        self.dropout = nn.Dropout(0.5)
        self.factor, self.factors, self.plain = 2.0, [1.0, 2.0], torch.ones(1)

    def forward(self, x):
        x = self.linear(x) * self.factor * self.factors[1] + self.shift * self.plain
        return (self.dropout(x) * self.extra).tanh()


def replace_weight(model):
    model.linear.weight = nn.Parameter(torch.full((3, 3), 0.25))


def replace_equal_parameter(model):
    """Another Parameter with the same value: its gradient goes elsewhere."""
    model.extra = nn.Parameter(model.extra.detach().clone())


def load_by_assignment(model):
    other = Scaled()
    model.load_state_dict(other.state_dict(), assign=True)


def freeze_all_but_one(model):
    model.linear.requires_grad_(False)


def in_its_dict(model):
    model.linear._parameters["weight"] = nn.Parameter(torch.zeros(3, 3))


CHANGES = {
    "load_state_dict(assign=True)": load_by_assignment,
    "a Parameter": replace_weight,
    "an equal Parameter": replace_equal_parameter,
    "a Parameter past __setattr__": in_its_dict,
    "no bias": lambda model: setattr(model.linear, "bias", None),
    "a Parameter's memory": lambda model: setattr(model.linear.weight, "data", torch.ones(3, 3)),
    "a buffer": lambda model: setattr(model, "shift", torch.ones(3)),
    "a buffer's memory": lambda model: setattr(model.shift, "data", torch.ones(3)),
    "a submodule": lambda model: setattr(model, "linear", nn.Linear(3, 3)),
    "another kind of submodule": lambda model: setattr(model, "dropout", nn.Identity()),
    "dropout.p": lambda model: setattr(model.dropout, "p", 0.0),
    "eval": lambda model: model.eval(),
    "frozen": freeze_all_but_one,
    "a number": lambda model: setattr(model, "factor", 3.0),
    "a list": lambda model: model.factors.__setitem__(1, -1.0),
    "a plain tensor": lambda model: setattr(model, "plain", torch.zeros(3)),
    "forward": lambda model: setattr(model, "forward", lambda x: model.linear(x)),
    "a forward hook": lambda model: model.linear.register_forward_hook(lambda m, args, out: out * 3),
    "a forward pre-hook": lambda model: model.linear.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "a hook of a Parameter": lambda model: model.extra.register_hook(lambda g: g * 10),
}


def train(model):
    def step(x):
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    return step


def outcome(step, model, x):
    torch.manual_seed(1)
    loss = step(x)
    return [loss.data.clone()] + [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_step_is_recorded_again(name):
    torch.manual_seed(0)
    model, x = Scaled(), cartograd.tensor(torch.randn(4, 3))
    step = cartograd.capture(train(model), x)
    before = [outcome(step, model, x) for _ in range(2)][1]  # the second finds gradients to set to None
    count = step.recordings
    torch.manual_seed(2)
    CHANGES[name](model)
    found = outcome(step, model, x)
    assert step.recordings == count + 1
    expected = outcome(train(model), model, x)
    assert all(one is other or torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    changed = len(found) != len(before) or any(
        (a is None) != (b is None) or (a is not None and not torch.equal(a, b))
        for a, b in zip(found, before, strict=False)
    )
    assert changed or name == "an equal Parameter"
    outcome(step, model, x)
    count = step.recordings
    outcome(step, model, x)
    assert step.recordings == count, "nothing has changed since"


def test_a_removed_hook_and_another_in_its_place():
    model, x = nn.Linear(3, 1), cartograd.tensor(torch.ones(2, 3))
    handle = model.register_forward_hook(lambda m, args, out: out * 3)
    step = cartograd.capture(model, x)
    handle.remove()
    assert torch.equal(step(x).data, model(x).data)
    handle = model.register_forward_hook(lambda m, args, out: out * 4)
    first = step(x)
    handle.remove()
    model.register_forward_hook(lambda m, args, out: out * 5)
    assert torch.equal(first.data * 5, step(x).data * 4)


def test_parts_that_are_added_and_removed():
    model, x = nn.Sequential(nn.Linear(3, 3)), cartograd.tensor(torch.ones(2, 3))
    step = cartograd.capture(model, x)
    model.append(nn.Tanh())
    assert torch.equal(step(x).data, model(x).data)
    del model[0]
    assert torch.equal(step(x).data, model(x).data)
    assert torch.equal(step(x).data, x.data.tanh())


def test_modules_that_are_used_without_being_called():
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3), cartograd.tensor(torch.ones(2, 3))
    step = cartograd.capture(lambda x: x @ model.weight, x)
    model.weight = nn.Parameter(torch.eye(3))
    assert torch.equal(step(x).data, x.data)


def test_hooks_of_leaves():
    weight, calls = cartograd.tensor([1.0, 2.0], requires_grad=True), []
    x = cartograd.tensor([3.0, 4.0])

    def fn(x):
        weight.grad = None
        (weight * x).sum().backward()

    step = cartograd.capture(fn, x)
    handle = weight.register_hook(lambda g: g * 2)
    step(x)
    assert weight.grad.tolist() == [6.0, 8.0]
    handle.remove()
    step(x)
    assert weight.grad.tolist() == [3.0, 4.0]
    assert calls == []


def test_hooks_of_leaves_among_the_arguments():
    hooked, bare = (cartograd.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    hooked.register_hook(lambda g: g * 2)
    step = cartograd.capture(lambda x: x.square().sum().backward(), bare)
    step(hooked)
    step(bare)
    assert (hooked.grad.tolist(), bare.grad.tolist()) == ([4.0, 8.0], [2.0, 4.0])


class Remembers(nn.Module):
    """Keeps what it has computed last, as models that show their attention do."""

    def __init__(self):
        super().__init__()
        self.linear, self.last = nn.Linear(3, 3), None

    def forward(self, x):
        self.last = self.linear(x).softmax(-1)
        return self.last.sum(0)


def test_what_a_step_sets_itself_is_no_condition():
    model = Remembers()
    small, large = (cartograd.tensor(torch.randn(count, 3)) for count in (2, 5))
    step = cartograd.capture(model, small)
    step(large)
    model(small)
    for x in (small, large, small):
        assert torch.equal(step(x).data, model(x).data)
    assert step.recordings == 2


class Averages(nn.Module):
    """Moves a statistic by putting another tensor in its place, or in the same memory."""

    def __init__(self, in_place):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.in_place = in_place

    def forward(self, x):
        with torch.no_grad():
            moved = 0.5 * self.mean + 0.5 * x.data.mean(0)
            if self.in_place:
                self.mean.copy_(moved)
            else:
                self.mean = moved
        return x - self.mean


def test_state_that_is_moved_by_replacing_a_tensor_is_refused():
    x = cartograd.tensor(torch.randn(4, 3))
    with pytest.raises(errors.CaptureError, match=r"reads Averages.mean and then sets it .* \.copy_\(\)"):
        cartograd.capture(Averages(in_place=False), x)
    model = Averages(in_place=True)
    other = copy.deepcopy(model)
    step = cartograd.capture(model, x)
    for _ in range(3):
        assert torch.equal(step(x).data, other(x).data)
