"""Post-accumulate hooks, as early as a leaf's last contribution, and retain_grad (F7)."""

import gc
import random

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*values, dtype=torch.float64):
    return cartograd.tensor(list(values), requires_grad=True, dtype=dtype)


def parameter(*values):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_post_accumulate_fires_as_early_as_the_last_contribution():
    w = [parameter(float(i + 1)) for i in range(4)]
    x = cartograd.tensor(torch.ones(1, dtype=torch.float64))
    order = []
    h = x
    inner = []
    for i, one in enumerate(w):
        h = h * one
        h.register_hook(lambda g, i=i: order.append(("reached", i)))
        inner.append(h)
        one.register_post_accumulate_grad_hook(lambda p, i=i: order.append(("stored", i)))
    h.sum().backward()
    assert order == [(what, i) for i in (3, 2, 1, 0) for what in ("reached", "stored")]


def test_leaf_used_twice_in_one_node_and_by_an_older_one_fires_once_at_the_end():
    x = leaf(2.0)
    order = []
    x.register_post_accumulate_grad_hook(lambda t: order.append(t.grad.item()))
    old = x * 3
    old.register_hook(lambda g: order.append("old"))
    middle = old * 1.0
    middle.register_hook(lambda g: order.append("middle"))
    (x * x * middle).backward()  # 3 x^3 -> 9 x^2
    assert order == ["middle", "old", 36.0]


def test_post_accumulate_on_a_leaf_that_the_pass_reaches_by_no_gradient_on_one_path():
    @cartograd.primitive()
    def nothing(a: torch.Tensor, b: torch.Tensor):
        return a + b

    @nothing.vjp("a")
    def _(g):
        return None

    @nothing.vjp("b")
    def _(g):
        return g

    x = leaf(2.0)
    calls = []
    x.register_post_accumulate_grad_hook(lambda t: calls.append(t.grad.item()))
    nothing(x * 3, x).backward()
    assert calls == [1.0]


def test_optimiser_in_backward():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    twin = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    twin.load_state_dict(model.state_dict())
    steppers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def step(p):
        steppers[p].step()
        steppers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    usual = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    data = torch.randn(8, 3, dtype=torch.float64)
    for _ in range(3):
        (model(cartograd.tensor(data)) ** 2).mean().backward()
        (twin(cartograd.tensor(data)) ** 2).mean().backward()
        usual.step()
        usual.zero_grad()
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert mine.grad is None
        assert torch.equal(mine, other)


def test_optimiser_in_backward_frees_one_gradient_before_the_next_is_made():
    w = [parameter(*([1.0] * 100)) for _ in range(6)]
    alive = []

    def drop(p):
        p.grad = None
        alive.append(sum(one.grad is not None for one in w))

    for one in w:
        one.register_post_accumulate_grad_hook(drop)
    h = cartograd.tensor(torch.ones(100, dtype=torch.float64))
    for one in w:
        h = h * one
    h.sum().backward()
    assert alive == [0] * 6


def test_post_accumulate_sees_the_sum_over_passes():
    x = leaf(1.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * 2).backward()
    (x * 3).backward()
    assert seen == [2.0, 5.0]


def test_post_accumulate_hook_gets_the_tensor_itself():
    x, w = leaf(1.0), parameter(1.0)
    got = []
    x.register_post_accumulate_grad_hook(got.append)
    w.register_post_accumulate_grad_hook(got.append)
    (x * w).backward()
    assert {id(one) for one in got} == {id(x), id(w)}


def test_post_accumulate_hook_of_a_leaf_nobody_holds_gets_its_value():
    seen = []

    def build():
        x = leaf(1.0, 2.0)
        x.register_post_accumulate_grad_hook(lambda t: seen.append((t.tolist(), t.grad.tolist())))
        return (x * 5).sum()

    loss = build()
    gc.collect()
    loss.backward()
    assert seen == [([1.0, 2.0], [5.0, 5.0])]


def test_grad_stores_nothing_and_fires_no_post_accumulate_hook_but_the_others():
    x = leaf(3.0)
    calls = []
    x.register_hook(lambda g: calls.append("hook") or g * 2)
    x.register_post_accumulate_grad_hook(lambda t: calls.append("post"))
    (found,) = cartograd.grad(x * x, x)
    assert found.item() == 12.0
    assert calls == ["hook"]
    assert x.grad is None


# retain_grad


