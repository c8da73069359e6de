"""Hooks: once per tensor per pass, on the total, for root, inner, leaf and Parameter alike (F7, F8, F14)."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*values, dtype=torch.float64):
    return cartograd.tensor(list(values), requires_grad=True, dtype=dtype)


def parameter(*values):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def total_of_three(x):
    """Three contributions of 0.8 each to the gradient of x."""
    return (x * 0.8 + x * 0.8 + x * 0.8).sum()


# F7: the total, once


def test_F7_clamping_hook_sees_the_total_of_a_leaf():
    x = leaf(1.0)
    calls = []
    x.register_hook(lambda g: calls.append(g.item()) or g.clamp(max=1.0))
    total_of_three(x).backward()
    assert calls == [pytest.approx(2.4)]
    assert x.grad.item() == 1.0


def test_F7_clamping_hook_sees_the_total_of_an_inner_tensor():
    x = leaf(1.0)
    y = x * 1.0
    calls = []
    y.register_hook(lambda g: calls.append(g.item()) or g.clamp(max=1.0))
    total_of_three(y).backward()
    assert calls == [pytest.approx(2.4)]
    assert x.grad.item() == 1.0


def test_F7_clamping_hook_sees_the_total_of_a_parameter():
    w = parameter(1.0)
    calls = []
    w.register_hook(lambda g: calls.append(g.item()) or g.clamp(max=1.0))
    x = cartograd.tensor(torch.tensor([0.8], dtype=torch.float64))
    (x * w + x * w + x * w).sum().backward()
    assert calls == [pytest.approx(2.4)]
    assert w.grad.item() == 1.0


def test_F7_post_accumulate_hook_fires_once_for_three_contributions():
    x = leaf(1.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    total_of_three(x).backward()
    assert seen == [pytest.approx(2.4)]


def test_one_op_that_uses_a_tensor_twice_fires_its_hook_once():
    x = leaf(3.0)
    calls = []
    x.register_hook(lambda g: calls.append(g.item()))
    (x * x).backward()
    assert calls == [6.0]


# F8: the root is an ordinary node


def test_F8_hook_on_the_root_runs_and_may_change_the_seed():
    x = leaf(3.0)
    loss = x * 2
    calls = []
    loss.register_hook(lambda g: calls.append(g.item()) or g * 10)
    loss.backward()
    assert calls == [1.0]
    assert x.grad.item() == 20.0


def test_F8_hooks_of_a_leaf_root_run_and_it_gets_its_gradient():
    x = leaf(3.0)
    order = []
    x.register_hook(lambda g: order.append("hook") or g * 2)
    x.register_post_accumulate_grad_hook(lambda t: order.append(("post", t.grad.item())))
    x.backward()
    assert x.grad.item() == 2.0
    assert order == ["hook", ("post", 2.0)]


def test_F8_root_that_does_not_require_grad_raises():
    with pytest.raises(errors.NoGradientError, match="does not require grad"):
        cartograd.tensor(1.0).backward()


# F14: hooks may do anything


def test_F14_hook_may_register_and_remove_hooks_on_its_own_tensor():
    x = leaf(1.0)
    order = []

    def first(g):
        order.append("first")
        later.remove()
        x.register_hook(lambda g: order.append("new"))

    x.register_hook(first)
    later = x.register_hook(lambda g: order.append("later"))
    (x * 2).backward()
    assert order == ["first", "later"], "a pass calls the hooks there were when it reached the tensor"
    (x * 2).backward()
    assert order == ["first", "later", "first", "new"]


def test_F14_hook_may_remove_itself():
    x = leaf(1.0)
    calls = []

    def once(g):
        calls.append(g.item())
        handle.remove()

    handle = x.register_hook(once)
    (x * 2).backward()
    (x * 2).backward()
    assert calls == [2.0]


def test_F14_backward_inside_a_hook():
    x, z = leaf(1.0), leaf(3.0)
    y = x * 2
    inner = z * z

    def nested(g):
        inner.backward(retain_graph=True)
        return g * 5

    y.register_hook(nested)
    (y * 1.0).backward()
    assert z.grad.item() == 6.0
    assert x.grad.item() == 10.0


def test_F14_backward_inside_a_hook_into_the_same_leaf():
    x = leaf(1.0)
    other = x * x * x
    y = x * 2
    y.register_hook(lambda g: other.backward())
    (y + x).backward()
    assert x.grad.item() == 3.0 + 2.0 + 1.0


def test_F14_backward_of_a_new_graph_inside_a_hook():
    x = leaf(2.0)
    inner_grads = []

    def nested(g):
        with cartograd.enable_grad():
            z = leaf(4.0)
            (z * z).backward()
            inner_grads.append(z.grad.item())

    x.register_hook(nested)
    (x * x).backward()
    assert inner_grads == [8.0]
    assert x.grad.item() == 4.0


def test_F14_post_accumulate_hook_may_run_a_backward():
    x, z = leaf(1.0), leaf(3.0)
    inner = z * z
    x.register_post_accumulate_grad_hook(lambda t: inner.backward(retain_graph=True))
    (x * 2).backward()
    assert z.grad.item() == 6.0


# Replacing, order, refusal


@pytest.mark.parametrize("place", ["root", "inner", "leaf", "parameter"])
def test_hooks_run_in_the_order_registered_and_each_sees_what_the_last_returned(place):
    x, w = leaf(1.0), parameter(1.0)
    inner = x * w
    root = inner * 1.0
    target = {"root": root, "inner": inner, "leaf": x, "parameter": w}[place]
    seen = []
    for step in (lambda g: g + 1, lambda g: None, lambda g: g * 10):
        target.register_hook(lambda g, step=step: seen.append(g.item()) or step(g))
    root.backward()
    assert seen == [1.0, 2.0, 2.0]
    found = w.grad if place == "parameter" else x.grad
    assert found.item() == 20.0


@pytest.mark.parametrize("place", ["root", "inner", "leaf", "parameter"])
@pytest.mark.parametrize(
    "wrong",
    [torch.ones(1, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64), torch.ones(3, dtype=torch.float32)],
    ids=["broadcastable", "rank", "dtype"],
)
def test_wrong_gradient_from_a_hook_is_refused(place, wrong):
    x, w = leaf(1.0, 2.0, 3.0), parameter(1.0, 1.0, 1.0)
    inner = x * w
    root = inner * 1.0
    root.backward(torch.ones(3, dtype=torch.float64), retain_graph=True)
    {"root": root, "inner": inner, "leaf": x, "parameter": w}[place].register_hook(lambda g: wrong)
    before = x.grad.tolist() if place == "leaf" else w.grad.tolist()
    with pytest.raises(errors.GradientShapeError, match=r"hook.*\(3,\)"):
        root.backward(torch.ones(3, dtype=torch.float64))
    assert (x.grad if place == "leaf" else w.grad).tolist() == before


def test_a_hook_that_returns_no_tensor_is_refused():
    x = leaf(1.0)
    x.register_hook(lambda g: 1.0)
    with pytest.raises(errors.CartogradError, match="hook"):
        (x * 2).backward()


def test_hook_may_return_a_plain_torch_tensor():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: torch.full((2,), 7.0, dtype=torch.float64))
    (x * x).sum().backward()
    assert type(x.grad) is cartograd.Tensor
    assert x.grad.tolist() == [7.0, 7.0]


def test_what_a_hook_keeps_is_not_changed_afterwards():
    x = leaf(1.0, 2.0)
    kept = []
    x.register_hook(kept.append)
    (x * x).sum().backward()
    (x * x).sum().backward()
    assert kept[0].tolist() == [2.0, 4.0]
    assert x.grad.tolist() == [4.0, 8.0]
    x.grad.data.zero_()
    assert kept[1].tolist() == [2.0, 4.0]


def test_hook_that_raises_stops_the_pass_and_restores_grad_mode():
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        (y * 3).backward()
    assert torch.is_grad_enabled()
    assert x.grad is None
    note = " ".join(getattr(caught.value, "__notes__", []))
    assert "mul" in note
    assert "test_hooks.py" in note


def test_hooks_see_no_graph_unless_it_is_created():
    x = leaf(2.0)
    flags = []
    y = x * x
    y.register_hook(lambda g: flags.append((g.requires_grad, torch.is_grad_enabled())))
    z = y * y
    z.backward(retain_graph=True)
    z.backward(create_graph=True)
    assert flags == [(False, False), (True, True)]


# Handles


def test_handle_removes_the_hook_and_twice_is_fine():
    x = leaf(1.0)
    calls = []
    handle = x.register_hook(lambda g: calls.append(1))
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert calls == []


def test_handle_is_a_context_manager():
    x = leaf(1.0)
    calls = []
    with x.register_hook(lambda g: calls.append(1)):
        (x * 2).backward()
    (x * 2).backward()
    with x.register_post_accumulate_grad_hook(lambda t: calls.append(2)):
        (x * 2).backward()
    (x * 2).backward()
    assert calls == [1, 2]


def test_the_same_function_registered_twice_runs_twice():
    x = leaf(1.0)

    def double(g):
        return g * 2

    x.register_hook(double)
    second = x.register_hook(double)
    (x * 1.0).backward()
    assert x.grad.item() == 4.0
    second.remove()
    x.grad = None
    (x * 1.0).backward()
    assert x.grad.item() == 2.0


def test_hooks_are_refused_where_they_could_never_run():
    plain = cartograd.tensor(1.0)
    with pytest.raises(errors.NoGradientError, match="requires grad"):
        plain.register_hook(print)
    with pytest.raises(errors.LeafError, match="register_hook"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(errors.LeafError, match="leaf"):
        plain.register_post_accumulate_grad_hook(print)


# Hooks and other parts of the graph


def test_hook_on_one_output_of_a_multi_output_op():
    x = leaf(3.0, 1.0, 2.0)
    values, _ = torch.sort(x)
    calls = []
    values.register_hook(lambda g: calls.append(g.tolist()) or g * 2)
    (values * cartograd.tensor(torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64))).sum().backward()
    assert calls == [[1.0, 10.0, 100.0]]
    assert x.grad.tolist() == [200.0, 2.0, 20.0]


def test_hooks_of_tensors_off_the_path_stay_silent():
    x, z = leaf(1.0), leaf(1.0)
    calls = []
    side = x * z
    side.register_hook(lambda g: calls.append("side"))
    z.register_hook(lambda g: calls.append("z"))
    (x * 2).backward()
    assert calls == []


def test_hooks_fire_once_per_pass_in_a_deep_diamond():
    x = leaf(1.0)
    counts = [0] * 30
    h = x
    for i in range(30):
        h = h * 0.5 + h * 0.5  # 2^30 paths
        h.register_hook(lambda g, i=i: counts.__setitem__(i, counts[i] + 1))
    h.backward()
    assert counts == [1] * 30
    assert x.grad.item() == pytest.approx(1.0)


def test_parameter_hook_stays_in_the_graph_with_create_graph():
    def penalty(grad, w, x):
        loss = torch.exp(x * w).sum()
        (g,) = grad(loss, [w], create_graph=True)
        (second,) = grad((g * g).sum(), [w])
        return second

    data = torch.tensor([0.3, 0.7], dtype=torch.float64)
    w = parameter(1.0, 2.0)
    w.register_hook(lambda g: g * 2)
    expected = penalty(torch.autograd.grad, w, data)
    found = penalty(cartograd.grad, w, cartograd.tensor(data))
    torch.testing.assert_close(found.data, expected)


def test_hooks_of_a_tensor_with_a_graph_of_torchs_own_fire_once():
    w = parameter(1.0, 2.0)
    h = w * 2
    calls = []
    h.register_hook(lambda g: calls.append(g.tolist()))
    x = leaf(3.0, 4.0)
    (x * h).sum().backward()
    assert calls == [[3.0, 4.0]]
    assert w.grad.tolist() == [6.0, 8.0]
