"""ops/dropout.py: the mask of the forward is the mask of the gradient, and the same as torch draws."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd
from cartograd.engine.fallback import TorchPlan

F64 = torch.float64
SHAPES = {
    F.dropout: (5, 8),
    F.alpha_dropout: (5, 8),
    F.feature_alpha_dropout: (3, 8, 2),
    F.dropout1d: (3, 8, 2),
    F.dropout2d: (3, 8, 2, 2),
    F.dropout3d: (2, 8, 2, 1, 2),
}
each = pytest.mark.parametrize("function", SHAPES, ids=lambda f: f.__name__)


def leaf(shape):
    print("seed 6")
    raw = torch.rand(shape, dtype=F64, generator=torch.Generator().manual_seed(6)) + 0.5
    return cartograd.tensor(raw, requires_grad=True)


@each
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_same_seed_same_mask_as_torch(function, p):
    x = leaf(SHAPES[function])
    t = x.data.clone().requires_grad_()
    results = []
    for one in (x, t):
        torch.manual_seed(9)
        results.append(function(one, p, training=True))
    assert not isinstance(results[0].node.plan, TorchPlan)
    torch.testing.assert_close(results[0].data, results[1].detach())
    seed = torch.randn(t.shape, dtype=F64)
    results[0].backward(seed)
    results[1].backward(seed)
    torch.testing.assert_close(x.grad.data, t.grad)


@each
def test_derivatives_of_both_orders(function):
    def repeated(x):
        torch.manual_seed(9)
        return function(x, 0.4, training=True)

    small = leaf(tuple(min(size, 4) for size in SHAPES[function])[:4] + SHAPES[function][4:])
    assert cartograd.gradcheck(repeated, small)
    assert cartograd.gradgradcheck(repeated, small)


@each
def test_nothing_dropped_gives_the_same_tensor(function):
    x = leaf(SHAPES[function])
    assert function(x, 0.5, training=False) is x
    assert function(x, 0.0, training=True) is x


@each
def test_wrong_probability(function):
    with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
        function(leaf(SHAPES[function]), 1.5)


@each
def test_in_place(function):
    x = leaf(SHAPES[function])
    inner = x + 0.0
    torch.manual_seed(9)
    out = function(inner, 0.4, True, True)
    assert out is inner
    torch.manual_seed(9)
    torch.testing.assert_close(out.data, function(x.data, 0.4, True))
    out.sum().backward()
    torch.manual_seed(9)
    (expected,) = cartograd.grad(function(x, 0.4, True).sum(), x)
    torch.testing.assert_close(x.grad.data, expected.data)


def test_a_new_mask_every_time_and_the_mean_is_kept():
    x = cartograd.tensor(torch.ones(20000), requires_grad=True)
    torch.manual_seed(2)
    first, second = F.dropout(x, 0.25), F.dropout(x, 0.25)
    assert (first.data != second.data).any()
    assert first.data.mean().item() == pytest.approx(1.0, abs=0.02)
    (gradient,) = cartograd.grad(first.sum(), x)
    torch.testing.assert_close(gradient.data, first.data)


def test_the_mask_takes_one_byte_an_element():
    out = F.dropout(cartograd.tensor(torch.ones(100), requires_grad=True))
    masks = [value for value in out.node.saved if isinstance(value, torch.Tensor)]
    assert [mask.dtype for mask in masks] == [torch.bool]


@pytest.mark.parametrize(
    "call", [lambda x: torch.dropout(x, 0.5, True), lambda x: torch.feature_dropout(x, 0.5, True)]
    + [lambda x: torch.alpha_dropout(x, 0.5, True), lambda x: torch.feature_alpha_dropout(x, 0.5, True)]
    + [nn.Dropout(), nn.AlphaDropout(), nn.FeatureAlphaDropout()],
)  # fmt: skip
def test_other_spellings_are_ours(call):
    assert not isinstance(call(leaf((3, 4, 2))).node.plan, TorchPlan)


@pytest.mark.parametrize("name", ["dropout_", "feature_dropout_", "alpha_dropout_", "feature_alpha_dropout_"])
def test_in_place_functions(name):
    x = leaf((3, 4, 2))
    inner = x + 0.0
    torch.manual_seed(9)
    assert getattr(torch, name)(inner, 0.4, True) is inner
    inner.sum().backward()
    t = x.data.clone().requires_grad_()
    torch.manual_seed(9)
    expected = getattr(torch, name)(t + 0.0, 0.4, True)
    torch.testing.assert_close(inner.data, expected.detach())
    expected.sum().backward()
    torch.testing.assert_close(x.grad.data, t.grad)


def test_unbatched_channels():
    for function, shape in ((F.dropout1d, (50, 3)), (F.dropout3d, (50, 3, 2, 2))):
        torch.manual_seed(1)
        out = function(leaf(shape), 0.5).data.flatten(1)
        dropped = out.eq(0).all(1)
        assert 0 < dropped.sum() < 50
        assert out[~dropped].ne(0).all()


def test_unusual_shapes_warn_as_in_torch():
    with pytest.warns(UserWarning, match=r"dropout2d: expected an input \(N, C, H, W\)") as caught:
        F.dropout2d(leaf((3, 4, 2)))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="dropout3d: expected"):
        F.dropout3d(leaf((3, 4, 2)))
    with pytest.raises(RuntimeError, match=r"dropout1d: expected an input .* got shape \(4,\)"):
        F.dropout1d(leaf((4,)))
    with pytest.raises(RuntimeError, match="at least 2 axes"):
        F.feature_alpha_dropout(leaf((4,)), training=True)


def test_low_precision_is_kept():
    x = cartograd.tensor(torch.ones(64, dtype=torch.bfloat16), requires_grad=True)
    for function in (F.dropout, F.alpha_dropout):
        out = function(x, 0.5, training=True)
        assert out.dtype == torch.bfloat16
        assert cartograd.grad(out.sum(), x)[0].dtype == torch.bfloat16
