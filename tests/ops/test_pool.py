"""What OpInfo leaves open about ops/pool.py, ops/maxpool.py and ops/unpool.py."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from harness import compare
from torch import nn

import cartograd

SHAPES = {1: (2, 3, 9), 2: (2, 3, 6, 7), 3: (1, 2, 4, 5, 6)}


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def same_as_torch(call, input, *args, own=True, **kwargs):
    sample = SimpleNamespace(input=input, args=args, kwargs=kwargs, output_process_fn_grad=lambda out: out)
    compare(call, sample, own=own, rtol=1e-10)


@pytest.fixture(autouse=True)
def _seed():
    print("seed 5")
    torch.manual_seed(5)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, 2.5])
def test_lp_pool(dims, norm):
    positive = (torch.rand(SHAPES[dims], dtype=torch.float64) + 0.1).requires_grad_()
    same_as_torch(getattr(F, f"lp_pool{dims}d"), positive, norm, 3, stride=2, ceil_mode=dims == 2)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("norm", [float("inf"), float("-inf")])
def test_lp_pool_of_infinite_order_is_the_largest_or_smallest_size(dims, norm):
    """Compared with max_pool: torch before 2.13 gives ones."""
    sign, largest = math.copysign(1, norm), getattr(F, f"max_pool{dims}d")
    value = torch.randn(SHAPES[dims], dtype=torch.float64)
    other, mine = value.clone().requires_grad_(), cartograd.tensor(value, requires_grad=True)
    expected = sign * largest(sign * other.abs(), 3, 2, ceil_mode=dims == 2)
    found = getattr(F, f"lp_pool{dims}d")(mine, norm, 3, stride=2, ceil_mode=dims == 2)
    torch.testing.assert_close(found.data, expected.detach())
    seed = torch.randn_like(expected)
    expected.backward(seed)
    found.backward(seed)
    torch.testing.assert_close(mine.grad.data, other.grad)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_lp_pool_of_signed_numbers(dims):
    same_as_torch(getattr(nn, f"LPPool{dims}d")(2, 2), leaf(*SHAPES[dims]))


def test_lp_pool_with_unequal_sides():
    same_as_torch(F.lp_pool2d, leaf(1, 1, 5, 6), 2.0, (2, 3))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max_pool", "adaptive_max_pool"])
def test_indices_come_out_and_values_carry_the_gradient(dims, kind):
    function = getattr(F, f"{kind}{dims}d")
    x = leaf(*SHAPES[dims])
    mine = cartograd.tensor(x.detach(), True)
    values, indices = function(mine, 2, return_indices=True)
    expected_values, expected_indices = function(x, 2, return_indices=True)
    assert torch.equal(indices.data, expected_indices)
    assert not indices.requires_grad
    seed = torch.randn_like(expected_values)
    values.backward(seed)
    torch.testing.assert_close(mine.grad.data, torch.autograd.grad(expected_values, x, seed)[0])


@pytest.mark.parametrize("function", [torch.max_pool1d_with_indices, torch.adaptive_max_pool1d])
def test_functions_of_torch_itself_give_both(function):
    values, indices = function(cartograd.tensor(leaf(2, 6), True), 2)
    assert values.requires_grad
    assert indices.dtype is torch.int64


@pytest.mark.parametrize("function", [torch.max_pool2d, F.max_pool2d, nn.MaxPool2d(2), cartograd.ops.max_pool2d])
def test_every_spelling_is_one_node(function):
    x = cartograd.tensor(leaf(1, 1, 4, 4), True)
    out = function(x) if isinstance(function, nn.Module) else function(x, 2)
    assert [node.name for node in cartograd.trace(out).nodes] == ["max_pool2d"]


def test_the_input_is_not_kept():
    """A maximum needs its indices and the input's shape: the input may be freed, or changed in place."""
    x = cartograd.tensor(leaf(1, 1, 4, 4), True)
    inner = x * 1
    out = F.max_pool2d(inner, 2)
    inner.data.zero_()
    out.sum().backward()
    assert x.grad.data.sum() == 4


