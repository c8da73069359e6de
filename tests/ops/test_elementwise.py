"""What OpInfo leaves open of ops/elementwise.py, elementary.py, ternary.py and compare.py."""

import operator

import pytest
import torch

import cartograd
from cartograd.engine.fallback import TorchPlan
from cartograd.errors import InplaceError, UnsupportedError

F64 = torch.float64


def leaf(*values, dtype=F64):
    return cartograd.tensor(torch.tensor(values, dtype=dtype), requires_grad=True)


def gradients(function, *values):
    """Ours and torch's gradients of the sum of `function` at 1-d float64 inputs."""
    ours = [leaf(*one) for one in values]
    theirs = [torch.tensor(one, dtype=F64, requires_grad=True) for one in values]
    mine = cartograd.grad(function(*ours).sum(), ours, allow_unused=True)
    other = torch.autograd.grad(function(*theirs).sum(), theirs, allow_unused=True)
    return [one.data for one in mine], list(other)


OPERATORS = {
    operator.add: ("add", "add"),
    operator.sub: ("sub", "rsub"),
    operator.mul: ("mul", "mul"),
    operator.truediv: ("div", "rdiv"),
    operator.pow: ("pow", "pow"),
    operator.mod: ("remainder", "remainder"),
    operator.floordiv: ("rounded_div", "rounded_div"),
}


@pytest.mark.parametrize("function", OPERATORS, ids=lambda f: f.__name__)
def test_operators_with_numbers_tensors_and_parameters_reach_our_ops(function):
    x, plain = leaf(1.5, 2.5), torch.tensor([2.0, 3.0], dtype=F64)
    parameter = torch.nn.Parameter(plain.clone())
    first, reflected = OPERATORS[function]
    for other in (2, 2.5, plain, parameter, leaf(2.0, 3.0)):
        raw = other.data if isinstance(other, cartograd.Tensor) else other
        out = function(x, other)
        assert out.node.name == first
        torch.testing.assert_close(out.data, function(x.data, raw).detach())
        out = function(other, x)
        assert out.node.name == (reflected if isinstance(other, (int, float)) else first)
        torch.testing.assert_close(out.data, function(raw, x.data).detach())


@pytest.mark.parametrize("function", [f for f in OPERATORS if f is not operator.floordiv], ids=lambda f: f.__name__)
def test_operators_give_torchs_gradients(function):
    for mine, other in zip(*gradients(function, [1.5, 2.5], [2.0, 0.75]), strict=True):
        torch.testing.assert_close(mine, other)
    calls = [lambda x: function(x, 3), lambda x: function(3, x)]
    for call in calls[:1] if function is operator.mod else calls:  # torch has no derivative for number % tensor
        for mine, other in zip(*gradients(call, [1.5, 2.5]), strict=True):
            torch.testing.assert_close(mine, other)


ONE_INPUT = (
    ["neg", "negative", "abs", "absolute", "reciprocal", "square", "sqrt", "rsqrt"]
    + ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p"]
    + ["sin", "cos", "tan", "asin", "arcsin", "acos", "arccos", "atan", "arctan"]
    + ["sinh", "cosh", "asinh", "arcsinh", "acosh", "arccosh", "atanh", "arctanh"]
    + ["erf", "erfc", "erfinv", "lgamma", "digamma", "sinc", "logit", "sigmoid", "tanh", "relu", "nan_to_num"]
    + ["sign", "sgn", "floor", "ceil", "trunc", "fix", "round", "clone"]
)


@pytest.mark.parametrize("name", ONE_INPUT)
def test_every_spelling_reaches_our_op_and_keeps_the_dtype(name):
    spaces = [space for space in (torch, torch.special) if hasattr(space, name)]
    for dtype in (F64, torch.float32, torch.bfloat16):
        x = leaf(0.25, 0.5, dtype=dtype)
        for function in [getattr(space, name) for space in spaces] + [lambda x: getattr(x, name)()]:
            out = function(x)
            assert not isinstance(out.node.plan, TorchPlan)
            assert out.dtype == dtype
            (gradient,) = cartograd.grad(out, x, torch.ones_like(out.data))
            assert gradient.dtype == dtype
            assert gradient.shape == (2,)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 2)])
def test_empty_scalar_and_strided_inputs(shape):
    base = torch.rand(tuple(reversed(shape)), dtype=F64, generator=torch.Generator().manual_seed(3)) + 0.5
    raw = base.permute(tuple(reversed(range(len(shape)))))
    x, t = cartograd.tensor(raw, requires_grad=True), raw.clone().requires_grad_()

    def function(x):
        return (x.exp() / (1 + x) - x**1.5).log1p() * x.sin()

    seed = torch.ones(shape, dtype=F64)
    function(x).backward(seed)
    function(t).backward(seed)
    torch.testing.assert_close(x.grad.data, t.grad)


def test_only_wanted_gradients_are_computed_and_saved():
    x, fixed = leaf(1.0, 2.0), cartograd.tensor([3.0, 4.0], dtype=F64)
    saved = (x * fixed).node.saved
    assert len(saved) == 1
    assert saved[0] is fixed.data
    assert (x + fixed).node.saved == ()
    assert (fixed / x).node.parents == (x._edge,)


def test_mixed_dtypes_give_each_input_its_own():
    x, y = leaf(1.0, 2.0, dtype=torch.float32), leaf(3.0, 4.0)
    for function in (torch.mul, torch.div, torch.pow, torch.atan2, torch.maximum, torch.hypot):
        out = function(x, y)
        assert out.dtype == F64
        gx, gy = cartograd.grad(out.sum(), [x, y])
        assert (gx.dtype, gy.dtype) == (torch.float32, F64)


