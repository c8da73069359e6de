"""Kinks, NaN and bounds of every kind in ops/bounds.py."""

import math

import pytest
import torch

import cartograd

F64 = torch.float64
NAN = math.nan


def leaf(values, dtype=F64):
    return cartograd.tensor(torch.tensor(values, dtype=dtype), requires_grad=True)


def same_as_torch(function, *values):
    ours = [leaf(one) for one in values]
    theirs = [torch.tensor(one, dtype=F64, requires_grad=True) for one in values]
    out, expected = function(*ours), function(*theirs)
    torch.testing.assert_close(out.data, expected.detach(), equal_nan=True)
    found = cartograd.grad(out.sum(), ours)
    wanted = torch.autograd.grad(expected.sum(), theirs)
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.data, other, rtol=0, atol=0, equal_nan=True)
    return [one.tolist() for one in found]


LINE = [-2.0, -1.0, 0.0, 1.0, 2.0, NAN]


@pytest.mark.parametrize("bounds", [(-1, 1), (-1.0, None), (None, 1), (1, -1), (0.5, 0.5)])
def test_clamp_to_numbers(bounds):
    (gradient,) = same_as_torch(lambda x: x.clamp(*bounds), LINE)
    if bounds == (-1, 1):
        assert gradient == [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]  # the bounds themselves pass the gradient


def test_clamp_to_tensors():
    low = [-1.0] * 6 + [NAN, -1, 1, 1, 1, 1, 1, 1]
    high = [1.0] * 7 + [NAN, -1, -1, -1, -1, 1, 1]
    x = [*LINE, 0.0, 0.0, -2.0, 2.0, 0.0, NAN, 1.0, 0.0]
    same_as_torch(lambda x, a, b: x.clamp(a, b), x, low, high)
    same_as_torch(lambda x, a: x.clamp(min=a), x, low)
    same_as_torch(lambda x, b: x.clamp(max=b), x, high)
    same_as_torch(lambda x, a: x.clamp_min(a), x, low)
    same_as_torch(lambda x, b: torch.clamp_max(x, b), x, high)


def test_clamp_broadcasts_its_bounds():
    x, low = leaf([[-2.0, 0.0], [1.0, -3.0]]), leaf([-1.0, -1.0])
    gx, glow = cartograd.grad(torch.clip(x, low).sum(), [x, low])
    assert gx.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert glow.tolist() == [1.0, 1.0]


def test_clamp_spellings():
    x = leaf([0.5])
    for out in (x.clamp(0, 1), torch.clamp(x, min=0), x.clip(max=1), torch.clamp_min(x, 0), x.clamp_max(max=1)):
        assert out.node.name == "clamp"
    with pytest.raises(RuntimeError, match="At least one of"):
        x.clamp()


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_ties_and_nan(name):
    x, y = [1.0, 1.0, 0.0, NAN, 0.0, NAN], [1.0, 0.0, 1.0, 0.0, NAN, NAN]
    gx, gy = same_as_torch(getattr(torch, name), x, y)
    assert (gx[0], gy[0]) == ((0.5, 0.5) if name.startswith("m") else (1.0, 0.0))


@pytest.mark.parametrize("name", ["sign", "sgn", "floor", "ceil", "trunc", "fix", "round"])
def test_steps_are_flat_but_connected(name):
    x = leaf([-1.5, 0.0, 0.4, 2.5])
    out = getattr(torch, name)(x)
    assert out.requires_grad
    out.sum().backward()
    assert x.grad.tolist() == [0.0] * 4


def test_steps_are_flat_even_under_an_infinite_gradient():
    x = leaf([0.4, 0.6])
    out = torch.round(x)
    out.backward(torch.tensor([math.inf, NAN], dtype=F64))
    assert x.grad.tolist() == [0.0, 0.0]


def test_steps_can_be_differentiated_twice():
    x = leaf([2.4])
    (first,) = cartograd.grad(torch.floor(x) * x, x, create_graph=True)
    assert first.tolist() == [2.0]
    assert cartograd.grad(first, x)[0].tolist() == [0.0]


def test_round_to_decimals():
    x = leaf([1.2345])
    assert x.round(decimals=2).tolist() == [1.23]
    assert torch.round(x, decimals=2).node.name == "round"


def test_nan_to_num_passes_only_finite_elements():
    x = leaf([NAN, math.inf, -math.inf, 2.0])
    out = torch.nan_to_num(x, nan=7.0, posinf=8.0)
    assert out.tolist()[:2] == [7.0, 8.0]
    assert cartograd.grad(out.sum(), x)[0].tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_kept(dtype):
    x, y, z = leaf([0.5, 1.5], dtype), leaf([1.0, 1.0], dtype), leaf([2.0, 2.0], dtype)
    wide = torch.tensor(0.7, dtype=F64)
    calls = [torch.clamp(x, y, z), x.clamp(0, 1), x.clamp(min=wide), torch.maximum(x, y), torch.maximum(x, wide)]
    calls += [torch.fmin(x, y), torch.fmax(x, wide), torch.floor(x), torch.nan_to_num(x)]
    for out in calls:
        assert out.dtype == dtype
        found = cartograd.grad(out.sum(), [x, y, z], allow_unused=True)
        assert all(one is None or one.dtype == dtype for one in found)
