"""`Tensor` as a Python object, and how it mixes with torch, NumPy and numbers."""

import copy
import io
import math
import pickle

import numpy
import pytest
import torch
from torch import nn

import cartograd
from cartograd import errors


def leaf(*numbers, dtype=torch.float64):
    return cartograd.tensor(list(numbers), requires_grad=True, dtype=dtype)


# Making one


def test_data_is_shared_where_no_copy_is_needed():
    held, array = torch.ones(2), numpy.ones(2)
    assert cartograd.tensor(held).data.data_ptr() == held.data_ptr()
    x = cartograd.tensor(array)
    array[0] = 5.0
    assert x.tolist() == [5.0, 1.0]
    assert cartograd.tensor(held, dtype=torch.float64).dtype == torch.float64
    assert held.dtype == torch.float32


@pytest.mark.parametrize(
    "data", [2.5, [1, 2], [[1.0], [2.0]], (1, 2.5), numpy.float32(3), numpy.arange(3), torch.ones(2), True, 1 + 2j]
)
def test_anything_torch_takes_can_be_a_tensor(data):
    made = cartograd.tensor(data)
    assert type(made.data) is torch.Tensor
    assert torch.equal(made.data, torch.as_tensor(data))
    assert not made.requires_grad
    assert made.is_leaf


def test_it_is_no_torch_tensor_and_holds_a_plain_detached_one():
    w = nn.Parameter(torch.ones(2))
    x = cartograd.tensor(w, requires_grad=True)
    assert not isinstance(x, torch.Tensor)
    assert type(x.data) is torch.Tensor
    assert not x.data.requires_grad
    inner = cartograd.tensor(x * 2)
    assert inner.node is None


def test_what_cannot_be_a_tensor_is_refused():
    with pytest.raises(errors.UnsupportedError, match="str"):
        cartograd.tensor("text")
    with pytest.raises(errors.UnsupportedError, match="dict"):
        cartograd.tensor({})


def test_graph_attributes():
    x = leaf(1.0)
    y = x * 2
    assert (x.is_leaf, y.is_leaf) == (True, False)
    assert (x.node, y.node.name) == (None, "mul")
    assert y.requires_grad
    assert y.grad is None
    assert (y.detach().requires_grad, y.detach().node) == (False, None)
    assert y.detach().data.data_ptr() == y.data.data_ptr()


def test_requires_grad_is_switched_on_leaves_only():
    x = cartograd.tensor([1.0])
    x.requires_grad = True
    assert (x * 2).requires_grad
    x.requires_grad_(False)
    assert not (x * 2).requires_grad
    with pytest.raises(errors.LeafError, match=r"mul .*\.detach\(\)"):
        (leaf(1.0) * 2).requires_grad_(False)
    inner = leaf(1.0) * 2
    assert inner.requires_grad_() is inner
    inner.detach_()
    assert not inner.requires_grad


# Python's protocols


def test_conversions_to_python_numbers():
    x = leaf(2.5)
    assert (float(x), int(x), x.item(), bool(x), math.sqrt(x)) == (2.5, 2, 2.5, True, math.sqrt(2.5))
    assert [10, 20, 30][cartograd.tensor(1)] == 20
    assert list(range(cartograd.tensor(2))) == [0, 1]
    assert leaf(1.0, 2.0).tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(leaf(1.0, 2.0))
    with pytest.raises(TypeError):
        [0, 1][leaf(1.0)]


def test_conversion_to_a_complex_number():
    assert complex(leaf(2.5)) == 2.5 + 0j


def test_len_iter_and_membership():
    x = leaf(1.0, 2.0, 3.0)
    assert len(x) == 3
    parts = list(x)
    assert all(part.requires_grad and part.shape == () for part in parts)
    (parts[0] * 10 + parts[2]).backward()
    assert x.grad.tolist() == [10.0, 0.0, 1.0]
    first, *_ = x
    assert first.item() == 1.0
    assert 2.0 in x
    assert 7.0 not in x
    with pytest.raises(TypeError):
        len(cartograd.tensor(1.0))
    with pytest.raises(TypeError):
        iter(cartograd.tensor(1.0))


