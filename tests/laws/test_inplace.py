"""Changing values in place: right where it can be, refused or noticed where it cannot (acceptance 8)."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

import cartograd
from cartograd import errors


def leaf(*values):
    return cartograd.tensor(list(values), requires_grad=True, dtype=torch.float64)


def same_as_torch(function, *values):
    """`function` of leaves gives the value and the gradients that torch gives."""
    mine = [leaf(*one) for one in values]
    theirs = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in values]
    found, expected = function(*mine), function(*theirs)
    torch.testing.assert_close(found.data, expected.detach())
    weights = torch.linspace(1, 2, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for x, t in zip(mine, theirs, strict=True):
        torch.testing.assert_close(x.grad.data, t.grad)


# A saved value is changed


def changed_after_use(change):
    """y is saved by a product, and changed before the backward pass."""
    x = leaf(1.0, 2.0)
    y = x + 1
    product = y * y
    with cartograd.no_grad():
        change(y)
    return product.sum()


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y.__setitem__(0, 5.0),
        lambda y: y.data.mul_(2),
        lambda y: y[:1].zero_(),
        lambda y: y.detach().fill_(3),
        lambda y: torch.relu_(y),
        lambda y: y.copy_(torch.zeros(2)),
    ],
    ids=["add_", "setitem", "data", "view", "detached", "relu_", "copy_"],
)
def test_saved_value_changed_in_place_is_noticed_with_op_and_line(change):
    loss = changed_after_use(change)
    with pytest.raises(errors.InplaceError) as caught:
        loss.backward()
    text = str(caught.value)
    assert "mul" in text
    assert f"{__file__}:{changed_after_use.__code__.co_firstlineno + 4}" in text
    assert "version" in text
    assert ".clone()" in text


def test_saved_result_changed_in_place_is_noticed():
    x = leaf(1.0, 2.0)
    y = x.exp()
    z = y.sum()
    with cartograd.no_grad():
        y *= 2
    with pytest.raises(errors.InplaceError, match="exp"):
        z.backward()


def test_value_saved_by_a_fallback_op_changed_in_place_is_noticed():
    x = leaf(1.0, 2.0)
    y = x * 2
    z = torch.special.i0(y).sum()
    with cartograd.no_grad():
        y += 1
    with pytest.raises((errors.InplaceError, RuntimeError), match=r"i0|modified by an inplace"):
        z.backward()


def test_saved_member_of_a_list_changed_in_place_is_noticed():
    @cartograd.primitive(takes_list="parts")
    def product(parts):
        return parts[0] * parts[1]

    @product.vjp("parts")
    def _(g, parts):
        return [g * parts[1], g * parts[0]]

    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    z = product([x, y]).sum()
    with cartograd.no_grad():
        y += 1
    with pytest.raises(errors.InplaceError, match="product"):
        z.backward()


def test_parameter_update_between_forward_and_backward_is_noticed():
    layer = nn.Linear(2, 2)
    out = layer(leaf(1.0, 2.0).to(torch.float32)).sum()
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises((errors.InplaceError, RuntimeError), match=r"linear|modified by an inplace"):
        out.backward()


def test_optimiser_step_between_forward_and_backward_is_noticed():
    w = nn.Parameter(torch.ones(2))
    loss = (cartograd.tensor([1.0, 2.0], requires_grad=True) * w).sum()
    w.grad = torch.ones(2)
    torch.optim.SGD([w], lr=0.1).step()
    with pytest.raises(errors.InplaceError, match="mul"):
        loss.backward()


def test_change_of_what_was_not_saved_is_allowed():
    x = leaf(1.0, 2.0)
    y = x + 1
    z = (y + y).sum()
    y += 1
    (z + y.sum()).backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_change_before_use_is_allowed():
    x = leaf(1.0, 2.0)
    y = x + 1
    y += 1
    (y * y).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]


def test_running_statistics_of_two_forwards_do_not_disturb_each_other():
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(3)
    x = cartograd.tensor(torch.randn(5, 3), requires_grad=True)
    (layer(x) ** 2 + layer(x * 2) ** 2).sum().backward()
    assert torch.isfinite(x.grad.data).all()


# A leaf


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.__iadd__(1),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: torch.relu_(x),
        lambda x: functional.relu(x, inplace=True),
        lambda x: x[:1].mul_(2),
        lambda x: x.zero_(),
    ],
    ids=["add_", "iadd", "setitem", "relu_", "inplace=True", "view", "zero_"],
)
def test_leaf_changed_in_place_is_refused_and_untouched(change):
    x = leaf(1.0, -2.0)
    with pytest.raises(errors.CartogradError):
        change(x)
    assert x.tolist() == [1.0, -2.0]
    assert x.is_leaf


def test_the_refusal_says_what_to_do_instead():
    x = leaf(1.0)
    with pytest.raises(errors.InplaceError, match=r"leaf.*copy.*no_grad\(\)"):
        x += 1


def test_leaf_may_be_updated_under_no_grad():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    with cartograd.no_grad():
        x -= 0.5 * x.grad
    assert x.tolist() == [0.0, 0.0]
    assert x.is_leaf
    assert x.requires_grad


# Inner tensors


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 1).add_(3),
        lambda x: (x * 1).relu_(),
        lambda x: torch.relu_(x * 1),
        lambda x: functional.relu(x * 1, inplace=True),
        lambda x: (x * 1).exp_(),
        lambda x: (x + 3).log_(),
        lambda x: (x + 3).sqrt_(),
        lambda x: (x * 1).clamp_(max=0.5),
        lambda x: (x * 1).cos_().mul_(2).neg_(),
        lambda x: torch.cos(x).mul_(2),
        lambda x: torch.special.i0(x).mul_(3),
        lambda x: (x * 1).masked_fill_(x.detach() > 0, 7.0),
    ],
    ids=[
        "add_",
        "relu_",
        "torch.relu_",
        "inplace=True",
        "exp_",
        "log_",
        "sqrt_",
        "clamp_",
        "chain",
        "cos",
        "fallback",
        "masked_fill_",
    ],
)
def test_inner_tensor_in_place_is_right(function):
    if function(leaf(-1.0)).node is None:
        pytest.fail("cut from the graph")
    same_as_torch(function, [-1.0, 2.0, 0.7])


def iadd(x, y):
    z = x * 2
    z += y
    return z


def imul(x, y):
    z = x * 2
    z *= y
    return z


def idiv(x, y):
    z = x * 2
    z /= y
    return z


def imod(x, y):
    z = x * 2
    z %= y
    return z


def ipow(x, y):
    z = x * x
    z **= y
    return z


def set_number(x, y):
    z = x * y
    z[0] = 5.0
    return z


def set_value(x, y):
    z = x * 2
    z[1:] = y[:-1] * 3
    return z


def set_masked(x, y):
    z = x * 2
    z[z.detach() > 0] = y[0] * 10
    return z


@pytest.mark.parametrize("function", [iadd, imul, idiv, imod, ipow, set_number, set_value, set_masked])
def test_operators_and_setitem_on_inner_tensors(function):
    same_as_torch(function, [-1.0, 2.0, 3.0], [4.0, 5.0, -6.0])


@pytest.mark.parametrize(
    "function", [lambda x: torch.sigmoid(x).add_(1), lambda x: x.exp().add_(1)], ids=["sigmoid", "exp"]
)
def test_overwriting_the_result_its_own_op_saved_is_refused_or_noticed(function):
    with pytest.raises(errors.InplaceError):  # torch raises in backward, too
        function(leaf(1.0, 2.0)).sum().backward()


def test_subtracting_its_own_square_is_noticed():
    z = leaf(1.0, 2.0) * 2
    z -= z * z
    with pytest.raises(errors.InplaceError, match="mul"):
        z.sum().backward()


def test_buffer_filled_row_by_row():
    x = leaf(1.0, 2.0, 3.0)
    buffer = cartograd.tensor(torch.zeros(3, 3, dtype=torch.float64))
    for row in range(3):
        buffer[row] = x * (row + 1)
    assert buffer.requires_grad
    (buffer * buffer).sum().backward()
    assert x.grad.tolist() == [28.0, 56.0, 84.0]


def test_buffer_accumulated_in_a_loop():
    x = leaf(1.0, 2.0)
    total = cartograd.tensor(torch.zeros(2, dtype=torch.float64))
    for power in range(1, 4):
        total += x**power
    total.sum().backward()
    assert x.grad.tolist() == [1 + 2 + 3, 1 + 4 + 12]


def test_copy_into_a_buffer():
    x = leaf(1.0, 2.0)
    buffer = cartograd.tensor(torch.zeros(2, dtype=torch.float64))
    buffer.copy_(x * x)
    buffer.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_network_with_inplace_activations():
    torch.manual_seed(0)
    data = torch.randn(2, 1, 6, 6, dtype=torch.float64)

    def build():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Conv2d(3, 2, 3), nn.LeakyReLU(inplace=True)
        ).double()

    mine, theirs = build(), build()
    mine(cartograd.tensor(data)).pow(2).sum().backward()
    theirs(data).pow(2).sum().backward()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


# Shared memory


def test_view_in_place_is_refused_or_right():
    def function(x):
        y = x * 2
        y[:2].add_(1)
        return y * y

    with contextlib.suppress(errors.InplaceError):
        same_as_torch(function, [1.0, 2.0, 3.0])


def test_base_in_place_with_a_view_alive_is_refused_or_right():
    def function(x):
        y = x * 2
        view = y.view(3, 1)
        y += 1
        return view * view

    with contextlib.suppress(errors.InplaceError):
        same_as_torch(function, [1.0, 2.0, 3.0])


def test_memory_that_a_torch_tensor_shares_is_not_changed_behind_its_back():
    held = torch.zeros(2, dtype=torch.float64)
    buffer = cartograd.tensor(held)
    x = leaf(1.0, 2.0)
    with contextlib.suppress(errors.InplaceError):
        buffer += x
    assert held.tolist() == buffer.tolist()


def test_plain_torch_target_is_refused():
    target = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(errors.InplaceError, match="plain torch tensor"):
        target += leaf(1.0, 2.0)
    with pytest.raises(errors.InplaceError, match="plain torch tensor"):
        target[0] = leaf(1.0)[0]
    assert target.tolist() == [0.0, 0.0]


def test_out_is_refused_where_a_gradient_would_be_lost_and_works_elsewhere():
    x, buffer = leaf(1.0, 2.0), torch.zeros(2, dtype=torch.float64)
    for function in (torch.exp, torch.special.i0, torch.neg):
        with pytest.raises(errors.UnsupportedError, match="out="):
            function(x, out=buffer)
    with pytest.raises(errors.UnsupportedError, match="out="):
        torch.add(x, 1.0, out=buffer)
    with cartograd.no_grad():
        torch.add(x, 1.0, out=buffer)
        assert buffer.tolist() == [2.0, 3.0]
        torch.exp(x, out=buffer)
    assert torch.equal(buffer, x.data.exp())
