"""What OpInfo leaves open of ops/special.py."""

import math

import pytest
import torch

import cartograd

F64 = torch.float64


def leaf(*values):
    return cartograd.tensor(torch.tensor(values, dtype=F64), requires_grad=True)


def test_sinc_has_all_its_derivatives_at_zero():
    x = leaf(0.0)
    (first,) = cartograd.grad(torch.sinc(x), x, create_graph=True)
    (second,) = cartograd.grad(first, x, create_graph=True)
    (third,) = cartograd.grad(second, x, create_graph=True)
    (fourth,) = cartograd.grad(third, x)
    assert first.item() == 0.0
    assert second.item() == pytest.approx(-(math.pi**2) / 3, rel=1e-14)
    assert third.item() == 0.0
    assert fourth.item() == pytest.approx(math.pi**4 / 5, rel=1e-13)


def test_sinc_series_and_formula_agree_where_they_meet():
    edge = 0.3 / math.pi
    x = leaf(edge * (1 - 1e-13), edge * (1 + 1e-13))
    below, above = cartograd.grad(torch.sinc(x).sum(), x)[0].tolist()
    assert below == pytest.approx(above, rel=1e-12)


def test_sinc_is_exact_near_zero():
    x = leaf(1e-5)
    assert cartograd.grad(torch.sinc(x), x)[0].item() == pytest.approx(-(math.pi**2) * 1e-5 / 3, rel=1e-9)


def test_xlogy_at_zero():
    x, y = leaf(0.0, 0.0, 2.0), leaf(0.0, -1.0, 3.0)
    gx, gy = cartograd.grad(torch.xlogy(x, y).sum(), [x, y])
    assert gx.tolist() == [0.0, 0.0, math.log(3.0)]
    assert math.isnan(gy.tolist()[0])  # 0 / 0, as in torch
    assert gy.tolist()[1:] == [-0.0, 2 / 3]


def test_xlogy_with_numbers():
    x = leaf(0.0, 2.0)
    assert cartograd.grad(torch.xlogy(x, 3.0).sum(), x)[0].tolist() == [math.log(3.0)] * 2
    assert cartograd.grad(torch.xlogy(x, -1.0)[:1].sum(), x)[0].tolist()[0] == 0.0
    assert cartograd.grad(torch.special.xlogy(3.0, x).sum(), x)[0].tolist() == [math.inf, 1.5]


def test_logaddexp_of_far_apart_numbers():
    x, y = leaf(1000.0, -1000.0), leaf(-1000.0, 1000.0)
    out = torch.logaddexp(x, y)
    assert out.tolist() == [1000.0, 1000.0]
    (first,) = cartograd.grad(out.sum(), x, create_graph=True)
    assert first.tolist() == [1.0, 0.0]
    assert cartograd.grad(first.sum(), x)[0].tolist() == [0.0, 0.0]


def test_polygamma_as_function_and_as_method():
    x = leaf(1.5)
    functions = (torch.polygamma(1, x), torch.special.polygamma(1, x), x.polygamma(1), x.polygamma(n=1))
    for out in functions:
        assert out.node.name == "polygamma"
        assert cartograd.grad(out, x)[0].item() == pytest.approx(torch.polygamma(2, x.data).item())


def test_other_names():
    x = leaf(0.5)
    assert torch.special.psi(x).node.name == "digamma"
    assert torch.special.gammaln(x).node.name == "lgamma"
    assert torch.special.expit(x).node.name == "sigmoid"
    assert torch.special.logit(x).node.name == "logit"


def test_logit_outside_its_domain():
    x = leaf(-1.0, 0.0, 0.1, 0.5, 0.9, 1.0, 2.0)
    plain = cartograd.grad(torch.logit(x).sum(), x)[0].tolist()
    assert math.isnan(plain[0])
    assert math.isnan(plain[-1])
    assert plain[1] == plain[5] == math.inf
    bounded = cartograd.grad(torch.logit(x, eps=0.1).sum(), x)[0].tolist()
    assert bounded[:2] == bounded[5:] == [0.0, 0.0]
    assert bounded[2] == pytest.approx(1 / 0.09)
    assert bounded[3] == 4.0


def test_erfinv_at_the_ends():
    x = leaf(-1.0, 0.0, 1.0)
    gradient = cartograd.grad(torch.erfinv(x).sum(), x)[0].tolist()
    assert gradient == [math.inf, math.sqrt(math.pi) / 2, math.inf]
