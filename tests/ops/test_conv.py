"""What OpInfo leaves open about ops/conv.py."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from harness import compare
from torch import nn

import cartograd
from cartograd.engine.fallback import TorchPlan

EVEN_KERNEL = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def same_as_torch(call, input, *args, **kwargs):
    sample = SimpleNamespace(input=input, args=args, kwargs=kwargs, output_process_fn_grad=lambda out: out)
    compare(call, sample, own=True, rtol=1e-10)


@pytest.fixture(autouse=True)
def _seed():
    print("seed 3")
    torch.manual_seed(3)


@EVEN_KERNEL
@pytest.mark.parametrize("kernel", [(2, 3), (3, 4), (4, 2), (1, 1)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_same_padding_of_even_kernels(kernel, batch):
    """'same' pads an even kernel once more at the end: the gradient must not shift."""
    same_as_torch(F.conv2d, leaf(*batch, 4, 6, 5), leaf(2, 2, *kernel), leaf(2), padding="same", groups=2)


@EVEN_KERNEL
def test_same_padding_of_even_kernels_twice():
    x, w = cartograd.tensor(leaf(1, 4), True), cartograd.tensor(leaf(1, 1, 2), True)

    def call(x, w):
        return torch.conv1d(x, w, padding="same")

    assert cartograd.gradcheck(call, (x, w))
    assert cartograd.gradgradcheck(call, (x, w))


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)])
@pytest.mark.parametrize("create_graph", [False, True])
def test_only_what_requires_grad(wanted, create_graph):
    values = [leaf(2, 3, 5, 5), leaf(4, 3, 2, 2), leaf(4)]
    ours = [cartograd.tensor(one.detach(), bool(flag)) for one, flag in zip(values, wanted, strict=True)]
    cartograd.ops.conv2d(*ours, stride=2).sum().backward(create_graph=create_graph)
    F.conv2d(*values, stride=2).sum().backward()
    for mine, other in zip(ours, values, strict=True):
        if mine.requires_grad:
            torch.testing.assert_close(mine.grad.data, other.grad)
        else:
            assert mine.grad is None


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
        (nn.Conv2d(4, 6, (3, 1), padding="same", dilation=2), (2, 4, 7, 6)),
        (nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular"), (1, 3, 5, 5)),
        (nn.Conv2d(3, 2, 3, padding=(1, 2), padding_mode="reflect"), (1, 3, 5, 5)),
        (nn.Conv2d(3, 2, 3, padding=1, padding_mode="replicate"), (1, 3, 5, 5)),
        (nn.Conv2d(4, 8, 3, groups=4), (1, 4, 5, 5)),
        (nn.Conv3d(2, 3, 2, bias=False), (2, 4, 4, 4)),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2), (2, 4, 5)),
        (nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, dilation=2), (4, 5, 5)),
        (nn.ConvTranspose3d(2, 2, 2, stride=2), (1, 2, 3, 2, 2)),
    ],
    ids=str,
)
def test_modules(module, shape):
    module = module.double()
    x = leaf(*shape)
    mine = cartograd.tensor(x.detach(), requires_grad=True)
    out, expected = module(mine), module(x)
    assert not any(isinstance(node.plan, TorchPlan) for node in cartograd.trace(out).nodes)
    seed = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, [x, *module.parameters()], seed)
    out.backward(seed)
    torch.testing.assert_close(out.data, expected.detach())
    torch.testing.assert_close(mine.grad.data, wanted[0])
    for parameter, gradient in zip(module.parameters(), wanted[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_output_size_of_a_transposed_module():
    module = nn.ConvTranspose2d(2, 2, 3, stride=2).double()
    x = leaf(1, 2, 4, 4)
    same_as_torch(lambda x: module(x, output_size=(10, 10)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_kept(dtype):
    values = [leaf(1, 2, 4, dtype=dtype), leaf(3, 2, 2, dtype=dtype), leaf(3, dtype=dtype)]
    ours = [cartograd.tensor(one.detach(), True) for one in values]
    out = torch.conv1d(*ours)
    out.sum().backward()
    assert [out.dtype, *(one.grad.dtype for one in ours)] == [dtype] * 4


def test_strided_and_expanded_inputs():
    wide = torch.randn(5, 4, 6, 2, dtype=torch.float64).requires_grad_()
    same_as_torch(lambda x, w: F.conv2d(x.permute(3, 1, 0, 2).narrow(1, 1, 2), w).sum(), wide, leaf(3, 2, 2, 3))


def test_empty_batch():
    same_as_torch(F.conv2d, leaf(0, 2, 4, 4), leaf(3, 2, 2, 2), leaf(3))


def test_one_element_options_stand_for_every_axis():
    same_as_torch(F.conv2d, leaf(1, 2, 5, 5), leaf(3, 2, 2, 2), None, (2,), (1,), (1,))


@pytest.mark.parametrize("options", [{"padding": "some"}, {"padding": "same", "stride": 2}, {"groups": 3}])
def test_torch_refuses_bad_options(options):
    with pytest.raises((RuntimeError, ValueError)):
        F.conv2d(cartograd.tensor(leaf(1, 2, 5, 5), True), leaf(3, 2, 2, 2), **options)


def test_a_weight_of_the_wrong_rank_is_refused():
    with pytest.raises(RuntimeError):
        torch.conv2d(cartograd.tensor(leaf(1, 2, 5), True), leaf(3, 2, 2))


def test_complex_numbers_take_the_derivative_of_torch():
    x = cartograd.tensor(torch.randn(1, 1, 4, dtype=torch.complex128), True)
    w = torch.randn(1, 1, 2, dtype=torch.complex128)
    torch.conv1d(x, w).abs().sum().backward()
    assert x.grad.dtype is torch.complex128


def test_third_derivative():
    x = cartograd.tensor(torch.randn(1, 1, 3, dtype=torch.float64), True)
    w = cartograd.tensor(torch.randn(1, 1, 2, dtype=torch.float64), True)

    def curvature(x, w):
        (first,) = cartograd.grad((torch.conv1d(x, w) ** 3).sum(), x, create_graph=True)
        return first * first

    assert cartograd.gradgradcheck(curvature, (x, w))
