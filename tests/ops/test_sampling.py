"""What OpInfo leaves open about ops/sampling.py, ops/gridsample.py and ops/padding.py."""

import itertools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from harness import compare
from torch import nn

import cartograd

FLOAT = torch.float64


def leaf(*shape, dtype=FLOAT):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def same_as_torch(call, input, *args, **kwargs):
    sample = SimpleNamespace(input=input, args=args, kwargs=kwargs, output_process_fn_grad=lambda out: out)
    compare(call, sample, own=True, rtol=1e-10)


@pytest.fixture(autouse=True)
def _seed():
    print("seed 11")
    torch.manual_seed(11)


LINEAR = [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)]
OTHERS = [(mode, dims) for mode in ("nearest", "nearest-exact", "area") for dims in (1, 2, 3)]


@pytest.mark.parametrize(("mode", "dims"), LINEAR + OTHERS)
@pytest.mark.parametrize(
    "options",
    [{"size": 3}]
    + [{"scale_factor": scale, "recompute_scale_factor": again} for scale in (1.7, 0.6) for again in (None, True)],
    ids=str,
)
def test_interpolation(mode, dims, options):
    """A scale that is no ratio of whole numbers makes recompute_scale_factor matter."""
    for align in (True, False) if (mode, dims) in LINEAR else (None,):
        same_as_torch(F.interpolate, leaf(1, 2, *(5, 4, 6)[:dims]), mode=mode, align_corners=align, **options)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("options", [{"scale_factor": (0.45, 0.7)}, {"size": (3, 9)}], ids=str)
def test_antialiased_interpolation(mode, options):
    if mode == "lanczos" and not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa_backward"):
        pytest.skip("this torch has no lanczos")
    same_as_torch(F.interpolate, leaf(1, 1, 7, 8), mode=mode, antialias=True, **options)


@pytest.mark.parametrize("mode", ["nearest", "area", "bicubic"])
def test_interpolation_twice(mode):
    x = cartograd.tensor(leaf(1, 1, 3, 3), True)
    assert cartograd.gradgradcheck(lambda x: F.interpolate(x, size=(2, 4), mode=mode) ** 2, x)


def test_upsampling_modules():
    same_as_torch(nn.Upsample(scale_factor=2, mode="bilinear"), leaf(1, 2, 3, 4))
    same_as_torch(nn.UpsamplingNearest2d(scale_factor=2), leaf(1, 2, 3, 4))
    same_as_torch(nn.UpsamplingBilinear2d(size=(5, 5)), leaf(1, 2, 3, 4))


@pytest.mark.parametrize("options", [{}, {"size": 3, "scale_factor": 2}, {"size": (3,)}], ids=str)
def test_torch_refuses_bad_interpolation(options):
    with pytest.raises(ValueError):
        F.interpolate(cartograd.tensor(leaf(1, 1, 4, 4), True), **options)


SAMPLERS = [
    (dims, mode, padding, align)
    for dims, mode, padding, align in itertools.product(
        (2, 3), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)
    )
    if not (dims == 3 and mode == "bicubic")
]


