"""Seeds, accumulation, who owns a .grad, inputs=, and grad mode (F4, F8, F15, F16)."""

import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*values, dtype=torch.float64):
    return cartograd.tensor(list(values), requires_grad=True, dtype=dtype)


# Seeds


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("op", [lambda x: x + 0, lambda x: x - 1, lambda x: x * 3, torch.special.i0], ids="+-*f")
def test_F4_one_element_root_of_any_rank_is_seeded_with_ones_of_its_shape(shape, op):
    x = cartograd.tensor(torch.full(shape, 0.5, dtype=torch.float64), requires_grad=True)
    seeds = []
    root = op(x)
    root.register_hook(lambda g: seeds.append(g.data.clone()))
    root.backward()
    assert seeds[0].shape == shape
    assert seeds[0].dtype == torch.float64
    assert seeds[0].item() == 1.0
    assert x.grad.shape == shape


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_F8_leaf_root_gets_its_gradient(shape):
    x = cartograd.tensor(torch.full(shape, 0.5), requires_grad=True)
    x.backward()
    assert torch.equal(x.grad.data, torch.ones(shape))
    x.backward()
    assert torch.equal(x.grad.data, torch.full(shape, 2.0))


def test_leaf_root_with_a_gradient_of_its_shape():
    x = leaf(1.0, 2.0)
    x.backward(torch.tensor([3.0, 4.0], dtype=torch.float64))
    assert x.grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("wrap", [lambda g: g, cartograd.tensor, nn.Parameter], ids=["torch", "Tensor", "Parameter"])
def test_gradient_may_be_any_kind_of_tensor(wrap):
    x = leaf(1.0, 2.0)
    given = wrap(torch.tensor([10.0, 100.0], dtype=torch.float64))
    (x * x).backward(given)
    assert x.grad.tolist() == [20.0, 400.0]
    assert not x.grad.requires_grad


def test_root_of_several_elements_needs_a_gradient_and_the_error_says_so():
    y = leaf(1.0, 2.0) * 2
    with pytest.raises(errors.NonScalarRootError, match=r"shape \(2,\).*\.sum\(\)"):
        y.backward()


def test_empty_root_needs_a_gradient():
    x = cartograd.tensor(torch.ones(0), requires_grad=True)
    with pytest.raises(errors.NonScalarRootError, match=r"\(0,\)"):
        (x * 2).backward()
    (x * 2).backward(torch.ones(0))
    assert x.grad.shape == (0,)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2), (2, 1), (2, 2)])
def test_gradient_of_another_shape_is_refused_and_both_shapes_are_shown(shape):
    y = leaf(1.0, 2.0) * 2
    with pytest.raises(errors.GradientShapeError) as caught:
        y.backward(torch.ones(shape, dtype=torch.float64))
    assert "(2,)" in str(caught.value)
    assert str(tuple(shape)) in str(caught.value)


def test_scalar_root_takes_no_gradient_of_shape_one():
    with pytest.raises(errors.GradientShapeError, match=r"\(\).*\(1,\)"):
        leaf(1.0).sum().backward(torch.ones(1, dtype=torch.float64))


def test_gradient_of_another_dtype_is_refused():
    with pytest.raises(errors.GradientShapeError, match=r"float64.*float32"):
        leaf(1.0).sum().backward(torch.tensor(1.0))


@pytest.mark.parametrize("given", [2.0, [1.0, 1.0], "x"], ids=["float", "list", "str"])
def test_gradient_that_is_no_tensor_is_refused(given):
    with pytest.raises(errors.CartogradError, match=f"gradient must be.*{type(given).__name__}"):
        (leaf(1.0, 2.0) * 2).backward(given)


def test_F8_root_without_grad_raises_and_says_why():
    x = leaf(1.0)
    with cartograd.no_grad():
        y = x * 2
    for root in (cartograd.tensor(1.0), y, x.detach()):
        with pytest.raises(errors.NoGradientError, match=r"does not require grad.*no_grad\(\)"):
            root.backward()


def test_integer_root_raises():
    with pytest.raises(errors.NoGradientError):
        leaf(1.0, 2.0).argmax().backward()


# Accumulation


def test_gradients_accumulate_over_passes_until_cleared():
    x = leaf(1.0, 2.0)
    for expected in ([2.0, 4.0], [4.0, 8.0], [6.0, 12.0]):
        (x * x).sum().backward()
        assert x.grad.tolist() == expected
    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_gradients_accumulate_into_parameters_as_torch_does():
    w = nn.Parameter(torch.ones(2))
    x = cartograd.tensor([1.0, 2.0])
    (x * w).sum().backward()
    slot = w.grad
    (x * w).sum().backward()
    assert w.grad is slot
    assert type(slot) is torch.Tensor
    assert slot.tolist() == [2.0, 4.0]