def test_repr_and_format():
    x = leaf(1.0)
    assert repr(cartograd.tensor([1.0, 2.0])) == "Tensor([1., 2.])"
    assert repr(x) == "Tensor([1.], dtype=torch.float64, requires_grad=True)"
    assert "node=mul" in repr(x * 2)
    assert f"{cartograd.tensor(2.5):.2f}" == "2.50"
    assert f"{cartograd.tensor(7):03d}" == "007"
    assert f"{x}" == str(x) == repr(x)
    with pytest.raises((TypeError, ValueError)):
        f"{cartograd.tensor([1.0, 2.0]):.2f}"


def test_hash_and_equality():
    x, y = leaf(1.0, 2.0), leaf(1.0, 3.0)
    assert {x: 1}[x] == 1
    assert len({x, y, x}) == 2
    assert (x == y).tolist() == [True, False]
    assert (x != y).tolist() == [False, True]
    assert (x == None) is False  # noqa: E711
    assert x != "text"
    assert [x < y, x <= y, x > y, x >= y][0].tolist() == [False, True]


def test_deepcopy_and_pickle_of_leaves():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    twin = copy.deepcopy({"a": x, "b": x})
    assert twin["a"] is twin["b"]
    twin = twin["a"]
    assert twin.requires_grad
    assert twin.grad.tolist() == [2.0, 4.0]
    twin.grad.data.zero_()
    twin.data.zero_()
    assert x.tolist() == [1.0, 2.0]
    assert x.grad.tolist() == [2.0, 4.0]
    loaded = pickle.loads(pickle.dumps(x))
    assert loaded.tolist() == [1.0, 2.0]
    assert loaded.requires_grad
    file = io.BytesIO()
    torch.save({"x": x.detach().data}, file)


def test_inner_tensors_are_neither_copied_nor_pickled():
    y = leaf(1.0) * 2
    with pytest.raises(errors.LeafError, match=r"\.detach\(\)\.clone\(\)"):
        copy.deepcopy(y)
    with pytest.raises(errors.LeafError, match=r"\.detach\(\)"):
        pickle.dumps(y)
    assert pickle.loads(pickle.dumps(y.detach())).item() == 2.0


def test_describing_attributes_are_torchs():
    x = cartograd.tensor(torch.ones(2, 3).t(), requires_grad=True)
    assert x.shape == torch.Size([3, 2]) == x.size()
    assert (x.ndim, x.dim(), x.numel(), x.size(0), x.stride()) == (2, 2, 6, 3, (1, 3))
    assert (x.dtype, x.device, x.is_contiguous(), x.is_cuda) == (torch.float32, torch.device("cpu"), False, False)
    assert x.T.shape == (2, 3)
    assert x.mT.requires_grad
    with pytest.raises(AttributeError):
        x.nonsense
    with pytest.raises(AttributeError):
        x.nonsense = 1


# NumPy


def test_numpy_is_refused_while_it_requires_grad_and_says_detach():
    x = leaf(1.0, 2.0)
    for call in (x.numpy, lambda: numpy.asarray(x), lambda: numpy.sqrt(x * 2), lambda: numpy.array([x, x])):
        with pytest.raises((errors.NoGradientError, RuntimeError), match=r"detach\(\)"):
            call()
    assert x.detach().numpy().tolist() == [1.0, 2.0]
    assert numpy.asarray(x.detach(), dtype=numpy.float32).dtype == numpy.float32
    assert x.numpy(force=True).tolist() == [1.0, 2.0]


def test_numpy_array_shares_memory():
    x = cartograd.tensor([1.0, 2.0])
    x.numpy()[0] = 7.0
    numpy.asarray(x)[1] = 8.0
    assert x.tolist() == [7.0, 8.0]