@pytest.mark.parametrize(("dims", "mode", "padding", "align"), SAMPLERS)
def test_grid_sample(dims, mode, padding, align):
    """The kernel and the sum written out for the second derivative give torch's gradients."""
    x = leaf(2, 3, *(3, 4, 5)[:dims])
    grid = (torch.rand(2, *(2, 3, 4)[:dims], dims, dtype=FLOAT) * 5 - 2.5).requires_grad_()
    options = {"mode": mode, "padding_mode": padding, "align_corners": align}
    same_as_torch(F.grid_sample, x, grid, **options)
    expected = F.grid_sample(x, grid, **options)
    seed = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, grid), seed)
    ours = [cartograd.tensor(one.detach(), True) for one in (x, grid)]
    found = cartograd.grad(F.grid_sample(*ours, **options), ours, seed, create_graph=True)
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.data, other)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_twice(mode, padding):
    x = cartograd.tensor(leaf(1, 1, 3, 3), True)
    grid = cartograd.tensor(torch.rand(1, 1, 3, 2, dtype=FLOAT) * 3 - 1.5, True)
    assert cartograd.gradgradcheck(lambda x, grid: F.grid_sample(x, grid, mode, padding, False), (x, grid))


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("create_graph", [True, False])
def test_one_gradient_of_grid_sample(wanted, mode, create_graph):
    values = [torch.randn(1, 2, 3, 3, dtype=FLOAT), torch.rand(1, 2, 2, 2, dtype=FLOAT) * 2 - 1]
    ours = [cartograd.tensor(one, flag) for one, flag in zip(values, wanted, strict=True)]
    theirs = [one.clone().requires_grad_(flag) for one, flag in zip(values, wanted, strict=True)]
    out = F.grid_sample(*ours, mode=mode, align_corners=False)
    out.sum().backward(create_graph=create_graph)
    F.grid_sample(*theirs, mode=mode, align_corners=False).sum().backward()
    for mine, other, flag in zip(ours, theirs, wanted, strict=True):
        if flag:
            torch.testing.assert_close(mine.grad.data, other.grad)
        else:
            assert mine.grad is None


def test_default_of_align_corners_warns_as_torch_does():
    with pytest.warns(UserWarning, match="align_corners"):
        F.grid_sample(cartograd.tensor(leaf(1, 1, 3, 3), True), torch.zeros(1, 1, 1, 2, dtype=FLOAT))


@pytest.mark.parametrize("align", [True, False])
def test_affine_grid(align):
    same_as_torch(F.affine_grid, leaf(2, 2, 3), (2, 1, 4, 5), align_corners=align)
    same_as_torch(F.affine_grid, leaf(2, 3, 4), (2, 1, 3, 2, 4), align_corners=align)


def test_spatial_transformer():
    """Through both: the loss moves the affine map."""

    def call(theta, x):
        grid = F.affine_grid(theta, (1, 2, 4, 4), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    same_as_torch(call, leaf(1, 2, 3), leaf(1, 2, 5, 5))


@pytest.mark.parametrize("shape", [(8, 3, 2), (2, 8, 3, 2), (2, 1, 8, 3, 2)])
def test_pixel_shuffle_there_and_back(shape):
    same_as_torch(lambda x: F.pixel_shuffle(x, 2) ** 2, leaf(*shape))
    same_as_torch(lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2) ** 2, leaf(*shape))


def test_pixel_shuffle_of_an_empty_batch():
    """torch's own gradient has the wrong shape here."""
    x = cartograd.tensor(torch.zeros(0, 8, 3, 2), True)
    out = F.pixel_shuffle(x, 2)
    assert out.shape == (0, 2, 6, 4)
    assert F.pixel_unshuffle(out, 2).shape == x.shape
    F.pixel_unshuffle(out, 2).sum().backward()
    assert x.grad.shape == x.shape


def test_channel_shuffle():
    same_as_torch(lambda x: F.channel_shuffle(x, 3) ** 2, leaf(2, 6, 2, 3))
    same_as_torch(nn.ChannelShuffle(2), leaf(2, 6, 4))


def test_native_channel_shuffle():
    """torch has no gradient for it."""
    x = cartograd.tensor(torch.arange(6.0).view(1, 6, 1), True)
    out = torch.native_channel_shuffle(x, 3)
    out.backward(out.data)
    assert torch.equal(x.grad.data, x.data)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_patches(batch):
    same_as_torch(F.unfold, leaf(*batch, 2, 5, 6), (2, 3), dilation=2, padding=1, stride=(1, 2))
    same_as_torch(F.fold, leaf(*batch, 8, 12), (4, 5), 2)
    same_as_torch(F.fold, leaf(*batch, 6, 10), (3, 6), (1, 3), dilation=(1, 2), padding=(1, 0), stride=(1, 1))