def test_torch_and_ours_share_a_parameters_slot():
    w = nn.Parameter(torch.ones(2))
    (w * 3).sum().backward()
    (cartograd.tensor([1.0, 2.0]) * w).sum().backward()
    assert w.grad.tolist() == [4.0, 5.0]


def test_one_leaf_used_many_times():
    x = leaf(2.0)
    y = x
    for _ in range(9):
        y = y * x
    (y + x + x * 3).backward()
    assert x.grad.item() == 10 * 2.0**9 + 4


def test_gradients_can_be_set_by_hand():
    x = leaf(1.0, 2.0)
    x.grad = cartograd.tensor([5.0, 5.0], dtype=torch.float64)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [7.0, 7.0]
    with pytest.raises(errors.GradientShapeError, match=r"\.grad.*\(2,\).*\(3,\)"):
        x.grad = torch.ones(3, dtype=torch.float64)
    with pytest.raises(errors.NoGradientError, match="requires_grad_"):
        cartograd.tensor(1.0).grad = torch.tensor(1.0)


def test_grad_of_a_leaf_survives_freezing_it():
    x = leaf(1.0)
    (x * 2).backward()
    x.requires_grad_(False)
    assert x.grad.item() == 2.0
    x.requires_grad_(True)
    assert x.grad.item() == 2.0
    (x * 2).backward()
    assert x.grad.item() == 4.0


# Aliasing


def test_gradients_of_two_leaves_are_separate_memory():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    x.grad.data.mul_(100)
    assert y.grad.tolist() == [1.0, 1.0]
    (x + y).sum().backward()
    assert x.grad.tolist() == [101.0, 101.0]
    assert y.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("kind", [torch.tensor, cartograd.tensor], ids=["torch", "Tensor"])
def test_the_users_gradient_stays_untouched(kind):
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    given = kind([1.0, 1.0], dtype=torch.float64)
    for _ in range(3):
        (x + y).backward(given)
    x.backward(given)
    (x + x + y).backward(given)
    x.grad.data.zero_()
    y.grad.data.zero_()
    assert given.tolist() == [1.0, 1.0]


def test_gradients_do_not_share_memory_with_values():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x * w).sum().backward()
    x.grad.data.zero_()
    w.grad.data.zero_()
    assert w.tolist() == [3.0, 4.0]
    assert x.tolist() == [1.0, 2.0]


def test_a_rule_that_returns_what_it_saved_does_not_tie_grad_to_it():
    @cartograd.primitive()
    def dot(x: torch.Tensor, w: torch.Tensor):
        return (x * w).sum()

    @dot.vjp("x")
    def _(g, w):
        return w

    w = cartograd.tensor([3.0, 4.0], dtype=torch.float64)
    x = leaf(1.0, 2.0)
    dot(x, w).backward()
    dot(x, w).backward()
    x.grad.data.zero_()
    assert w.tolist() == [3.0, 4.0]


def test_leaf_and_parameter_get_separate_memory():
    x, w = leaf(1.0, 2.0), nn.Parameter(torch.ones(2, dtype=torch.float64))
    (x + w).sum().backward()
    w.grad.zero_()
    assert x.grad.tolist() == [1.0, 1.0]


def test_views_and_expanded_gradients_become_ordinary_memory():
    x = cartograd.tensor(torch.randn(3, 2).t(), requires_grad=True)
    y = leaf(1.0)
    (x.t().sum() + y.expand(5).sum()).backward()
    for one in (x, y):
        one.grad.data.add_(1)  # would fail or write twice in expanded memory
    assert x.grad.tolist() == [[2.0] * 3] * 2
    assert y.grad.tolist() == [6.0]


# inputs=


def test_inputs_limits_what_is_accumulated():
    x, y = leaf(2.0), leaf(3.0)
    (x * y).backward(inputs=[x])
    assert x.grad.item() == 3.0
    assert y.grad is None


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)], ids=["one", "list", "tuple"])
def test_inputs_may_be_one_tensor_or_a_sequence(wrap):
    x = leaf(1.0, 2.0)
    (x * x).sum().backward(inputs=wrap(x))
    assert x.grad.tolist() == [2.0, 4.0]


def test_inputs_may_be_inner_tensors_and_parameters():
    x, w = leaf(2.0), nn.Parameter(torch.tensor([5.0], dtype=torch.float64))
    y = x * w
    (y * y).backward(inputs=[y, w])
    assert y.grad.item() == 20.0
    assert w.grad.item() == 40.0
    assert x.grad is None


