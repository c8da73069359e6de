"""Channels-last convolutions and pools equal the channels-first ones after a permutation."""

import inspect

import pytest
import torch
import torch.nn.functional as F

import cartograd
from cartograd import ops
from cartograd.errors import CartogradError, OptionError
from cartograd.ops.layout import blank, channels_last

LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}
FIRST = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
SIZES = {1: (7,), 2: (6, 5), 3: (4, 3, 5)}
CASES = [
    ("conv{}d", (6, 2, 2), {"stride": 2, "padding": 1, "groups": 2}),
    ("conv_transpose{}d", (4, 3, 2), {"stride": 2, "output_padding": 1}),
    ("max_pool{}d", None, {"kernel_size": 2, "stride": 1, "padding": 1}),
    ("avg_pool{}d", None, {"kernel_size": 2, "ceil_mode": True}),
    ("adaptive_avg_pool{}d", None, {"output_size": 2}),
    ("adaptive_max_pool{}d", None, {"output_size": 2}),
]


def to_last(value, dims):
    return value.movedim(-1 - dims, -1).contiguous()


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(("name", "kernel", "options"), CASES, ids=lambda one: one if isinstance(one, str) else "")
def test_equal_after_permutation(name, kernel, options, batch, dims):
    print("seed 7")
    torch.manual_seed(7)
    name = name.format(dims)
    weights = []
    if kernel is not None:
        weights = [torch.randn(*kernel[:2], *[kernel[2]] * dims, dtype=torch.float64, requires_grad=True)]
    x = torch.randn(*batch, 4, *SIZES[dims], dtype=torch.float64, requires_grad=True)
    expected = getattr(F, name)(x, *weights, **options)
    seed = torch.randn_like(expected)
    expected.backward(seed)

    mine = cartograd.tensor(to_last(x.detach(), dims), requires_grad=True)
    own_weights = [cartograd.tensor(one.detach(), requires_grad=True) for one in weights]
    out = getattr(ops, name)(mine, *own_weights, layout=LAST[dims], **options)
    out.backward(to_last(seed, dims))
    torch.testing.assert_close(out.data, to_last(expected.detach(), dims))
    torch.testing.assert_close(mine.grad.data, to_last(x.grad, dims))
    for one, other in zip(own_weights, weights, strict=True):
        torch.testing.assert_close(one.grad.data, other.grad)

    same = getattr(ops, name)(cartograd.tensor(x.detach()), *own_weights, layout=FIRST[dims], **options)
    torch.testing.assert_close(same.data, expected.detach())


@pytest.mark.parametrize("name", ["max_pool2d", "adaptive_max_pool2d"])
def test_indices_are_permuted_and_mean_the_same(name):
    x = torch.randn(2, 4, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    values, indices = getattr(ops, name)(cartograd.tensor(x), 2, return_indices=True, layout="NHWC")
    expected, places = getattr(F, name)(x.permute(0, 3, 1, 2), 2, return_indices=True)
    assert torch.equal(values.data, expected.permute(0, 2, 3, 1))
    assert torch.equal(indices.data, places.permute(0, 2, 3, 1))


def test_indices_by_position():
    x = cartograd.tensor(torch.arange(16.0).view(1, 1, 4, 4))
    values, indices = ops.max_pool2d(x, 2, None, 0, 1, False, True)
    assert values.tolist() == indices.tolist()


@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"])
@pytest.mark.parametrize("layout", ["NLC", "nhwc", "NCL", "HWCN", ""])
def test_a_wrong_layout_is_named(name, layout):
    with pytest.raises(OptionError, match=rf"{name} takes layout='NCHW' or 'NHWC', got '{layout}'") as caught:
        getattr(ops, name)(cartograd.tensor(torch.ones(1, 4, 4, 1)), torch.ones(1, 1, 2, 2), layout=layout)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, CartogradError)


def test_a_wrong_rank_is_named():
    with pytest.raises(OptionError, match=r"4 axes \(N, H, W, C\), or 3 without N; got shape \(4, 4\)"):
        ops.avg_pool2d(cartograd.tensor(torch.ones(4, 4)), 2, layout="NHWC")


def test_second_derivative_in_the_other_layout():
    x = cartograd.tensor(torch.rand(1, 3, 2, 2, dtype=torch.float64), True)
    w = cartograd.tensor(torch.rand(1, 2, 2, 2, dtype=torch.float64), True)
    assert cartograd.gradgradcheck(lambda x, w: ops.conv2d(x, w, layout="NHWC"), (x, w))


def test_results_are_dense():
    """No copy on the way in, and none is needed on the way out: the kernels know the format."""
    x = cartograd.tensor(torch.rand(2, 8, 8, 4), True)
    out = ops.conv2d(x, torch.rand(4, 4, 3, 3), padding=1, layout="NHWC")
    assert out.is_contiguous()
    pooled = ops.avg_pool2d(out, 2, layout="NHWC")
    assert pooled.is_contiguous()
    pooled.backward(torch.ones_like(pooled.data))
    assert x.grad.is_contiguous()


def test_any_number_of_axes():
    double = channels_last(lambda input: input * torch.arange(1.0, 4.0).view(3, *[1] * (input.dim() - 2)))
    for layout in LAST.values():
        out = double(torch.ones([2] * (len(layout) - 1) + [3]), layout=layout)
        assert torch.equal(out, torch.arange(1.0, 4.0).expand(out.shape))
    assert torch.equal(double(torch.ones(1, 3, 2)), double(torch.ones(1, 2, 3), layout="NLC").transpose(1, 2))


def test_signature_and_name_are_kept():
    assert ops.conv2d.__name__ == "conv2d"
    assert list(inspect.signature(ops.conv2d).parameters)[-2:] == ["groups", "layout"]
    assert inspect.signature(ops.conv2d).parameters["layout"].default == "NCHW"
    assert "NDHWC" in ops.max_pool3d.__doc__


def test_a_blank_takes_no_memory():
    made = blank((100, 100, 100), torch.ones(2))
    assert made.shape == (100, 100, 100)
    assert made.untyped_storage().nbytes() == 4
    last = torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last)
    assert blank((1, 2, 6, 8), last).is_contiguous(memory_format=torch.channels_last)