def test_fold_of_unfold_counts_the_patches():
    same_as_torch(lambda x: F.fold(F.unfold(x, 3, padding=1), (4, 5), 3, padding=1), leaf(1, 2, 4, 5))


def test_the_sliding_window_method_is_another_function():
    x = cartograd.tensor(torch.arange(5.0), True)
    assert x.unfold(0, 2, 1).shape == (4, 2)


PADS = [
    ("constant", (3, 4), (1, 2)),
    ("constant", (3, 4), (-1, -2, 1, -1)),
    ("constant", (), ()),
    ("reflect", (2, 5), (4, 1)),
    ("reflect", (2, 4, 5), (1, 2, 3, 0)),
    ("reflect", (1, 2, 3, 4, 5), (1, 2, 0, 3, 2, 1)),
    ("replicate", (2, 3, 5), (6, 1)),
    ("replicate", (1, 2, 3, 4), (1, 2, 3, -1)),
    ("replicate", (2, 3, 2, 4), (1, 0, 2, 1, 1, 1)),
    ("circular", (2, 3, 5), (5, 2)),
    ("circular", (1, 2, 3, 4), (1, 2, 3, 0)),
    ("circular", (1, 2, 3, 4), (2, -1, -1, 1)),
    ("circular", (1, 2, 3, 2, 4), (4, 4, 2, 1, 3, 0)),
]


@pytest.mark.parametrize(("mode", "shape", "pad"), PADS)
def test_padding(mode, shape, pad):
    same_as_torch(F.pad, leaf(*shape), pad, mode=mode)
    same_as_torch(lambda x: F.pad(x, pad, mode) ** 2, leaf(*shape))
    x = cartograd.tensor(leaf(*shape), True)
    found = cartograd.grad((F.pad(x, pad, mode) ** 3).sum(), x, create_graph=True)[0]
    assert cartograd.grad(found.sum(), x)[0].shape == x.shape


def test_padding_with_a_value():
    x = cartograd.tensor([[1.0]], True)
    out = F.pad(x, (1, 1), value=7.0)
    assert out.tolist() == [[7, 1, 7]]
    out.backward(torch.tensor([[1.0, 2.0, 3.0]]))
    assert x.grad.tolist() == [[2]]


@pytest.mark.parametrize(
    "module",
    [
        nn.ZeroPad2d(1),
        nn.ConstantPad2d((1, 0, 2, -1), 3.0),
        nn.ReflectionPad2d(2),
        nn.ReplicationPad2d(3),
        nn.CircularPad2d(2),
    ],
    ids=str,
)
def test_padding_modules(module):
    same_as_torch(module, leaf(1, 2, 4, 5))


@pytest.mark.parametrize("mode", ["reflect", "circular"])
def test_torch_refuses_too_much_padding(mode):
    with pytest.raises(RuntimeError):
        F.pad(cartograd.tensor(leaf(1, 1, 3), True), (5, 5), mode)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.pad(x, (1, 1), "reflect"),
        lambda x: F.pad(x, (1, 1, 1, 1), "circular"),
        lambda x: F.interpolate(x.unsqueeze(0), scale_factor=2, mode="bilinear"),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.unfold(x, 2),
    ],
)
def test_dtype_is_kept(call, dtype):
    x = cartograd.tensor(torch.randn(4, 3, 3, dtype=dtype), True)
    out = call(x)
    out.sum().backward()
    assert out.dtype is x.grad.dtype is dtype


def test_strided_input():
    same_as_torch(lambda x: F.interpolate(x.transpose(1, 3), size=(3, 3), mode="bilinear"), leaf(1, 4, 5, 2))
    same_as_torch(lambda x: F.pad(x.transpose(1, 3), (1, 1, 1, 1), "circular"), leaf(1, 4, 5, 2))
    same_as_torch(lambda x: F.pixel_shuffle(x.transpose(1, 3), 2), leaf(1, 4, 5, 4))