def test_inputs_that_lead_nowhere_or_require_no_grad_are_refused_or_left_alone():
    x, other = leaf(2.0), leaf(1.0)
    with pytest.raises(errors.NoGradientError, match="does not require grad"):
        (x * x).backward(inputs=[cartograd.tensor(1.0)])
    with pytest.raises(errors.CartogradError, match="inputs"):
        (x * x).backward(inputs=[])
    (x * x).backward(inputs=[other])
    assert other.grad is None
    assert x.grad is None


def test_only_the_way_to_the_inputs_is_walked():
    ran = []

    @cartograd.primitive()
    def noisy(x: torch.Tensor):
        return x * 1

    @noisy.vjp("x")
    def _(g):
        ran.append(1)
        return g

    x, y = leaf(1.0), leaf(1.0)
    (noisy(x) * noisy(y * 2)).backward(inputs=[y])
    assert len(ran) == 1


def test_nodes_that_need_no_gradient_are_not_recorded():
    x, constant = leaf(1.0), cartograd.tensor([2.0], dtype=torch.float64)
    assert (constant * constant).node is None
    assert [node.name for node in cartograd.trace(x * (constant.exp() + 1)).nodes] == ["mul"]


# Grad mode


def test_F16_backward_works_inside_no_grad():
    x = leaf(1.0, 2.0, 3.0)
    index = torch.tensor([0, 2])
    y = torch.where(x.detach() > 1, x.masked_fill(x.detach() > 2, 0.0), x).sum()
    y = y + x.index_select(0, index).sum() + x.gather(0, index).sum() + torch.embedding(x.reshape(3, 1), index).sum()
    y = y + x.scatter(0, index, x[:2]).sum() + x.scatter_add(0, index, x[:2]).sum()
    with cartograd.no_grad():
        y.backward(retain_graph=True)
    inside = x.grad.tolist()
    x.grad = None
    y.backward()
    assert x.grad.tolist() == inside


def test_F16_create_graph_works_inside_no_grad():
    x = leaf(3.0)
    y = x * x * x
    with cartograd.no_grad():
        (first,) = cartograd.grad(y, x, create_graph=True)
    (second,) = cartograd.grad(first, x)
    assert second.item() == 18.0


def test_grad_mode_is_left_as_it_was():
    x = leaf(1.0)
    for mode in (True, False):
        with cartograd.set_grad_enabled(mode):
            with cartograd.enable_grad():
                y = x * x
            y.backward(create_graph=not mode)
            assert torch.is_grad_enabled() is mode


def test_grad_is_detached_unless_create_graph():
    x = leaf(3.0)
    (x * x).backward()
    assert not x.grad.requires_grad
    x.grad = None
    (x * x).backward(create_graph=True)
    assert x.grad.requires_grad
    (second,) = cartograd.grad(x.grad, x)
    assert second.item() == 2.0


def test_unknown_number_of_workers_is_refused():
    with pytest.raises((errors.CartogradError, ValueError), match="workers"):
        leaf(1.0).sum().backward(workers=0)


# A trunk that several roots share


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "trunk",
    [lambda x: x + 1, lambda x: -x, lambda x: x.reshape(3, 2).T, lambda x: torch.cat([x, x]), lambda x: x.sum(0)],
    ids=["add", "neg", "views", "cat", "sum"],
)
def test_a_trunk_that_saved_no_tensor_can_be_walked_from_each_root(trunk, workers):
    value = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    other, x = value.clone().requires_grad_(), cartograd.tensor(value, requires_grad=True)
    for leaf, options in ((other, {}), (x, {"workers": workers})):
        shared = trunk(leaf)
        roots = [shared.sum(), (shared * 2).mean(), shared.exp().sum()]
        for root in roots:
            root.backward(**options)
    torch.testing.assert_close(x.grad.data, other.grad)
    with pytest.raises(errors.GraphFreedError, match="retain_graph=True"):
        roots[0].backward()


def test_a_trunk_that_saved_tensors_cannot():
    x = leaf(1.0, 2.0)
    shared = x * x
    shared.sum().backward()
    with pytest.raises(errors.GraphFreedError, match="mul"):
        (shared * 2).sum().backward()


def test_the_first_gradient_of_every_parameter_is_stored_without_a_copy():
    layers, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), cartograd.tensor(torch.ones(5, 3))

    def fn(x):
        for parameter in layers.parameters():
            parameter.grad = None
        layers(x).sum().backward()

    source = cartograd.capture(fn, x).source
    assert source.count(".grad = t") == 4
    assert "add_gradient" not in source
