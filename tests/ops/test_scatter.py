"""Writes by index or mask: spellings, numbers and tensors, duplicates, unused elements."""

import pytest
import torch
from parity import agree, randn

import cartograd

TWO = torch.tensor([[0, 1], [2, 0]])
ROWS = torch.tensor([2, 0])
MASK = torch.tensor([True, False, True])


def test_scatter_of_tensors_and_numbers():
    agree(lambda x, s: torch.scatter(x, 0, TWO, s), randn(3, 2), randn(2, 2, seed=1))
    agree(lambda x, s: x.scatter(1, TWO, src=s), randn(2, 3), randn(2, 2, seed=1))
    agree(lambda x: torch.scatter(x, 0, TWO, 1.5), randn(3, 2))
    agree(lambda x: x.scatter(0, TWO, value=1.5), randn(3, 2))
    agree(lambda x, i: torch.scatter(x, 0, i, 1.5), randn(3, 2), TWO)
    agree(lambda x, s: (x * 1).scatter_(0, TWO, s), randn(3, 2), randn(2, 2, seed=1), own=False)


def test_scatter_with_a_reduction_has_no_derivative_in_torch_either():
    x = cartograd.tensor(randn(3, 2), requires_grad=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.scatter(x, 0, TWO, 1.5, reduce="multiply").sum().backward()


def test_duplicates_get_the_gradient_of_their_place_as_in_torch():
    gradient = agree(lambda s: torch.zeros(2, dtype=s.dtype).scatter(0, torch.tensor([1, 1]), s), randn(2))[0]
    assert gradient.tolist() == [2, 2]


@pytest.mark.parametrize("function", [torch.scatter, torch.scatter_add])
def test_elements_of_the_source_beyond_the_index_get_zero(function):
    x, source = (cartograd.tensor(randn(3, 3), requires_grad=True) for _ in range(2))
    function(x, 0, TWO, source).sum().backward()
    assert source.grad.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_scatter_add_with_duplicates():
    source, x = randn(2, 2), randn(3, 2)
    agree(lambda x, s: torch.scatter_add(x, 0, torch.tensor([[2, 2], [2, 0]]), s), x, source)
    agree(lambda x, s: x.scatter_add(0, TWO, s), x, source, needs=[False, True])


@pytest.mark.parametrize("index", [ROWS, torch.tensor([2, 2]), ROWS.int()])
def test_writes_by_row(index):
    agree(lambda x, s: torch.index_add(x, 0, index, s, alpha=0.5), randn(3, 2), randn(2, 2, seed=1))
    agree(lambda x, s: (x * 1).index_add_(0, index, s), randn(3, 2), randn(2, 2, seed=1), own=False)
    if index.dtype is torch.int64:
        agree(lambda x, s: x.index_copy(0, index, s), randn(3, 2), randn(2, 2, seed=1))
        agree(lambda x: x.index_fill(0, index, 2.0), randn(3, 2))
        agree(lambda x, v: x.index_fill(0, index, v), randn(3, 2), randn(seed=1))


def test_index_put():
    agree(lambda x, v: torch.index_put(x, (ROWS,), v), randn(3, 2), randn(2, seed=1))
    agree(lambda x, v: x.index_put((ROWS, ROWS // 2), v), randn(3, 2), randn(seed=1))
    agree(lambda x, v: x.index_put((ROWS // 2, ROWS // 2), v, accumulate=True), randn(3, 2), randn(2, seed=1))
    agree(lambda x, i, v: x.index_put((i,), v), randn(3, 2), ROWS, randn(2, 2, seed=1))
    agree(lambda x, m, v: x.index_put((m,), v), randn(3, 2), MASK, randn(1, seed=1))


def test_put():
    agree(lambda x, s: torch.put(x, TWO, s), randn(3, 2), randn(2, 2, seed=1))
    agree(lambda x, s: x.put(torch.tensor([1, 1]), s, accumulate=True), randn(3, 2), randn(2, seed=1))


def test_masked_fill():
    agree(lambda x, m: x.masked_fill(m, 2.0), randn(2, 3), MASK)
    agree(lambda x, v: torch.masked_fill(x, MASK, v), randn(2, 3), randn(seed=1))
    agree(lambda x: torch.masked_fill(x, MASK, float("-inf")).exp(), randn(2, 3), own=False)
    agree(lambda x: (x * 1).masked_fill_(MASK, 2.0), randn(2, 3), own=False)


def test_masked_scatter():
    agree(lambda x, s: x.masked_scatter(MASK, s), randn(2, 3), randn(4, seed=1))
    agree(lambda x, s: x.masked_scatter(MASK, s), randn(2, 3), randn(2, 3, seed=1))


def test_reductions_by_index_are_torchs():
    for reduce in ("sum", "mean", "amax", "prod"):
        agree(lambda x, s: x.scatter_reduce(0, TWO, s, reduce), randn(3, 2), randn(2, 2, seed=1), own=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_keep_the_dtype(dtype):
    values = randn(3, 2, dtype=dtype), randn(2, 2, seed=1, dtype=dtype)
    for function in (lambda x, s: x.scatter(0, TWO, s), lambda x, s: x.index_add(0, ROWS, s)):
        assert {gradient.dtype for gradient in agree(function, *values)} == {dtype}
