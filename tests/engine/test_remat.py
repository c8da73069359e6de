"""checkpoint: the same gradients from inputs alone, each piece computed again exactly once (F9)."""

import random

import numpy
import pytest
import torch
from torch import nn

import cartograd


def leaf(*shape, seed=0):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    return cartograd.tensor(torch.randn(shape, generator=generator, dtype=torch.float64), requires_grad=True)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


def collect(loss, *tensors):
    for tensor in tensors:
        tensor.grad = None
    loss.backward()
    return [torch.as_tensor(getattr(t.grad, "data", t.grad)).clone() for t in tensors]


def test_only_the_input_is_kept_and_gradients_are_the_same_bits():
    def piece(x):
        return (x.sin() * x.exp()).tanh().sigmoid()

    x = leaf(100)
    expected = collect(piece(x).sum(), x)
    block = Counted(piece)
    y = cartograd.checkpoint(block, x)
    assert [saved.name for saved in cartograd.trace(y).saved()] == ["checkpoint"]
    assert sum(saved.bytes for saved in cartograd.trace(y).saved()) == 800
    assert torch.equal(collect(y.sum(), x)[0], expected[0])
    assert block.calls == 2


@pytest.mark.parametrize("count", [1, 4, 8, 16])
def test_F9_residual_checkpoints_recompute_once_each(count):
    """A reference engine recomputes 2^n - 1 times."""
    blocks = [Counted(lambda x, k=k: (x * (k + 1)).sin().exp() * 0.1) for k in range(count)]
    x = leaf(6)

    def run(call):
        h = x
        for block in blocks:
            h = h + call(block, h)
        return h.sum()

    expected = collect(run(lambda block, h: block(h)), x)
    for block in blocks:
        block.calls = 0
    found = collect(run(cartograd.checkpoint), x)
    assert torch.equal(found[0], expected[0])
    assert [block.calls for block in blocks] == [2] * count


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_nested_checkpoints_recompute_once_a_level(depth):
    inner = Counted(lambda x: x.sin().exp())

    def level(k):
        if k == 0:
            return lambda x: cartograd.checkpoint(inner, x).cos()
        return lambda x: cartograd.checkpoint(level(k - 1), x.tanh()) * x

    x = leaf(4)
    expected = collect(_unwrapped(depth)(x).sum(), x)
    found = collect(level(depth)(x).sum(), x)
    assert torch.equal(found[0], expected[0])
    assert inner.calls == 1 + depth + 1, "the first time, once for each level around it, once for itself"


def _unwrapped(depth):
    if depth == 0:
        return lambda x: x.sin().exp().cos()
    return lambda x: _unwrapped(depth - 1)(x.tanh()) * x


def test_inner_inputs_are_not_kept_by_the_outer():
    x = leaf(1000)

    def outer(x):
        h = x
        for _ in range(10):
            h = cartograd.checkpoint(torch.sin, h * 1.01)
        return h

    y = cartograd.checkpoint(outer, x)
    assert sum(saved.bytes for saved in cartograd.trace(y).saved()) == 8000
    expected = collect(outer(x).sum(), x)
    assert torch.equal(collect(y.sum(), x)[0], expected[0])


def test_dropout_repeats_and_the_generators_go_on():
    torch.manual_seed(3)
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3)).double()
    x = leaf(4, 8)
    parameters = list(layer.parameters())

    def run(call):
        torch.manual_seed(11)
        loss = (call(layer, x) ** 2).sum()
        found = collect(loss, x, *parameters)
        return [*found, loss.data, torch.rand(3)]

    assert all(map(torch.equal, run(lambda f, x: f(x)), run(cartograd.checkpoint)))


def test_numpys_and_pythons_random_numbers_repeat():
    seen = []

    def piece(x):
        scale = (random.random(), numpy.random.rand())
        seen.append(scale)
        return (x * scale[0]).exp() * scale[1]

    x = leaf(3)
    y = cartograd.checkpoint(piece, x)
    after = (random.random(), numpy.random.rand())
    random_state, numpy_state = random.getstate(), numpy.random.get_state()[1].copy()
    y.sum().backward()
    assert seen[0] == seen[1] != after
    assert random.getstate() == random_state
    assert (numpy.random.get_state()[1] == numpy_state).all()
    torch.testing.assert_close(x.grad.data, (x.data * seen[0][0]).exp() * seen[0][1] * seen[0][0])


