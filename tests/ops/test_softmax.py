"""Stability, dtypes and implicit axes of ops/softmax.py."""

import math

import pytest
import torch
import torch.nn.functional as F

import cartograd

F64 = torch.float64


def leaf(values, dtype=F64):
    return cartograd.tensor(torch.tensor(values, dtype=dtype), requires_grad=True)


def test_log_softmax_has_no_floor():
    x = leaf([0.0, -200.0])
    out = torch.log_softmax(x, 0)
    assert out.tolist() == [0.0, -200.0]
    (gradient,) = cartograd.grad(out[1], x)
    assert gradient.tolist() == [-1.0, 1.0]


def test_large_inputs_stay_finite():
    x = leaf([1e4, 0.0, -1e4])
    for function in (torch.softmax, torch.log_softmax):
        out = function(x, 0)
        assert all(map(math.isfinite, out.tolist()))
        assert all(map(math.isfinite, cartograd.grad(out.sum(), x)[0].tolist()))


def test_every_spelling_is_ours():
    x = leaf([[1.0, 2.0]])
    for out in (torch.softmax(x, -1), x.softmax(dim=-1), F.softmax(x, -1), F.softmax(x, 1, 3), x.softmax(axis=1)):
        assert out.node.name == "softmax"
    for out in (torch.log_softmax(x, -1), x.log_softmax(-1), F.log_softmax(x, dim=1), torch.special.log_softmax(x, 1)):
        assert out.node.name == "log_softmax"
    assert F.softmin(x, 1).tolist() == F.softmax(-x, 1).tolist()


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.softmin])
def test_dtype_is_that_of_the_computation(function):
    x = leaf([[1.0, 2.0, 0.5]], dtype=torch.bfloat16)
    out = function(x, dim=1, dtype=torch.float32)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.data, function(x.data, dim=1, dtype=torch.float32))
    (gradient,) = cartograd.grad(out[0, 0], x)
    assert gradient.dtype == torch.bfloat16


def test_only_the_output_is_kept():
    out = torch.softmax(leaf([1.0, 2.0]), 0)
    tensors = [value for value in out.node.saved if isinstance(value, torch.Tensor)]
    assert len(tensors) == 1
    assert tensors[0] is out.data


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.softmin])
def test_an_axis_left_out_is_chosen_with_a_warning_at_the_callers_line(function):
    for shape, axis in (((3,), 0), ((2, 3), 1), ((2, 3, 2), 0)):
        x = cartograd.tensor(torch.ones(shape).cumsum(0), requires_grad=True)
        with pytest.warns(UserWarning, match=f"axis {axis} was taken") as caught:
            out = function(x)
        assert caught[0].filename == __file__
        torch.testing.assert_close(out.data, function(x.data, axis))


def test_zero_dimensional_and_empty():
    x = cartograd.tensor(torch.tensor(3.0, dtype=F64), requires_grad=True)
    out = torch.softmax(x, 0)
    assert out.item() == 1.0
    out.backward()
    assert x.grad.item() == 0.0
    empty = cartograd.tensor(torch.empty(0, 3), requires_grad=True)
    torch.softmax(empty, 1).sum().backward()
    assert empty.grad.shape == (0, 3)


def test_masked_rows():
    x = leaf([[0.0, -math.inf, 1.0]])
    out = torch.softmax(x, 1)
    (gradient,) = cartograd.grad(out[0, 2], x)
    assert gradient.tolist()[0][1] == 0.0
    assert out.tolist()[0][1] == 0.0
