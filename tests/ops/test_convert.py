"""Conversions: what changes is recorded and undone for the gradient; what does not is the very same tensor."""

import pytest
import torch

import cartograd

F64, F32 = torch.float64, torch.float32


def leaf(*values, dtype=F64):
    return cartograd.tensor(torch.tensor(values, dtype=dtype), requires_grad=True)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: x.to(F32), F32),
        (lambda x: x.to("cpu", F32), F32),
        (lambda x: x.to(dtype=F32), F32),
        (lambda x: x.to(torch.device("cpu"), F32, False, True), F32),
        (lambda x: x.to(F32, False, True), F32),
        (lambda x: x.to(F32, memory_format=torch.contiguous_format), F32),
        (lambda x: x.to(torch.zeros(1, dtype=F32)), F32),
        (lambda x: x.to(cartograd.tensor([1.0], dtype=F32)), F32),
        (lambda x: x.type_as(torch.zeros(1, dtype=torch.float16)), torch.float16),
        (lambda x: x.float(), F32),
        (lambda x: x.half(), torch.float16),
        (lambda x: x.bfloat16(), torch.bfloat16),
    ],
)
def test_another_dtype(call, dtype):
    x = leaf(1.0, 2.0)
    out = call(x)
    assert out.dtype == dtype
    assert out.node.name == "convert"
    assert out.node.saved[0] == (torch.device("cpu"), F64)  # no tensor is kept
    (gradient,) = cartograd.grad((out * out).sum(), x)
    assert gradient.dtype == F64
    assert gradient.tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to(F64),
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.device("cpu"), None),
        lambda x: x.to(x),
        lambda x: x.to(),
        lambda x: x.double(),
        lambda x: x.cpu(),
        lambda x: x.type_as(x),
        lambda x: x.to(memory_format=torch.contiguous_format),
        lambda x: +x,
        lambda x: torch.positive(x),
    ],
)
def test_nothing_to_do_gives_the_same_tensor(call):
    x = leaf(1.0, 2.0)
    assert call(x) is x


@pytest.mark.parametrize("call", [lambda x: x.to(F64, copy=True), lambda x: x.clone(), lambda x: torch.clone(x)])
def test_copies_have_memory_of_their_own(call):
    x = leaf(1.0, 2.0)
    out = call(x)
    assert out.data.data_ptr() != x.data.data_ptr()
    out.backward(torch.tensor([3.0, 4.0], dtype=F64))
    assert x.grad.tolist() == [3.0, 4.0]


def test_whole_numbers_are_outside_the_graph():
    x = leaf(1.5, -2.5)
    for out in (x.to(torch.int64), x.long(), x.int(), x.bool()):
        assert not out.requires_grad
    assert x.to(torch.int64).tolist() == [1, -2]
    assert cartograd.tensor([1, 2]).float().dtype == F32


def test_complex_goes_through_torch():
    x = leaf(1.0, 2.0)
    out = x.to(torch.complex128)
    assert out.dtype == torch.complex128
    assert cartograd.grad((out * 1j).imag.sum(), x)[0].tolist() == [1.0, 1.0]


def test_order_of_memory():
    x = cartograd.tensor(torch.rand(2, 3, 4, 5), requires_grad=True)
    out = x.to(memory_format=torch.channels_last)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert out.to(memory_format=torch.channels_last) is out
    assert x.clone(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    out.sum().backward()
    assert x.grad.data.eq(1).all()


def test_a_parameter_converted_beside_a_tensor_keeps_its_gradient():
    weight = torch.nn.Parameter(torch.ones(2))
    x = leaf(1.0, 2.0)
    (x * weight).sum().backward()
    assert weight.grad.dtype == F32
    assert weight.grad.tolist() == [1.0, 2.0]


def test_conversions_can_be_differentiated_twice():
    x = leaf(3.0, dtype=F32)
    (first,) = cartograd.grad(x.double() ** 3, x, create_graph=True)
    assert first.dtype == F32
    assert cartograd.grad(first, x)[0].tolist() == [18.0]