@pytest.mark.parametrize("function", [F.max_pool2d, F.adaptive_max_pool2d])
def test_nan_wins_its_own_window(function):
    values = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    values[0, 0, 2:, 2:] = float("nan")
    x = cartograd.tensor(values, True)
    out = function(x, 2)
    assert out.data.isnan().nonzero().tolist() == [[0, 0, 1, 1]]
    out.backward(torch.ones_like(out.data))
    assert x.grad.data[0, 0, 2:, 2:].sum() == 1
    assert x.grad.data.sum() == 4


def test_an_infinite_window_keeps_its_gradient_to_itself():
    values = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    values[..., 2:] = float("-inf")
    x = cartograd.tensor(values, True)
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad.data[..., 2:].sum() == 1


def test_the_first_of_equals_wins():
    x = cartograd.tensor(torch.ones(1, 4, dtype=torch.float64), True)
    F.max_pool1d(x, 2).sum().backward()
    assert x.grad.tolist() == [[1, 0, 1, 0]]


def test_overlapping_windows_add_up():
    x = cartograd.tensor([[0.0, 5.0, 1.0]], True)
    F.max_pool1d(x, 2, 1).sum().backward()
    assert x.grad.tolist() == [[0, 2, 0]]


def test_adaptive_windows_end_at_the_ceiling():
    out = F.adaptive_avg_pool1d(cartograd.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]]), 3)
    assert out.tolist() == [[0.5, 2.0, 3.5]]


@pytest.mark.parametrize("divisor", [None, 3])
@pytest.mark.parametrize("dims", [2, 3])
def test_average_with_every_option(dims, divisor):
    options = {"padding": 1, "ceil_mode": True, "count_include_pad": False, "divisor_override": divisor}
    same_as_torch(getattr(F, f"avg_pool{dims}d"), leaf(*SHAPES[dims]), 3, 2, **options)


@pytest.mark.parametrize("size", [1, (2, 3), (None, 2)])
def test_unbatched_adaptive_average(size):
    same_as_torch(F.adaptive_avg_pool2d, leaf(2, 5, 4), size)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_undoes_pooling(dims):
    pool, unpool = getattr(F, f"max_pool{dims}d"), getattr(F, f"max_unpool{dims}d")

    def there_and_back(x):
        values, indices = pool(x, 2, return_indices=True)
        return unpool(values, indices, 2, output_size=x.shape)

    same_as_torch(there_and_back, leaf(*SHAPES[dims]))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_second_derivative_of_a_maximum(dims):
    x = cartograd.tensor(torch.randn(1, 1, *[3] * dims, dtype=torch.float64), True)
    assert cartograd.gradgradcheck(lambda x: getattr(F, f"max_pool{dims}d")(x, 2, 1) ** 3, x)


def test_fractional_pooling_draws_as_torch_does():
    same_as_torch(lambda x: F.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.5)), leaf(1, 2, 8, 8))
    same_as_torch(lambda x: F.fractional_max_pool3d(x, 2, output_size=2, return_indices=True)[0], leaf(1, 1, 5, 5, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
def test_dtype_is_kept(function, dtype):
    x = cartograd.tensor(torch.randn(1, 2, 4, 4, dtype=dtype), True)
    out = function(x, 2)
    out.sum().backward()
    assert out.dtype is x.grad.dtype is dtype


@pytest.mark.parametrize("function", [F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
def test_strided_and_channels_last_input(function):
    same_as_torch(lambda x: function(x.transpose(1, 3).narrow(2, 1, 5), 2), leaf(2, 5, 6, 3))
    last = torch.randn(2, 3, 4, 6, dtype=torch.float64).to(memory_format=torch.channels_last)
    same_as_torch(lambda x: function(x, 2), last.requires_grad_())


@pytest.mark.parametrize("function", [F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d])
def test_empty_batch(function):
    same_as_torch(function, leaf(0, 2, 4, 4), 2)


@pytest.mark.parametrize("function", [F.max_pool2d, F.avg_pool2d])
def test_torch_refuses_bad_options(function):
    with pytest.raises(RuntimeError):
        function(cartograd.tensor(leaf(1, 1, 4, 4), True), 2, 0)
    with pytest.raises(RuntimeError, match="pad"):
        function(cartograd.tensor(leaf(1, 1, 4, 4), True), 2, 1, 3)
