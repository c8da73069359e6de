"""op.as_torch(): our ops inside torch's autograd."""

import contextlib

import pytest
import torch

import cartograd
from cartograd import errors


def number(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def second_derivative(function, x):
    (first,) = torch.autograd.grad(function(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    return second.item()


@cartograd.primitive()
def power(x: torch.Tensor, n: int = 2, *, scale: float = 1.0):
    """scale * x^n"""
    return scale * x**n


@power.vjp("x")
def _(g, x, n, scale):
    return g * scale * n * x ** (n - 1)


@cartograd.primitive(broadcasts=True)
def product(a: torch.Tensor, b: torch.Tensor):
    return a * b


product.vjp("a")(lambda g, b: g * b)
product.vjp("b")(lambda g, a: g * a)


@cartograd.primitive(multiple=True)
def polar(x: torch.Tensor, y: torch.Tensor):
    return torch.hypot(x, y), torch.atan2(y, x)


@polar.vjp
def _(g, x, y, out):
    return (g[0] * x / out[0] - g[1] * y / out[0] ** 2), (g[0] * y / out[0] + g[1] * x / out[0] ** 2)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (power.as_torch(), (number(0.3, 0.7),)),
        (lambda x: power.as_torch()(x, 3, scale=2.0), (number(0.3, 0.7),)),
        (product.as_torch(), (number(0.3, 0.7), number(0.2, 0.9))),
        (product.as_torch(), (number(0.3, 0.7), number(0.2))),
        (polar.as_torch(), (number(0.3, 0.7), number(0.2, 0.9))),
    ],
    ids=["power", "options", "product", "broadcast", "several outputs"],
)
def test_torch_checks_both_derivatives(function, inputs):
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("name", ["mul", "exp", "sub"])
def test_our_own_ops_pass_torchs_gradcheck(name):
    families = [module for module in vars(cartograd.ops).values() if hasattr(module, "__file__")]
    (op,) = {vars(family)[name] for family in families if isinstance(vars(family).get(name), cartograd.Primitive)}
    inputs = tuple(number(0.3, 0.7) for _ in op.input_slots)
    assert torch.autograd.gradcheck(op.as_torch(), inputs)
    assert torch.autograd.gradgradcheck(op.as_torch(), inputs)


def test_it_lives_in_torchs_graph():
    x = number(2.0)
    y = power.as_torch()(x * 3, 3)
    assert type(y) is torch.Tensor
    y.backward()
    assert x.grad.item() == 324.0


def test_only_needed_gradients_are_asked_for():
    asked = []

    @cartograd.primitive()
    def op(a: torch.Tensor, b: torch.Tensor):
        return a * b

    @op.vjp("a")
    def _(g, b):
        asked.append("a")
        return g * b

    @op.vjp("b")
    def _(g, a):
        asked.append("b")
        return g * a

    op.as_torch()(number(1.0), torch.ones(1, dtype=torch.float64)).backward()
    assert asked == ["a"]


def test_without_grad_it_is_the_plain_function():
    out = power.as_torch()(torch.tensor([2.0]), 3)
    assert out.tolist() == [8.0]
    assert not out.requires_grad


def test_extra_and_integer_outputs():
    @cartograd.primitive(multiple=True, extra=True)
    def largest(x: torch.Tensor):
        value, place = x.max(dim=0)
        return (value, place), tuple(x.shape)

    @largest.vjp("x")
    def _(g, out, extra):
        return torch.zeros(extra, dtype=g[0].dtype).index_put((out[1],), g[0])

    x = number(1.0, 5.0)
    value, place = largest.as_torch()(x)
    assert not place.requires_grad
    value.backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_declared_refusal_holds_in_torch_too():
    @cartograd.primitive(once="its kernel has no derivative")
    def once(x: torch.Tensor):
        return x.exp()

    @once.vjp("x")
    def _(g, x):
        return g * x.detach().exp()

    x = number(1.0)
    (first,) = torch.autograd.grad(once.as_torch()(x), x)
    assert first.item() == pytest.approx(torch.e)
    with pytest.raises((errors.NotTwiceDifferentiableError, RuntimeError), match=r"twice|once"):
        second_derivative(once.as_torch(), x)


def test_restatement_holds_in_torch_too():
    @cartograd.primitive()
    def cube(x: torch.Tensor):
        return x * x * x

    @cube.vjp("x")
    def _(g, x):
        return g * 3 * x.detach() ** 2

    @cube.restate
    def _(x):
        return x * x * x

    x = number(2.0)
    with contextlib.suppress(errors.NotTwiceDifferentiableError):  # right or refused
        assert second_derivative(cube.as_torch(), x) == 12.0


def test_wrong_arguments_are_refused():
    with pytest.raises(errors.UnsupportedError, match=r"power takes \(x, n, scale\)"):
        power.as_torch()(number(1.0), flavour="sweet")


def test_it_carries_name_and_text():
    assert power.as_torch().__name__ == "power"
    assert power.as_torch().__doc__ == "scale * x^n"