def test_numpy_copy_is_a_copy():
    x = cartograd.tensor([1.0, 2.0])
    copied = numpy.array(x, copy=True)
    copied[0] = 0.0
    assert x.tolist() == [1.0, 2.0]


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "@": lambda a, b: a @ b,
    "%": lambda a, b: a % b,
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["numpy", "torch", "Tensor", "Parameter"])
def test_other_kinds_of_operand_on_either_side(name, side, kind):
    data = torch.tensor([1.5, 2.5], dtype=torch.float64)
    other = {"numpy": data.numpy(), "torch": data, "Tensor": cartograd.tensor(data), "Parameter": nn.Parameter(data)}[
        kind
    ]
    operator = OPERATORS[name]
    x, t = leaf(3.0, 0.5), torch.tensor([3.0, 0.5], dtype=torch.float64, requires_grad=True)
    found = operator(x, other) if side == "left" else operator(other, x)
    expected = operator(t, data) if side == "left" else operator(data, t)
    assert type(found) is cartograd.Tensor
    torch.testing.assert_close(found.data, expected.detach())
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad.data, t.grad)
    assert kind != "Parameter" or other.grad is not None


@pytest.mark.parametrize("number", [2, 2.5, numpy.float64(2.5), numpy.float32(2.5), numpy.int64(2)], ids=repr)
@pytest.mark.parametrize("name", ["+", "-", "*", "/", "**"])
def test_numbers_on_either_side(name, number):
    operator = OPERATORS[name]
    plain = number.item() if isinstance(number, numpy.generic) else number
    for call, reference in (
        (lambda x: operator(x, number), lambda x: operator(x, plain)),
        (lambda x: operator(number, x), lambda x: operator(plain, x)),
    ):
        x, t = leaf(3.0, 0.5), torch.tensor([3.0, 0.5], dtype=torch.float64, requires_grad=True)
        found, expected = call(x), reference(t)
        assert type(found) is cartograd.Tensor
        assert found.dtype == torch.float64
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad.data, t.grad)


def test_unary_and_rounding_operators():
    x = leaf(-1.5, 2.5)
    assert (-x).tolist() == [1.5, -2.5]
    assert (+x).tolist() == [-1.5, 2.5]
    assert abs(x).tolist() == [1.5, 2.5]
    assert (x // 1).tolist() == [-2.0, 2.0]
    assert (~cartograd.tensor([True, False])).tolist() == [False, True]
    assert (cartograd.tensor([6]) & 3).tolist() == [2]
    assert (1 << cartograd.tensor([3])).tolist() == [8]


def test_operands_that_fit_nothing_raise_type_errors():
    with pytest.raises(TypeError):
        leaf(1.0) + "text"
    with pytest.raises(TypeError):
        [] * leaf(1.0)


# Torch's own graphs


def test_gradient_flows_on_into_torchs_graph():
    w = nn.Parameter(torch.tensor([2.0, 3.0], dtype=torch.float64))
    hidden = w * w
    x = leaf(1.0, 10.0)
    (x * hidden).sum().backward()
    assert x.grad.tolist() == [4.0, 9.0]
    assert w.grad.tolist() == [4.0, 60.0]


def test_several_tensors_of_one_torch_graph():
    w = nn.Parameter(torch.tensor([2.0, 3.0], dtype=torch.float64))
    hidden = w * w
    one, other = hidden.exp(), hidden.sin()
    x = leaf(1.0, 10.0)
    (x * one + x * other + hidden * x).sum().backward()
    found, w.grad = w.grad, None
    data = x.data
    hidden = w * w
    (data * hidden.exp() + data * hidden.sin() + hidden * data).sum().backward()
    torch.testing.assert_close(found, w.grad)


def test_graph_of_torch_is_kept_as_ours_is():
    w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    hidden = w.exp()
    loss = (leaf(1.0) * hidden).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad.item() == pytest.approx(2 * math.exp(2.0))


def test_plain_leaf_of_torch_gets_its_gradient():
    t = torch.tensor([2.0], requires_grad=True)
    (cartograd.tensor([3.0]) * t).sum().backward()
    assert t.grad.tolist() == [3.0]
    (found,) = cartograd.grad((cartograd.tensor([3.0]) * t).sum(), [t])
    assert found.tolist() == [3.0]


def test_recorded_gradient_into_torchs_graph_is_refused_not_cut():
    w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    x = leaf(3.0)
    loss = (x * x * w.exp()).sum()
    with pytest.raises(errors.NotTwiceDifferentiableError):
        loss.backward(create_graph=True)
