"""Deformable convolution against ordinary convolution, a slow reference, and finite differences."""

import pytest
import torch
import torch.nn.functional as F

import cartograd
from cartograd.errors import OptionError
from cartograd.ops import deform_conv2d, deformable

FLOAT = torch.float64


def reference(input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):
    """One tap, one offset group and one weight group at a time, sampled by torch's `grid_sample`."""
    _, channels, height, width = input.shape
    _, per_group, kernel_h, kernel_w = weight.shape
    taps = kernel_h * kernel_w
    offset_groups = offset.shape[1] // (2 * taps)
    groups = channels // per_group
    down, across = offset.shape[2:]
    y0 = torch.arange(down, dtype=FLOAT).view(-1, 1) * stride[0] - padding[0]
    x0 = torch.arange(across, dtype=FLOAT).view(1, -1) * stride[1] - padding[1]
    samples = []
    for k in range(taps):
        row, column = divmod(k, kernel_w)
        parts = []
        for group, part in enumerate(input.chunk(offset_groups, 1)):
            place = 2 * (group * taps + k)
            y = y0 + row * dilation[0] + offset[:, place]
            x = x0 + column * dilation[1] + offset[:, place + 1]
            grid = torch.stack(((2 * x + 1) / width - 1, (2 * y + 1) / height - 1), -1)
            read = F.grid_sample(part, grid, "bilinear", "zeros", align_corners=False)
            if mask is not None:
                read = read * mask[:, group * taps + k].unsqueeze(1)
            parts.append(read)
        samples.append(torch.cat(parts, 1))
    columns = torch.stack(samples, 2)  # (N, C, taps, OH, OW)
    out = torch.cat(
        [
            torch.einsum("nckhw,ock->nohw", part, kernel.flatten(2))
            for part, kernel in zip(columns.chunk(groups, 1), weight.chunk(groups, 0), strict=True)
        ],
        1,
    )
    return out if bias is None else out + bias.view(-1, 1, 1)