def test_parameters_and_tensors_used_only_inside_get_gradients():
    """A reference engine leaves closed-over weights without a gradient if the input needs none."""
    weight, other = nn.Parameter(torch.randn(4, 4, dtype=torch.float64)), leaf(4)
    x = cartograd.tensor(torch.randn(3, 4, dtype=torch.float64))

    def piece(x):
        return (x @ weight).tanh() * other

    expected = collect(piece(x).sum(), weight, other)
    found = collect(cartograd.checkpoint(piece, x).sum(), weight, other)
    assert all(map(torch.equal, expected, found))


def test_several_outputs_and_structures():
    def piece(pair, *, scale, more):
        a, b = pair["a"], pair["b"]
        return {"product": (a * b).exp() * scale, "pieces": torch.split(a.sin() + more[0], 2)}, a.max(0)

    a, b, c = leaf(4, seed=1), leaf(4, seed=2), leaf(4, seed=3)

    def total(result):
        made, top = result
        return made["product"].sum() + (made["pieces"][1] ** 2).sum() + top.values * 3

    arguments = ({"a": a, "b": b},)
    options = {"scale": 2.0, "more": [c]}
    expected = collect(total(piece(*arguments, **options)), a, b, c)
    found = collect(total(cartograd.checkpoint(piece, *arguments, **options)), a, b, c)
    assert all(map(torch.equal, expected, found))


def test_values_the_user_holds_stay_valid():
    held = []
    x = leaf(5)

    def piece(x):
        held.append(x.exp())
        return held[-1] * x

    y = cartograd.checkpoint(piece, x)
    before = y.data.clone()
    loss = y.sum()
    loss.backward()
    assert torch.equal(y.data, before)
    assert loss.item() == before.sum().item()
    assert torch.equal(held[0].data, x.data.exp())


def test_batch_statistics_move_once():
    torch.manual_seed(0)
    x = leaf(8, 3, 4)
    results = []
    for call in (lambda f, x: f(x), cartograd.checkpoint):
        torch.manual_seed(5)
        layer = nn.Sequential(nn.BatchNorm1d(3), nn.Tanh(), nn.InstanceNorm1d(3, affine=True, track_running_stats=True))
        layer = layer.double()
        found = collect((call(layer, x) ** 2).sum(), x, *layer.parameters())
        results.append([*found, *layer.buffers()])
    assert layer[0].num_batches_tracked.item() == 1
    assert all(map(torch.equal, *results))


def test_in_place_changes_inside_are_repeated_not_undone():
    def piece(x):
        y = x * 2
        y.add_(1)
        z = torch.zeros(3, dtype=torch.float64)
        z += 2
        return y.exp() * cartograd.tensor(z)

    x = leaf(3)
    expected = collect(piece(x).sum(), x)
    assert torch.equal(collect(cartograd.checkpoint(piece, x).sum(), x)[0], expected[0])


def test_ops_that_torch_differentiates():
    def piece(x):
        return torch.special.i0(x).sin()

    x = leaf(5)
    expected = collect(piece(x).sum(), x)
    y = cartograd.checkpoint(piece, x)
    assert {saved.name for saved in cartograd.trace(y).saved()} == {"checkpoint"}
    assert torch.equal(collect(y.sum(), x)[0], expected[0])


def test_hooks_and_retained_gradients_inside():
    seen, kept = [], []

    def piece(x):
        h = x.sin()
        h.register_hook(lambda g: seen.append(g.data.clone()))
        h.retain_grad()
        kept.append(h)
        return h.exp()

    x = leaf(3)
    cartograd.checkpoint(piece, x).sum().backward()
    assert len(seen) == 1
    assert torch.equal(seen[0], x.data.sin().exp())
    assert torch.equal(kept[0].grad.data, seen[0])