def test_retain_grad_sees_what_the_hooks_made_of_it():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    (y * 3).backward()
    assert y.retains_grad
    assert y.grad.item() == 30.0
    assert x.grad.item() == 60.0


def test_retain_grad_accumulates_and_does_not_alias():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    z = y + 0
    z.retain_grad()
    out = z * 1
    out.backward(retain_graph=True)
    out.backward()
    assert y.grad.item() == 2.0
    y.grad.data.zero_()
    assert z.grad.item() == 2.0
    assert x.grad.item() == 4.0


def test_retain_grad_of_the_root():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.backward()
    assert y.grad.item() == 1.0


def test_inner_tensor_keeps_no_gradient_unless_asked():
    x = leaf(1.0)
    y = x * 2
    (y * 3).backward()
    assert y.grad is None


def test_retain_grad_and_inputs_together_count_once():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    (y * 3).backward(inputs=[y])
    assert y.grad.item() == 3.0
    assert x.grad is None


def test_retain_grad_refuses_what_requires_none():
    with pytest.raises(errors.NoGradientError, match="requires grad"):
        cartograd.tensor(1.0).retain_grad()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("workers", [1, 3])
def test_hooks_of_every_leaf_fire_once_on_the_total_in_a_random_graph(seed, workers):
    print("seed", seed)

    def graph():
        chance = random.Random(seed)
        leaves = [leaf(0.3, 0.7), leaf(-0.2, 0.4), parameter(0.5, 1.5), parameter(-1.0, 2.0)]
        made = [leaves[0] * 1.5]
        for _ in range(chance.randint(2, 12)):
            one, other = chance.choice(made), chance.choice([*made, *leaves])
            made.append(chance.choice([torch.mul, torch.add, torch.sub])(one, other).sin())
        return leaves, made[-1].sum() + (made[-2] * leaves[2]).sum()

    expected, loss = graph()
    loss.backward()
    leaves, loss = graph()
    seen = []
    for number, one in enumerate(leaves):
        one.register_hook(lambda g, number=number: seen.append((number, "hook", bits(g))))
        one.register_post_accumulate_grad_hook(lambda t, number=number: seen.append((number, "post", bits(t.grad))))
    loss.backward(workers=workers)
    reached = [number for number, one in enumerate(expected) if one.grad is not None]
    wanted = [(number, kind, bits(expected[number].grad)) for number in reached for kind in ("hook", "post")]
    assert sorted(seen) == sorted(wanted)


def bits(gradient):
    return torch.as_tensor(getattr(gradient, "data", gradient)).tolist()


def test_a_leaf_used_before_and_after_a_product_waits_for_both():
    x, seen = leaf(2.0), []
    h = x * 3
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (h * x).sin().sum().backward()
    assert seen == [x.grad.item()]


def test_rules_and_hooks_that_use_torchs_own_autograd():
    """Our rules run below torch's autograd; what a user wrote does not."""

    @cartograd.primitive()
    def sine(x: torch.Tensor):
        return x.sin()

    @sine.vjp("x")
    def _(g, x):
        return slope(x) * g

    def slope(x):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            return torch.autograd.grad(inner.sin().sum(), inner)[0]

    x, weight, seen = leaf(0.3, 0.7), parameter(1.0, 2.0), []
    for one in (x, weight):
        one.register_hook(lambda g: seen.append(slope(torch.zeros(1)).item()))
        one.register_post_accumulate_grad_hook(lambda t: seen.append(slope(torch.zeros(1)).item()))
    (sine(x * 2.0) * 3.0 * weight).relu().sum().backward()
    assert torch.equal(x.grad.data, (2 * x.data).cos() * 3 * weight.detach() * 2)
    assert seen == [1.0] * 4


def test_an_error_in_a_pass_leaves_torchs_own_autograd_on():
    @cartograd.primitive()
    def broken(x: torch.Tensor):
        return x.clone()

    @broken.vjp("x")
    def _(g):
        raise ValueError("no")

    changed = leaf(1.0) * 2.0
    for loss in (broken(leaf(1.0) * 2.0) * 3.0, changed * changed):
        changed.data.add_(1)
        with pytest.raises((ValueError, errors.InplaceError)) as held:  # its traceback holds the frames of the pass
            loss.sum().backward()
        w = torch.ones(2, requires_grad=True)
        (w * w).sum().backward()
        assert w.grad.tolist() == [2.0, 2.0], held