def inputs(
    batch=2,
    channels=4,
    size=(6, 7),
    outs=4,
    kernel=(3, 2),
    groups=1,
    offset_groups=1,
    masked=True,
    spread=1.5,
    **options,
):
    """Random tensors for a call, and its options."""
    print("seed 2")
    torch.manual_seed(2)
    stride, padding, dilation = (
        options.get(name, default) for name, default in (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))
    )
    out = [(size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    taps = kernel[0] * kernel[1]
    return {
        "input": torch.randn(batch, channels, *size, dtype=FLOAT),
        "offset": torch.randn(batch, 2 * offset_groups * taps, *out, dtype=FLOAT) * spread,
        "weight": torch.randn(outs, channels // groups, *kernel, dtype=FLOAT),
        "bias": torch.randn(outs, dtype=FLOAT),
        "mask": torch.rand(batch, offset_groups * taps, *out, dtype=FLOAT) if masked else None,
    }


CASES = [
    {},
    {"masked": False},
    {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    {"groups": 2, "offset_groups": 1},
    {"groups": 1, "offset_groups": 2},
    {"groups": 4, "offset_groups": 2, "padding": (2, 0)},
    {"groups": 2, "offset_groups": 4, "masked": False},
    {"kernel": (1, 1), "spread": 10.0},
    {"channels": 6, "outs": 9, "groups": 3, "offset_groups": 2},
]


def options_of(case):
    return {name: case[name] for name in ("stride", "padding", "dilation") if name in case}


def check(values, options):
    theirs = {name: None if one is None else one.clone().requires_grad_() for name, one in values.items()}
    ours = {name: None if one is None else cartograd.tensor(one, True) for name, one in values.items()}
    expected, out = reference(**theirs, **options), deform_conv2d(**ours, **options)
    torch.testing.assert_close(out.data, expected.detach(), rtol=1e-10, atol=1e-10)
    seed = torch.randn_like(expected)
    expected.backward(seed)
    out.backward(seed)
    for name, mine in ours.items():
        if mine is not None:
            torch.testing.assert_close(
                mine.grad.data, theirs[name].grad, rtol=1e-9, atol=1e-9, msg=lambda m: f"{name}: {m}"
            )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_slow_reference(case):
    check(inputs(**case), options_of(case))


@pytest.mark.parametrize("elements", [1, 1500])
def test_chunks_give_the_same(elements, monkeypatch):
    monkeypatch.setattr(deformable, "COLUMN_ELEMENTS", elements)
    check(inputs(batch=5, offset_groups=2), {})


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_without_offsets_it_is_a_convolution(masked, groups):
    values = inputs(groups=groups, masked=masked, padding=(1, 1), stride=(2, 1), spread=0.0)
    mask = None if values["mask"] is None else torch.ones_like(values["mask"])
    options = {"stride": (2, 1), "padding": 1}
    ours = [cartograd.tensor(values[name], True) for name in ("input", "weight", "bias")]
    out = deform_conv2d(ours[0], values["offset"], *ours[1:], **options, mask=mask)
    theirs = [values[name].clone().requires_grad_() for name in ("input", "weight", "bias")]
    expected = F.conv2d(*theirs, **options, groups=groups)
    torch.testing.assert_close(out.data, expected.detach())
    seed = torch.randn_like(expected)
    out.backward(seed)
    expected.backward(seed)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad.data, other.grad)


@pytest.mark.parametrize("masked", [True, False])
def test_first_and_second_derivatives(masked):
    values = inputs(batch=1, channels=2, size=(2, 3), outs=2, kernel=(2, 1), groups=2, offset_groups=2, masked=masked)
    ours = [cartograd.tensor(one, True) for one in values.values() if one is not None]

    def call(input, offset, weight, bias, mask=None):
        return deform_conv2d(input, offset, weight, bias, mask=mask)

    assert cartograd.gradcheck(call, ours)
    assert cartograd.gradgradcheck(call, ours)


@pytest.mark.parametrize("wanted", ["input", "offset", "weight", "bias", "mask"])
@pytest.mark.parametrize("create_graph", [True, False])
def test_one_gradient_alone(wanted, create_graph):
    values = inputs()
    every = {name: cartograd.tensor(one, True) for name, one in values.items()}
    alone = {name: cartograd.tensor(one, name == wanted) for name, one in values.items()}
    deform_conv2d(**every).sum().backward()
    deform_conv2d(**alone).sum().backward(create_graph=create_graph)
    torch.testing.assert_close(alone[wanted].grad.data, every[wanted].grad.data)
    assert all(one.grad is None for name, one in alone.items() if name != wanted)


def test_far_outside_is_zero_and_carries_no_gradient():
    values = inputs(masked=False)
    values["offset"] = torch.full_like(values["offset"], 1e12)
    ours = {name: cartograd.tensor(one, True) for name, one in values.items() if one is not None}
    out = deform_conv2d(**ours)
    out.sum().backward()
    torch.testing.assert_close(out.data, values["bias"].view(-1, 1, 1).expand(out.shape))
    for name in ("input", "offset", "weight"):
        assert ours[name].grad.data.abs().sum() == 0


def test_what_lies_outside_does_not_leak():
    """An infinite pixel must not turn samples outside the picture into NaN."""
    values = inputs(masked=False)
    values["input"][:, :, 0, 0] = float("inf")
    values["offset"] = torch.full_like(values["offset"], -50.0)
    assert deform_conv2d(**values).data.isfinite().all()


def test_nan_offset_shows():
    values = inputs(masked=False)
    values["offset"][0, 0, 1, 1] = float("nan")
    out = deform_conv2d(**values).data
    assert out.isnan().any(1).nonzero().tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_kept(dtype):
    ours = {name: cartograd.tensor(one.to(dtype), True) for name, one in inputs().items()}
    out = deform_conv2d(**ours)
    out.sum().backward()
    assert out.dtype is dtype
    assert {one.grad.dtype for one in ours.values()} == {dtype}


def test_parameters_and_plain_tensors():
    values = inputs()
    weight = torch.nn.Parameter(values["weight"])
    out = deform_conv2d(values["input"], values["offset"], weight)
    out.sum().backward()
    assert weight.grad.shape == weight.shape


def test_strided_inputs_and_gradient():
    values = {
        name: one.transpose(-1, -2).contiguous().transpose(-1, -2) if one.dim() == 4 else one
        for name, one in inputs().items()
    }
    check(values, {})


def test_empty_batch():
    values = {name: one[:0] if name in ("input", "offset", "mask") else one for name, one in inputs().items()}
    ours = {name: cartograd.tensor(one, True) for name, one in values.items()}
    out = deform_conv2d(**ours)
    out.sum().backward()
    assert out.shape[0] == 0
    assert ours["weight"].grad.data.abs().sum() == 0


def wrong(name, value):
    return {**inputs(), name: value}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (wrong("input", torch.ones(4, 6, 7, dtype=FLOAT)), r"takes input \(N, C, H, W\)"),
        (wrong("offset", torch.ones(2, 11, 4, 6, dtype=FLOAT)), "an offset of 11 channels is not 2 \\* 6"),
        (wrong("offset", torch.ones(2, 36, 4, 6, dtype=FLOAT)), "an offset of 36 channels"),
        (wrong("offset", torch.ones(2, 12, 6, 6, dtype=FLOAT)), r"offset must have shape \(2, 12, 4, 6\), got"),
        (wrong("mask", torch.ones(2, 12, 4, 6, dtype=FLOAT)), r"mask must have shape \(2, 6, 4, 6\), got"),
        (wrong("bias", torch.ones(1, dtype=FLOAT)), r"bias must have shape \(4,\), got \(1,\)"),
        (wrong("weight", torch.ones(4, 3, 3, 2, dtype=FLOAT)), "does not divide 4 channels into groups"),
    ],
)
def test_sizes_that_do_not_fit_are_named(values, said):
    with pytest.raises(OptionError, match=said):
        deform_conv2d(**values)
