"""create_graph=True: a second derivative is right or refused, never silently zero (F10)."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

import cartograd
from cartograd import errors


def leaf(*numbers):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=torch.float64)


def derivative(function, order, x):
    """The `order`-th derivative of a function of one number."""
    y = function(x)
    for _ in range(order):
        (y,) = cartograd.grad(y, x, create_graph=True)
    return y.item()


@pytest.mark.parametrize(("order", "expected"), [(1, 32.0), (2, 48.0), (3, 48.0), (4, 24.0)])
@pytest.mark.parametrize("power", [lambda x: x**4, lambda x: x * x * x * x, lambda x: x.square().square()])
def test_higher_derivatives_of_a_power(power, order, expected):
    assert derivative(power, order, leaf(2.0)) == pytest.approx(expected)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_higher_derivatives_of_sine_and_exponential(order):
    x = leaf(0.7)
    expected = torch.sin(torch.tensor(0.7 + order * torch.pi / 2, dtype=torch.float64)).item()
    assert derivative(torch.sin, order, x) == pytest.approx(expected)
    assert derivative(torch.exp, order, x) == pytest.approx(torch.exp(x.data).item())


@pytest.mark.parametrize(
    "function",
    [
        torch.special.i0,
        torch.special.i1e,
        torch.special.ndtri,
        torch.special.log_ndtr,
        torch.digamma,
        lambda x: torch.linalg.det(torch.stack([torch.stack([x, x * x]), torch.stack([x * 2, x**3])])),
        lambda x: torch.linalg.inv(torch.stack([torch.stack([x, x * x]), torch.stack([x * 2, x**3])])).sum(),
        lambda x: torch.cumprod(torch.stack([x, x * x, x + 1]), 0).sum(),
        lambda x: torch.sort(torch.stack([x * x, x * 3]))[0].prod(),
        lambda x: torch.fft.rfft(torch.stack([x, x * x, x**3])).abs().sum(),
    ],
    ids=["i0", "i1e", "ndtri", "log_ndtr", "digamma", "det", "inv", "cumprod", "sort", "fft"],
)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_higher_derivatives_through_torchs_own(function, order):
    number = torch.tensor(0.37, dtype=torch.float64, requires_grad=True)
    expected = function(number)
    for _ in range(order):
        (expected,) = torch.autograd.grad(expected, number, create_graph=True)
    found = derivative(function, order, cartograd.tensor(0.37, requires_grad=True, dtype=torch.float64))
    assert found == pytest.approx(expected.item(), rel=1e-8)


def penalty(grad, model, data):
    """A gradient penalty on inputs and parameters, and its gradients."""
    parameters = list(model.parameters())
    first = grad(model(data).pow(2).sum(), [data, *parameters], create_graph=True)
    total = sum((one * one).sum() for one in first)
    return grad(total, [data, *parameters], allow_unused=True)


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)],
        lambda: [nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2), nn.Softmax(dim=1)],
        lambda: [nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Softplus(), nn.Flatten(), nn.Linear(4, 1)],
        lambda: [nn.Bilinear(3, 3, 2)],
    ],
    ids=["mlp", "norm", "conv", "bilinear"],
)
def test_F10_gradient_penalty_equals_torchs(layers):
    torch.manual_seed(0)
    parts = layers()
    model = nn.Sequential(*parts).double()
    if isinstance(parts[0], nn.Bilinear):
        bilinear = parts[0]
        model.forward = lambda x: bilinear(x, x * 2)
    data = torch.randn(5, 3, dtype=torch.float64)
    expected = penalty(torch.autograd.grad, model, data.clone().requires_grad_())
    found = penalty(cartograd.grad, model, cartograd.tensor(data, requires_grad=True))
    for one, other in zip(found, expected, strict=True):
        zero = torch.zeros(())
        torch.testing.assert_close(
            zero if one is None or not one.data.any() else one.data, zero if other is None or not other.any() else other
        )
    assert all(p.grad is None for p in model.parameters())


def test_rule_may_combine_a_parameter_with_itself():
    @cartograd.primitive()
    def cube(x: torch.Tensor):
        return x * x * x

    @cube.vjp("x")
    def _(g, x):
        return 3 * x * x * g  # 3 * x is plain torch if x is a Parameter

    w = nn.Parameter(torch.tensor([2.0]))
    (first,) = cartograd.grad(cube(w), w, create_graph=True)
    (second,) = cartograd.grad(first, w)
    assert second.item() == 12.0


def test_seed_that_requires_grad_is_differentiated():
    for make in (nn.Parameter, lambda v: cartograd.tensor(v, requires_grad=True)):
        v = make(torch.tensor([1.0, 2.0], dtype=torch.float64))
        x = leaf(3.0, 4.0)
        (first,) = cartograd.grad(x * x, x, v, create_graph=True)
        (by_v,) = cartograd.grad(first.sum(), [v])
        assert by_v.tolist() == [6.0, 8.0]


def test_extra_tensor_is_right_or_refused():
    @cartograd.primitive(extra=True)
    def cube(x: torch.Tensor):
        return x * x * x, x * x

    @cube.vjp("x")
    def _(g, extra):
        return 3 * extra * g

    x = leaf(2.0)
    with contextlib.suppress(errors.NotTwiceDifferentiableError):
        assert cartograd.hessian(lambda x: cube(x).sum(), x).item() == 12.0


def test_declared_refusal_names_op_place_and_reason():
    @cartograd.primitive(once="its kernel has no derivative")
    def once(x: torch.Tensor):
        return x.exp()

    @once.vjp("x")
    def _(g, out):
        return g * out

    x = leaf(2.0)
    y = once(x)
    with pytest.raises(errors.NotTwiceDifferentiableError, match=r"once .*its kernel has no derivative") as caught:
        cartograd.grad(y, x, create_graph=True)
    assert "test_twice.py" in str(caught.value)
    once(x).backward()
    assert x.grad is not None


def test_what_torch_cannot_differentiate_twice_is_refused():
    scores = cartograd.tensor(torch.randn(4, 1, 3, dtype=torch.float64), requires_grad=True)
    lengths = torch.tensor([4]), torch.tensor([2])
    loss = functional.ctc_loss(scores.log_softmax(2), torch.tensor([[1, 2]]), *lengths)
    with pytest.raises((errors.NotTwiceDifferentiableError, RuntimeError), match="ctc"):
        cartograd.grad(loss, scores, create_graph=True)


def test_restatement_is_used_for_the_second_derivative():
    @cartograd.primitive()
    def cube(x: torch.Tensor):
        return x * x * x

    @cube.vjp("x")
    def _(g, x):
        return g * 3 * x.detach() ** 2  # cuts the graph: the restatement mends that

    @cube.restate
    def _(x):
        return x * x * x

    x = leaf(2.0)
    assert derivative(cube, 2, x) == 12.0
    assert derivative(cube, 3, x) == 6.0
    assert cartograd.gradgradcheck(cube, x)


def test_random_functions_use_the_same_numbers_again():
    torch.manual_seed(0)
    x = cartograd.tensor(-torch.rand(64, dtype=torch.float64) - 0.1, requires_grad=True)
    for function in (
        lambda x: functional.rrelu(x, training=True),
        lambda x: functional.dropout(x, 0.5),
        lambda x: functional.feature_alpha_dropout(x.reshape(8, 8), 0.5, training=True),
        lambda x: functional.gumbel_softmax(x),
    ):
        y = function(x).pow(2).sum()
        (plain,) = cartograd.grad(y, x, retain_graph=True)
        (recorded,) = cartograd.grad(y, x, create_graph=True)
        torch.testing.assert_close(recorded.data, plain.data)


def test_functions_with_side_effects_have_them_once():
    layer = nn.BatchNorm1d(3)
    x = cartograd.tensor(torch.randn(5, 3), requires_grad=True)
    y = layer(x).pow(2).sum()
    before = layer.running_mean.clone()
    (first,) = cartograd.grad(y, x, create_graph=True)
    cartograd.grad(first.sum(), x)
    assert torch.equal(layer.running_mean, before)
    assert layer.num_batches_tracked.item() == 1


def test_recorded_backward_accumulates_into_grad():
    x = leaf(3.0)
    (x * x * x).backward(create_graph=True)
    (x * x).backward(create_graph=True)
    assert x.grad.item() == 33.0
    (second,) = cartograd.grad(x.grad, x)
    assert second.item() == 20.0


def test_recorded_backward_into_a_parameter_says_what_to_do():
    w = nn.Parameter(torch.ones(2))
    loss = (cartograd.tensor([1.0, 2.0], requires_grad=True) * w * w).sum()
    with pytest.raises(errors.NotTwiceDifferentiableError, match=r"cartograd\.grad\(.*create_graph=True\)"):
        loss.backward(create_graph=True)


def test_multi_output_op_twice():
    x = leaf(3.0, 1.0, 2.0)

    def function(x):
        low, high = torch.aminmax(x)
        return low**2 * high**3

    found = cartograd.hessian(function, x)
    expected = torch.autograd.functional.hessian(lambda x: x.amin() ** 2 * x.amax() ** 3, x.data)
    torch.testing.assert_close(found.data, expected)
