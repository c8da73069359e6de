"""Brackets with everything that torch takes, writing through them, and reads by index or mask."""

import operator

import numpy
import pytest
import torch
from parity import agree, randn

import cartograd

SHAPE = (3, 4, 5)
MASK = torch.tensor([True, False, True])
LONG = torch.tensor([2, 0, 2])
BASIC = [
    0,
    -1,
    slice(None),
    slice(1, 3),
    slice(None, None, 2),
    None,
    ...,
    (),
    (0, 1, 2),
    (0, slice(None), 3),
    (..., 0),
    (slice(0, 2), ..., slice(1, 4)),
    (None, 0, None, ..., None),
    (slice(3, 3),),
    numpy.int64(1),
    torch.tensor(1),
    (slice(None), torch.tensor(-1)),
]
ADVANCED = [
    LONG,
    -LONG,
    LONG.int(),
    torch.tensor([[0, 1], [2, 2]]),
    torch.tensor([], dtype=torch.int64),
    [0, 2, 2],
    ([[0, 1], [2, 2]],),
    [],
    numpy.array([2, 1]),
    MASK,
    [True, False, True],
    numpy.array([True, False, True]),
    torch.ones(SHAPE[:2], dtype=torch.bool),
    torch.arange(60).reshape(SHAPE) % 3 == 0,
    torch.zeros(SHAPE, dtype=torch.bool),
    True,
    False,
    torch.tensor(True),
    (LONG, LONG),
    (LONG, [1, 1, 0]),
    (LONG.reshape(3, 1), torch.tensor([1, 3])),
    (slice(None), LONG),
    (..., LONG),
    (slice(0, 2), slice(None), LONG),
    (LONG, slice(None), LONG),
    (LONG, ..., LONG),
    (0, LONG),
    (LONG, 0),
    (0, slice(None), LONG),
    (LONG, None, 1),
    (None, LONG, ..., None),
    (slice(None), torch.tensor([True, False, True, False])),
    (torch.ones(3, 4, dtype=torch.bool), 1),
    (MASK, torch.tensor([0, 1])),
    (slice(None), torch.ones(4, 5, dtype=torch.bool)),
    (True, LONG),
    (slice(1, 3), True),
]


def name(index):
    return str(index).replace("\n", "")[:60]


@pytest.mark.parametrize("index", BASIC + ADVANCED, ids=name)
def test_brackets(index):
    agree(lambda x: (x * 1)[index], randn(*SHAPE))


def ours(index):
    if isinstance(index, torch.Tensor):
        return cartograd.tensor(index)
    return tuple(map(ours, index)) if isinstance(index, tuple) else index


@pytest.mark.parametrize("index", [LONG, MASK, torch.tensor(1), (0, LONG), (LONG, ..., LONG), (None, MASK)], ids=name)
def test_an_index_of_ours(index):
    x = cartograd.tensor(randn(*SHAPE), requires_grad=True)
    result = x[ours(index)]
    torch.testing.assert_close(result.data, x.data[index])
    result.sum().backward()
    expected = x.data.clone().requires_grad_()
    expected[index].sum().backward()
    torch.testing.assert_close(x.grad.data, expected.grad)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # torch warns before it asks us
def test_a_plain_tensor_indexed_by_ours():
    parameter, index = torch.nn.Parameter(randn(4, 2)), cartograd.tensor(torch.tensor([1, 1]))
    result = parameter[index]
    torch.testing.assert_close(result.data, parameter.detach()[index.data])
    (result.sum() + torch.index_select(parameter, 0, index).sum()).backward()
    assert parameter.grad.tolist() == [[0, 0], [4, 4], [0, 0], [0, 0]]


@pytest.mark.parametrize("index", [(0, slice(1, 3)), (LONG, slice(None), LONG), LONG, (MASK, 1), (None, 0)], ids=name)
def test_second_derivatives(index):
    x = cartograd.tensor(randn(3, 2, 3), requires_grad=True)
    assert cartograd.gradgradcheck(lambda x: (x * x * x)[index], x)


def test_basic_indices_give_views_and_advanced_ones_copies():
    x = cartograd.tensor(randn(3, 4), requires_grad=True)
    assert x[1].data.data_ptr() == x.data[1].data_ptr()
    assert x[:, 1:].data._is_view()
    assert not x[LONG].data._is_view()


def test_rows_read_twice_get_both_gradients():
    x = cartograd.tensor(torch.zeros(3, 2), requires_grad=True)
    x[torch.tensor([1, 1, -2, 0])].sum().backward()
    assert x.grad.data[:, 0].tolist() == [1, 3, 0]


@pytest.mark.parametrize("index", [5, (0, 0, 0), torch.tensor([0, 3]), torch.tensor([-4]), torch.ones(4) > 0, 1.5, "a"])
def test_bad_indices_are_refused(index):
    x = cartograd.tensor(randn(3, 2), requires_grad=True)
    with pytest.raises((IndexError, TypeError)):
        x[index]


