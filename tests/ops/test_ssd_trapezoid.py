"""The trapezoidal rule in one pass: against the recurrence written out step by step, differentiated by torch."""

import pytest
import torch
from parity import randn

import cartograd
from cartograd.nn.trapezoid import Terms, chunked_scan, double, fused
from cartograd.ops.ssd_trapezoid import trapezoid_ssd

SHAPES = [(1, 1, 1, 1, 1), (1, 7, 1, 2, 2), (3, 4, 2, 4, 2), (2, 3, 3, 4, 1)]  # chunks, steps, ranks, heads, groups


def inputs(chunks, steps, ranks, heads, groups, batch=2, p=3, r=5):
    keys = (batch, chunks, steps)
    return [
        randn(*keys, ranks, heads, p, seed=0),
        -randn(*keys, heads, seed=1).abs(),
        randn(*keys, ranks, groups, r, seed=2),
        randn(*keys, ranks, groups, r, seed=3),
        randn(*keys, heads, seed=4),
        randn(*keys, heads, seed=5),
        randn(batch, heads, p, r, seed=6),
    ]


def recurrence(v, da, B, C, scale, same, state):
    """A step reads `same` times what it writes, and hands on `scale` times that."""
    repeats = v.shape[4] // B.shape[4]
    v, da, B, C, scale, same = (one.flatten(1, 2) for one in (v, da, B, C, scale, same))
    B, C = (one.repeat_interleave(repeats, 3) for one in (B, C))
    rows = []
    for t in range(v.shape[1]):
        written = torch.einsum("bmhp,bmhr->bhpr", v[:, t], B[:, t])
        kept = da[:, t, :, None, None].exp() * state
        rows.append(torch.einsum("bhpr,bmhr->bmhp", kept + same[:, t, :, None, None] * written, C[:, t]))
        state = kept + scale[:, t, :, None, None] * written
    return torch.stack(rows, 1), state


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_all_gradients_are_those_of_the_recurrence(shape):
    tensors = inputs(*shape)
    theirs = [one.clone().requires_grad_() for one in tensors]
    expected = recurrence(*theirs)
    seeds = [randn(*one.shape, seed=9 + place) for place, one in enumerate(expected)]
    torch.autograd.backward(expected, seeds)
    ours = [cartograd.tensor(one, requires_grad=True) for one in tensors]
    y, last = trapezoid_ssd(*ours)
    ((y.flatten(1, 2) * seeds[0]).sum() + (last * seeds[1]).sum()).backward()
    torch.testing.assert_close(y.data.flatten(1, 2), expected[0].detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(last.data, expected[1].detach(), rtol=0, atol=1e-12)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad.data, other.grad, rtol=0, atol=1e-11)


def test_one_pass_is_two_scans():
    """Mamba-3's terms: the fused formulation, which GPUs take, against the double one."""
    steps, keys = 11, (2, 11, 2, 4)
    made = [randn(*keys, 3, seed=0), randn(*keys, 5, seed=1), randn(*keys, 5, seed=2)]
    made += [-randn(2, steps, 4, seed=3).abs(), randn(2, steps, 4, seed=4).abs(), randn(2, steps, 4, seed=5).abs()]
    made += [randn(2, 2, 4, 3, seed=6), randn(2, 2, 4, 5, seed=7), randn(2, 4, 3, 5, seed=8)]
    for one, other in zip(fused(Terms(*made)), double(Terms(*made), chunked_scan(4, "recompute")), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_half_precision_is_summed_in_float32():
    tensors = inputs(2, 5, 2, 4, 2)
    half = [one.bfloat16() if place in (0, 2, 3) else one.float() for place, one in enumerate(tensors)]
    y, last = trapezoid_ssd.as_torch()(*half)
    expected = recurrence(*[one.double() for one in half])
    assert (y.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(last.double(), expected[1], rtol=0, atol=1e-5)
    assert (y.flatten(1, 2) - expected[0]).abs().max() < 0.004 * expected[0].abs().max()