def test_alpha_and_value():
    x, y, z = leaf(1.0, 2.0), leaf(3.0, 5.0), leaf(2.0, 4.0)
    assert cartograd.grad(torch.add(x, y, alpha=3).sum(), y)[0].tolist() == [3.0, 3.0]
    assert cartograd.grad(torch.sub(x, y, alpha=3).sum(), y)[0].tolist() == [-3.0, -3.0]
    assert cartograd.grad(torch.rsub(x, y, alpha=3).sum(), x)[0].tolist() == [-3.0, -3.0]
    assert cartograd.grad(torch.addcmul(x, y, z, value=2).sum(), y)[0].tolist() == [4.0, 8.0]
    assert cartograd.grad(torch.addcdiv(x, y, z, value=2).sum(), y)[0].tolist() == [1.0, 0.5]
    assert cartograd.grad(torch.lerp(x, y, 0.25).sum(), x)[0].tolist() == [0.75, 0.75]


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_division_is_connected_and_flat(mode):
    x, y = leaf(7.0, -7.0), leaf(2.0, 2.0)
    out = torch.div(x, y, rounding_mode=mode)
    assert out.tolist() == ([3.0, -4.0] if mode == "floor" else [3.0, -3.0])
    assert [one.tolist() for one in cartograd.grad(out.sum(), [x, y])] == [[0.0, 0.0], [0.0, 0.0]]


def test_number_modulo_tensor():
    x = leaf(2.0, 0.75)
    assert cartograd.grad((7 % x).sum(), x)[0].tolist() == [-3.0, -9.0]


def test_floor_division_of_numbers_keeps_their_precision():
    x = leaf(0.1, 0.3)
    assert (7.3 // x).tolist() == (7.3 // x.data).tolist()
    assert (7.3 // cartograd.tensor([2, 3])).tolist() == [3.0, 2.0]


def test_comparisons_and_logic_are_outside_the_graph():
    x, y = leaf(1.0, -2.0, 3.0), torch.tensor([1.0, 1.0, 4.0], dtype=F64)
    cases = {
        "eq": [True, False, False],
        "ne": [False, True, True],
        "lt": [False, True, True],
        "le": [True, True, True],
        "gt": [False, False, False],
        "ge": [True, False, False],
    }
    for name, expected in cases.items():
        for out in (getattr(operator, name)(x, y), getattr(torch, name)(x, y), getattr(x, name)(y)):
            assert isinstance(out, cartograd.Tensor)
            assert out.tolist() == expected
            assert not out.requires_grad
    assert ((x > 0) & (x < 2)).tolist() == [True, False, False]
    assert ((x < 0) | (x > 2)).tolist() == [False, True, True]
    assert (~(x > 0)).tolist() == [False, True, False]
    assert torch.logical_and(x, x > 1).tolist() == [False, False, True]
    assert torch.isnan(x / 0 * 0).all()
    assert (y < x).tolist() == [False, False, False]
    assert (x == None) is False  # noqa: E711


def test_complex_numbers_take_torchs_derivative():
    z = cartograd.tensor(torch.tensor([1 + 2j, 3 - 1j]), requires_grad=True)
    t = z.data.clone().requires_grad_()

    def function(z):
        return ((z * z + z / (z - 1j)).exp() - (-z) * 2 + 1 / z).abs()

    torch.testing.assert_close(
        cartograd.grad(function(z).sum(), z)[0].data, torch.autograd.grad(function(t).sum(), t)[0]
    )


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_in_place_arithmetic(name):
    x = leaf(1.0, 2.0, 3.0)
    t = x.data.clone().requires_grad_()
    results = []
    for one in (x, t):
        inner = one * 2.0
        assert getattr(inner, name)(4.0) is inner
        inner.sum().backward()
        results.append((inner.detach(), one.grad))
    torch.testing.assert_close(results[0][0].data, results[1][0])
    torch.testing.assert_close(results[0][1].data, results[1][1])
    with pytest.raises(InplaceError, match=f"{name} would change a leaf"):
        getattr(leaf(1.0), name)(4.0)


def test_in_place_keeps_what_the_other_gradient_needs():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    inner = x * 2.0
    inner.mul_(y)
    inner.sin_()
    inner.sum().backward()
    cosine = torch.cos(2 * x.data * y.data)
    torch.testing.assert_close(y.grad.data, cosine * 2 * x.data)
    torch.testing.assert_close(x.grad.data, cosine * 2 * y.data)


def test_augmented_assignment_of_operators():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    y += 2.0
    y *= 3.0
    y -= x
    y /= 4.0
    y.sum().backward()
    assert y.tolist() == [2.0, 2.5]
    assert x.grad.tolist() == [0.5, 0.5]


def test_out_is_refused_where_it_would_lose_a_gradient():
    x = leaf(1.0)
    with pytest.raises(UnsupportedError, match=r"exp\(out=\.\.\.\)"):
        torch.exp(x, out=torch.empty(1, dtype=F64))


def test_atan2_has_no_slope_at_the_origin():
    mine, other = gradients(torch.atan2, [0.0, 0.0, 1.0], [0.0, 1.0, 0.0])
    for one, two in zip(mine, other, strict=True):
        assert one.tolist() == two.tolist()


def test_abs_is_flat_at_zero():
    assert gradients(torch.abs, [-2.0, 0.0, 2.0])[0][0].tolist() == [-1.0, 0.0, 1.0]
