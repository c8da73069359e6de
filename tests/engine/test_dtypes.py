"""Dtypes, ranks, layouts and broadcasting: a gradient always has its tensor's shape and dtype (acceptance 4)."""

import pytest
import torch
from torch import nn

import cartograd

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def made(shape, dtype=torch.float64, requires_grad=True):
    data = torch.linspace(0.5, 1.5, max(1, torch.Size(shape).numel()), dtype=torch.float64)[: torch.Size(shape).numel()]
    return cartograd.tensor(data.reshape(shape).to(dtype), requires_grad=requires_grad)


FUNCTIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(torch.tensor(True), x, y),
    "fallback": torch.special.xlog1py,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_result_and_gradients_keep_the_dtype(name, dtype):
    if name == "fallback" and dtype == torch.float16:
        dtype = torch.float32
    x, y = made((2, 3), dtype), made((2, 3), dtype)
    out = FUNCTIONS[name](x, y)
    assert out.dtype == dtype
    out.sum().backward()
    assert x.grad.dtype == y.grad.dtype == dtype


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("pair", [(torch.float32, torch.float64), (torch.bfloat16, torch.float32)], ids=str)
def test_mixed_operands_promote_and_each_gradient_goes_back(name, pair):
    low, high = pair
    x, y = made((2, 3), low), made((3,), high)
    t, u = x.data.clone().requires_grad_(), y.data.clone().requires_grad_()
    out, expected = FUNCTIONS[name](x, y), FUNCTIONS[name](t, u)
    assert out.dtype == expected.dtype == high
    out.sum().backward()
    expected.sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (low, high)
    torch.testing.assert_close(x.grad.data, t.grad)
    torch.testing.assert_close(y.grad.data, u.grad)


def test_0d_tensor_of_a_higher_dtype_does_not_promote():
    x, s = made((3,), torch.float32), made((), torch.float64)
    out = x * s
    assert out.dtype == torch.float32
    out.sum().backward()
    assert (x.grad.dtype, s.grad.dtype) == (torch.float32, torch.float64)
    assert s.grad.shape == ()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool], ids=str)
def test_integer_operands_get_no_gradient(dtype):
    x = made((3,), torch.float32)
    other = cartograd.tensor(torch.tensor([1, 0, 1]).to(dtype))
    ((x * other + other) * other.data).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0, 1.0]
    assert not (other + other).requires_grad


SHAPES = [
    ((), ()),
    ((1,), ()),
    ((3,), ()),
    ((), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((2, 3), (1, 1, 1)),
    ((4, 1, 3), (2, 1)),
    ((0,), ()),
    ((0, 3), (3,)),
    ((2, 0), (1, 0)),
    ((1, 0), (2, 1)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_broadcasting_is_undone(name, shapes):
    x, y = made(shapes[0]), made(shapes[1])
    t, u = x.data.clone().requires_grad_(), y.data.clone().requires_grad_()
    out, expected = FUNCTIONS[name](x, y), FUNCTIONS[name](t, u)
    assert out.shape == expected.shape
    weights = torch.rand(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out.backward(weights)
    expected.backward(weights)
    torch.testing.assert_close(x.grad.data, t.grad)
    torch.testing.assert_close(y.grad.data, u.grad)


LAYOUTS = {
    "transposed": lambda t: t.t(),
    "strided": lambda t: t.repeat_interleave(2, dim=1)[:, ::2],
    "expanded": lambda t: t[:1].expand(3, 3),
    "reversed slice": lambda t: torch.cat([t, t])[2:5],
    "channels last": lambda t: t.reshape(1, 1, 3, 3).contiguous(memory_format=torch.channels_last)[0, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_leaf_and_gradient(layout):
    data = LAYOUTS[layout](torch.linspace(0.5, 1.5, 9, dtype=torch.float64).reshape(3, 3))
    x = cartograd.tensor(data, requires_grad=True)
    t = data.clone().requires_grad_()
    seed = LAYOUTS[layout](torch.linspace(1.0, 2.0, 9, dtype=torch.float64).reshape(3, 3))

    def function(x):
        return (x * x).t() + torch.special.i0(x).flip(0) - x.exp()[[2, 0, 1]] / x.sum(dim=0)

    function(x).backward(seed)
    function(t).backward(seed)
    torch.testing.assert_close(x.grad.data, t.grad)
    function(x).backward(seed)
    torch.testing.assert_close(x.grad.data, 2 * t.grad)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3)], ids=str)
@pytest.mark.parametrize(
    "function",
    [lambda x: x.exp() * x, lambda x: x.sum(), lambda x: x.reshape(-1), torch.special.i0, lambda x: x + x.mean()],
)
def test_0d_and_empty(function, shape):
    x = made(shape)
    t = x.data.clone().requires_grad_()
    out, expected = function(x), function(t)
    assert out.shape == expected.shape
    out.backward(torch.ones(expected.shape, dtype=torch.float64))
    expected.backward(torch.ones(expected.shape, dtype=torch.float64))
    torch.testing.assert_close(x.grad.data, t.grad, equal_nan=True)


def test_sums_of_low_precision_contributions_stay_low_precision():
    x = made((4,), torch.bfloat16)
    (x + x + x * 2 + torch.special.expit(x)).sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_network_in_bfloat16():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1)).to(torch.bfloat16)
    x = cartograd.tensor(torch.randn(5, 4, dtype=torch.bfloat16), requires_grad=True)
    model(x).square().mean().backward()
    for one in (x, *model.parameters()):
        assert one.grad.dtype == torch.bfloat16
        assert torch.isfinite(one.grad.data).all()
