"""The corners of pow: 0 to the power 0, negative bases, numbers on either side, second derivatives there."""

import math

import numpy
import pytest
import torch

import cartograd

F64 = torch.float64
BASES = [0.0, 0.0, 0.0, 0.0, -2.0, -2.0, 2.0, math.nan, math.nan, 1e-320, math.inf]
EXPONENTS = [0.0, 1.0, 2.0, -1.0, 3.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0]


def leaf(values):
    return cartograd.tensor(torch.tensor(values, dtype=F64), requires_grad=True)


def test_tensor_to_tensor_has_torchs_masks():
    x, e = leaf(BASES), leaf(EXPONENTS)
    tx, te = x.data.clone().requires_grad_(), e.data.clone().requires_grad_()
    mine = cartograd.grad((x**e).sum(), [x, e])
    other = torch.autograd.grad((tx**te).sum(), [tx, te])
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one.data, two, equal_nan=True)
    assert mine[0].tolist()[0] == mine[1].tolist()[0] == 0.0


def test_whole_exponents_of_negative_bases_are_exact():
    x = leaf([-2.0])
    for exponent in (3, 3.0, torch.tensor([3.0], dtype=F64), torch.tensor([3])):
        out = x**exponent
        assert out.tolist() == [-8.0]
        assert cartograd.grad(out, x)[0].tolist() == [12.0]


@pytest.mark.parametrize("base", [0.0, 2.0, -2.0, 3])
def test_number_to_tensor(base):
    e = leaf([0.0, 1.0, -1.0, 0.5])
    t = e.data.clone().requires_grad_()
    torch.testing.assert_close(
        cartograd.grad((base**e).sum(), e)[0].data,
        torch.autograd.grad((base**t).sum(), t)[0],
        equal_nan=True,
    )


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -1, True, numpy.float32(2), numpy.float64(0.5), numpy.int64(3)])
def test_tensor_to_number(exponent):
    x = leaf([0.0, 1.0, 2.0])
    t = x.data.clone().requires_grad_()
    torch.testing.assert_close(
        cartograd.grad((x**exponent).sum(), x)[0].data, torch.autograd.grad((t**exponent).sum(), t)[0]
    )


def test_integer_base_loses_no_precision():
    e = leaf([2.5])
    out = torch.pow(torch.tensor([3]), e)
    assert cartograd.grad(out, e)[0].item() == pytest.approx(3**2.5 * math.log(3), rel=1e-15)


def test_second_derivatives_at_exponent_zero():
    x, e = leaf([2.0, 0.0]), leaf([0.0, 0.0])
    (first,) = cartograd.grad((x**e).sum(), x, create_graph=True)
    by_x, by_e = cartograd.grad(first.sum(), [x, e])
    assert by_x.tolist() == [0.0, 0.0]
    assert by_e.tolist()[0] == 0.5  # d/de of e * x^(e - 1) is 1 / x


@pytest.mark.parametrize("exponent", [0, 1, 2])
def test_second_derivative_of_whole_powers_at_zero(exponent):
    x = leaf([0.0])
    (first,) = cartograd.grad(x**exponent + x * x, x, create_graph=True)
    assert cartograd.grad(first, x)[0].tolist() == [4.0 if exponent == 2 else 2.0]


def test_spellings_and_keywords():
    x = leaf([2.0])
    for out in (x**2, torch.pow(x, 2), x.pow(2), x.pow(exponent=2), torch.pow(input=x, exponent=2)):
        assert out.node.name == "pow"
        assert out.tolist() == [4.0]