def test_an_index_changed_after_its_use_is_noticed():
    for index in (torch.tensor([0, 1]), torch.tensor([[0], [1]])):
        x = cartograd.tensor(randn(3, 2), requires_grad=True)
        y = x[index]
        index.add_(1)
        with pytest.raises(cartograd.errors.InplaceError):
            y.sum().backward()


def test_iteration_and_unpacking():
    x = cartograd.tensor(torch.tensor([1.0, 2.0]), requires_grad=True)
    first, second = x
    (first * 3 + second).backward()
    assert x.grad.tolist() == [3, 1]


def test_nothing_is_recorded_without_need():
    assert not cartograd.tensor(randn(3))[0].requires_grad
    with torch.no_grad():
        assert not cartograd.tensor(randn(3), requires_grad=True)[LONG].requires_grad


WRITES = [0, slice(0, 2), (slice(None), 1), LONG[:2], MASK, (slice(None), torch.tensor([0, 2])), (..., None, 0), ...]


@pytest.mark.parametrize("index", WRITES, ids=name)
def test_writing_through_brackets(index):
    def write(x, value):
        changed = x * 1
        changed[index] = value
        return changed

    x = randn(3, 4)
    agree(write, x, randn(*x[index].shape, seed=1), own=False)
    agree(write, x, randn(seed=1), own=False)
    agree(lambda x: write(x, 2.0), x, own=False)


def test_writing_by_an_index_of_ours():
    x = cartograd.tensor(randn(3), requires_grad=True)
    y = x * 2
    y[cartograd.tensor(torch.tensor([0, 2]))] = 0
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 0]


def test_writing_where_another_tensor_looks_is_refused():
    base = cartograd.tensor(randn(3, 2), requires_grad=True) * 1
    view = base[0]
    with pytest.raises(cartograd.errors.InplaceError, match="shares"):
        view[0] = 1.0
    with pytest.raises(cartograd.errors.InplaceError, match="shares"):
        base[0] = 1.0
    leaf = cartograd.tensor(randn(3), requires_grad=True)
    with pytest.raises(cartograd.errors.InplaceError, match="leaf"):
        leaf[0] = 1.0


def test_reads_by_index_with_indices_of_ours():
    two = torch.tensor([[0, 1], [2, 2]])
    agree(lambda x, i: torch.gather(x, 0, i), randn(3, 2), two)
    agree(lambda x, i: x.gather(1, i), randn(2, 3), two)
    agree(lambda x, i: torch.index_select(x, 1, i), randn(2, 3), LONG)
    agree(lambda x, i: x.take(i), randn(2, 3), two)
    agree(lambda x, i: torch.take_along_dim(x, i, 1), randn(1, 3), two)
    agree(lambda x, i: torch.take_along_dim(x, i), randn(2, 3), two)
    agree(lambda x, m: x.masked_select(m), randn(2, 3), MASK)
    agree(lambda x, i: torch.index_select(x, 0, i), randn(), torch.tensor([0]))


def test_gather_with_an_index_smaller_than_the_input():
    agree(lambda x, i: torch.gather(x, 1, i), randn(3, 4, 5), torch.tensor([[[3, 0], [1, 1]]]))


def test_a_sparse_gradient_of_gather_is_torchs():
    x = cartograd.tensor(randn(3, 2), requires_grad=True)
    out = torch.gather(x, 0, torch.tensor([[0, 1]]), sparse_grad=True)
    assert cartograd.trace(out).nodes[0].name == "gather"
    assert cartograd.grad(out.sum(), x)[0].data.to_dense().sum() == 2


def test_where_spellings():
    other = randn(3, seed=1)
    agree(lambda x, y: torch.where(MASK, x, y), randn(2, 3), other)
    agree(lambda x, y: x.where(MASK, y), randn(2, 3), other)
    agree(lambda x: torch.where(MASK, x, 0.0), randn(2, 3))
    agree(lambda y: torch.where(MASK, 1.0, y), randn(2, 3))
    agree(lambda x, y: torch.where(MASK, x, y), randn(3, dtype=torch.float32), other)
    agree(lambda x, c: torch.where(c, x, 0.0), randn(3), MASK)


def test_where_with_the_condition_alone():
    (places,) = torch.where(cartograd.tensor(MASK))
    assert places.tolist() == [0, 2]


def test_where_keeps_nan_of_the_other_side_out():
    x = cartograd.tensor(torch.tensor([0.0, 4.0]), requires_grad=True)
    torch.where(x > 0, x, 0.0).sum().backward()
    assert x.grad.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_keep_the_dtype(dtype):
    for index in (0, LONG, MASK, (LONG, 0)):
        assert agree(operator.itemgetter(index), randn(3, 2, dtype=dtype))[0].dtype is dtype


def test_what_counts_is_no_function_of_the_values():
    x = cartograd.tensor(torch.tensor([1.0, 3.0]), requires_grad=True)
    assert not torch.bucketize(x, torch.tensor([2.0])).requires_grad
    assert not (x > 2).nonzero().requires_grad
    hot = torch.nn.functional.one_hot(cartograd.tensor(torch.tensor([0, 2])), 3)
    assert hot.tolist() == [[1, 0, 0], [0, 0, 1]]
