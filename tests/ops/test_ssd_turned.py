"""The scan that turns its keys: against the scan of keys turned by complex numbers, differentiated by torch."""

import pytest
import torch
from parity import randn
from turning import by_complex_numbers

import cartograd
from cartograd.kernels import gpu
from cartograd.ops.ssd_trapezoid import trapezoid_ssd
from cartograd.ops.ssd_turned import turned_ssd

PAIRINGS = ["adjacent", "halves"]
SHAPES = [(1, 3, 1, 2, 1, 4, 2), (3, 4, 2, 4, 2, 6, 1), (2, 3, 3, 4, 4, 4, 2), (2, 2, 1, 2, 1, 4, 0)]
"""Chunks, steps, ranks, heads, groups, channels of the state, angles."""


def inputs(chunks, steps, ranks, heads, groups, r, angles, batch=2, p=3):
    print("seeds 0 to 9")
    keys = (batch, chunks, steps)
    return [
        randn(*keys, ranks, heads, p, seed=0),
        -0.2 * randn(*keys, heads, seed=1).abs(),
        randn(*keys, ranks, groups, r, seed=2),
        randn(*keys, ranks, groups, r, seed=3),
        randn(*keys, heads, seed=4).abs() + 0.5,
        randn(*keys, heads, seed=5).abs() + 0.5,
        randn(heads, ranks, r, seed=6),
        randn(heads, ranks, r, seed=7),
        randn(*keys, heads, angles, seed=8),
        randn(batch, heads, p, r, seed=9),
    ]


def in_two_ops(v, da, B, C, scale, same, b_bias, c_bias, theta, state, pairing):
    keys, queries = (
        by_complex_numbers(rows.flatten(1, 2), bias, theta.flatten(1, 2), pairing).unflatten(1, rows.shape[1:3])
        for rows, bias in ((B, b_bias), (C, c_bias))
    )
    return trapezoid_ssd.as_torch()(v, da, keys, queries, scale, same, state)


def with_gradients(function, tensors, pairing):
    given = [one.clone().requires_grad_() for one in tensors]
    out = function(*given, pairing)
    seeds = [torch.randn(one.shape, generator=torch.Generator().manual_seed(7)).to(one) for one in out]
    torch.autograd.backward(out, seeds)
    return [one.detach().double().cpu() for one in (*out, *(leaf.grad for leaf in given))]


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_all_gradients_are_those_of_two_ops(shape, pairing):
    tensors = inputs(*shape)
    found, expected = (with_gradients(one, tensors, pairing) for one in (turned_ssd.as_torch(), in_two_ops))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_only_what_was_given_is_saved():
    given = [cartograd.tensor(one, requires_grad=True) for one in inputs(*SHAPES[1])]
    y, last = turned_ssd(*given)
    assert sum(block.bytes for block in cartograd.trace(y).saved()) == sum(one.data.nbytes for one in given)
    (y.sum() + last.sum()).backward()
    assert all(one.grad is not None for one in given)


@pytest.mark.gpu
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)], ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 70, 1, 4, 1, 32, 8, 64),
        (1, 75, 2, 4, 2, 40, 20, 20),
        (1, 45, 3, 2, 2, 16, 4, 16),
        (1, 130, 1, 8, 1, 128, 32, 64),
    ],
    ids=str,
)
def test_kernels_agree_with_float64(shape, dtype, limit, pairing):
    device = torch.device("cpu" if gpu.interpreted() else "cuda")
    if not gpu.interpreted() and not (torch.cuda.is_available() and gpu.on(device)):
        pytest.skip("needs a CUDA device with Triton")
    exact = [
        one.to(dtype if place in (0, 2, 3) else torch.float32)
        for place, one in enumerate(inputs(*shape[:-1], batch=1, p=shape[-1]))
    ]
    found = with_gradients(turned_ssd.as_torch(), [one.to(device) for one in exact], pairing)
    expected = with_gradients(turned_ssd.as_torch(), [one.double() for one in exact], pairing)
    errors = [float((one - other).abs().max() / other.abs().max()) for one, other in zip(found, expected, strict=True)]
    assert max(errors) < limit, [f"{error:.1e}" for error in errors]
