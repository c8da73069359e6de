"""Kinks, options, modules and in-place forms of ops/activation.py and activation_smooth.py."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd.engine.fallback import TorchPlan
from cartograd.errors import InplaceError

F64 = torch.float64


def leaf(values, dtype=F64):
    return cartograd.tensor(torch.tensor(values, dtype=dtype), requires_grad=True)


def slopes(function, *points):
    x = leaf(list(points))
    (gradient,) = cartograd.grad(function(x).sum(), x)
    return gradient.tolist()


def test_slopes_at_the_kinks():
    assert slopes(F.relu, -1.0, 0.0, 1.0) == [0.0, 0.0, 1.0]
    assert slopes(lambda x: F.leaky_relu(x, 0.1), -1.0, 0.0, 1.0) == [0.1, 0.1, 1.0]
    assert slopes(F.relu6, 0.0, 3.0, 6.0) == [0.0, 1.0, 0.0]
    assert slopes(F.hardtanh, -1.0, 0.0, 1.0) == [0.0, 1.0, 0.0]
    assert slopes(lambda x: F.threshold(x, 0.5, 9.0), 0.5, 0.6) == [0.0, 1.0]
    assert slopes(F.elu, 0.0) == [1.0]
    assert slopes(lambda x: F.prelu(x, torch.tensor([0.25], dtype=F64)), -1.0, 0.0, 1.0) == [0.25, 0.25, 1.0]
    assert slopes(F.softshrink, -0.5, 0.5, 0.6) == [0.0, 0.0, 1.0]
    assert slopes(F.hardshrink, -0.5, 0.5, 0.6) == [0.0, 0.0, 1.0]
    assert slopes(F.hardsigmoid, -3.0, 0.0, 3.0) == pytest.approx([0.0, 1 / 6, 0.0])


MODULES = [
    nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-0.5, 0.7), nn.Threshold(0.1, 2.0), nn.LeakyReLU(0.2), nn.RReLU(),
    nn.Softshrink(0.3), nn.Hardshrink(0.3), nn.Hardsigmoid(), nn.Hardswish(), nn.Sigmoid(), nn.Tanh(), nn.SiLU(),
    nn.Mish(), nn.GELU(), nn.GELU("tanh"), nn.ELU(0.7), nn.SELU(), nn.CELU(1.0), nn.Softplus(2.0, 3.0),
    nn.LogSigmoid(), nn.Softsign(), nn.Tanhshrink(), nn.GLU(), nn.Softmax(-1), nn.LogSoftmax(0), nn.Softmin(1),
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_modules_use_our_rules_and_agree_with_torch(module):
    print("seed 11")
    raw = torch.randn(4, 6, dtype=F64, generator=torch.Generator().manual_seed(11)) * 3
    module.train(isinstance(module, nn.RReLU))
    x, t = cartograd.tensor(raw, requires_grad=True), raw.clone().requires_grad_()
    results = []
    for one in (x, t):
        torch.manual_seed(5)
        results.append(module(one))
    assert not any(isinstance(node.plan, TorchPlan) for node in cartograd.trace(results[0]).nodes)
    torch.testing.assert_close(results[0].data, results[1].detach())
    seed = torch.randn(results[1].shape, dtype=F64, generator=torch.Generator().manual_seed(12))
    results[0].backward(seed)
    results[1].backward(seed)
    torch.testing.assert_close(x.grad.data, t.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("module", MODULES, ids=str)
def test_modules_keep_the_dtype_and_take_strided_and_empty_inputs(module, dtype):
    base = torch.linspace(-2, 2, 24).reshape(6, 4).to(dtype)
    for raw in (base.t(), base.t()[:, ::3], base[:, :0].t()):
        if raw.numel() == 0 and isinstance(module, (nn.Softmin, nn.LogSoftmax)):
            continue
        x = cartograd.tensor(raw, requires_grad=True)
        out = module(x)
        out.backward(torch.ones_like(out.data))
        assert out.dtype == x.grad.dtype == dtype
        assert x.grad.shape == raw.shape


@pytest.mark.parametrize(
    "module",
    [nn.ReLU(True), nn.ReLU6(True), nn.Hardtanh(inplace=True), nn.Threshold(0.1, 2.0, True), nn.LeakyReLU(0.2, True)]
    + [nn.ELU(0.7, True), nn.SELU(True), nn.CELU(0.7, True), nn.SiLU(True), nn.Mish(True)]
    + [nn.Hardsigmoid(True), nn.Hardswish(True)],
    ids=str,
)
def test_in_place_modules(module):
    x = leaf([-2.0, -0.5, 0.3, 1.5])
    t = x.data.clone().requires_grad_()
    inner = x + 0.0
    out = module(inner)
    assert out is inner
    expected = module(t + 0.0)
    torch.testing.assert_close(inner.data, expected.detach())
    inner.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad.data, t.grad, rtol=1e-6, atol=1e-12)
    with pytest.raises(InplaceError, match="leaf"):
        module(leaf([1.0]))


@pytest.mark.parametrize("name", ["relu_", "sigmoid_", "tanh_", "exp_", "neg_"])
def test_in_place_methods(name):
    x = leaf([-2.0, 0.5])
    t = x.data.clone().requires_grad_()
    inner, expected = x * 2.0, t * 2.0
    assert getattr(inner, name)() is inner
    getattr(expected, name)()
    torch.testing.assert_close(inner.data, expected.detach())
    inner.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad.data, t.grad)
    with pytest.raises(InplaceError, match=f"{name} would change a leaf"):
        getattr(x, name)()


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.relu_, ()),
        (F.hardtanh_, (-0.5, 0.7)),
        (F.leaky_relu_, (0.2,)),
        (F.threshold_, (0.1, 2.0)),
        (F.elu_, (0.7,)),
    ]
    + [(torch.selu_, ()), (torch.celu_, (1.0,)), (torch.rrelu_, (0.1, 0.3)), (torch.sigmoid_, ())],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_in_place_functions(function, args):
    x = leaf([-2.0, -0.3, 0.3, 2.0])
    t = x.data.clone().requires_grad_()
    inner, expected = x * 1.0, function(t * 1.0, *args)
    assert function(inner, *args) is inner
    torch.testing.assert_close(inner.data, expected.detach())
    inner.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad.data, t.grad)
    with pytest.raises(InplaceError, match="leaf"):
        function(x, *args)


def test_every_spelling_of_relu_is_ours():
    x = leaf([1.0])
    spellings = (torch.relu(x), x.relu(), F.relu(x), F.relu(x, False), F.relu(x, inplace=False), torch.relu(input=x))
    for out in spellings:
        assert out.node.name == "relu"


def test_gelu_spellings():
    x = leaf([1.0])
    assert F.gelu(x).node.name == F.gelu(x, approximate="tanh").node.name == "gelu"
    assert F.gelu(x).item() != F.gelu(x, approximate="tanh").item()
    with pytest.raises(RuntimeError, match="approximate"):
        F.gelu(x, approximate="sigmoid")


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("shared", [True, False])
def test_prelu_shares_its_weight_as_torch_does(shape, shared):
    print("seed 4")
    raw = torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(4))
    channels = shape[1] if len(shape) > 1 and not shared else 1
    module = nn.PReLU(channels).double()
    x, t = cartograd.tensor(raw, requires_grad=True), raw.clone().requires_grad_()
    module(x).sum().backward()
    mine, module.weight.grad = module.weight.grad, None
    module(t).sum().backward()
    torch.testing.assert_close(mine, module.weight.grad)
    torch.testing.assert_close(x.grad.data, t.grad)


def test_prelu_says_what_does_not_fit():
    x = leaf([[1.0, 2.0]])
    with pytest.raises(RuntimeError, match=r"one for each of the 2 channels.*got shape \(3,\)"):
        F.prelu(x, torch.ones(3, dtype=F64))
    with pytest.raises(RuntimeError, match="one dtype"):
        F.prelu(x, torch.ones(2))


def test_rrelu_keeps_the_slopes_it_drew():
    x = leaf([-1.0, -2.0, 3.0, -4.0])
    out = F.rrelu(x, 0.1, 0.9, training=True)
    (gradient,) = cartograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient.data, out.data / x.data)
    assert len(set(gradient.tolist())) == 4
    assert slopes(lambda x: F.rrelu(x, 0.1, 0.9), -1.0, 1.0) == [0.5, 1.0]


def test_rrelu_in_training_has_the_derivatives_of_what_it_drew():
    def function(x):
        torch.manual_seed(8)
        return F.rrelu(x, 0.1, 0.9, training=True)

    x = leaf([-1.0, -2.0, 3.0, -4.0])
    assert cartograd.gradcheck(function, x)
    assert cartograd.gradgradcheck(function, x)


def test_values_far_out_are_finite():
    far = [-1000.0, 1000.0]
    assert slopes(F.logsigmoid, *far) == [1.0, 0.0]
    assert slopes(F.softplus, *far) == [0.0, 1.0]
    assert slopes(F.mish, *far) == [0.0, 1.0]
    assert slopes(F.silu, *far) == [0.0, 1.0]
    assert slopes(torch.tanh, *far) == [0.0, 0.0]
    assert all(math.isfinite(value) for value in F.logsigmoid(leaf(far)).tolist())


@pytest.mark.parametrize("function", [F.silu, F.mish, F.hardsigmoid, F.gelu, torch.tanh, F.logsigmoid, F.softsign])
def test_third_derivatives(function):
    def second(x):
        (first,) = cartograd.grad(function(x).sum(), x, create_graph=True)
        return first * x

    assert cartograd.gradgradcheck(second, leaf([0.3, -0.7, 1.1]))


def test_glu_needs_an_even_axis():
    with pytest.raises(RuntimeError, match="must be even"):
        F.glu(leaf([1.0, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match="scalars"):
        F.glu(cartograd.tensor(1.0, requires_grad=True))


def test_hardtanh_refuses_bounds_in_the_wrong_order():
    with pytest.raises(ValueError, match="min_val cannot be greater"):
        F.hardtanh(leaf([1.0]), 1.0, -1.0)
