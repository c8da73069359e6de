"""Keys spread to heads, biased and turned: complex numbers and torch's autograd say what is right, the kernel too."""

import pytest
import torch
from turning import by_complex_numbers

import cartograd
from cartograd.kernels import gpu
from cartograd.ops.rotary import turned_keys

CASES = [(1, 1, 4, 8, 4), (2, 2, 4, 12, 3), (3, 4, 4, 6, 0), (1, 2, 2, 128, 32)]


def inputs(ranks, groups, heads, r, angles, seed=0, dtype=torch.float64):
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    shapes = (2, 37, ranks, groups, r), (heads, ranks, r), (2, 37, heads, angles)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_complex_numbers(case, pairing):
    found = []
    for function in (turned_keys.as_torch(), by_complex_numbers):
        given = [one.requires_grad_() for one in inputs(*case)]
        out = function(*given, pairing)
        out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=out.dtype))
        found.append([out.detach(), *(one.grad for one in given)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_only_what_was_given_is_saved():
    given = [cartograd.tensor(one, requires_grad=True) for one in inputs(1, 1, 4, 8, 4)]
    out = turned_keys(*given)
    assert sum(block.bytes for block in cartograd.trace(out).saved()) == sum(one.data.nbytes for one in given)


@pytest.mark.gpu
@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.bfloat16, 0.01)], ids=str)
@pytest.mark.parametrize("case", [one for one in CASES if one[4]], ids=str)
def test_the_kernel_agrees_with_float64(case, dtype, limit, pairing):
    if not torch.cuda.is_available() or not gpu.on(torch.device("cuda")):
        pytest.skip("needs a CUDA device with Triton")
    rows, bias, theta = inputs(*case)
    given = rows.to(dtype), bias.float(), theta.float()
    expected = turned_keys.forward(*(one.double() for one in given), pairing)
    g = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    wanted = [expected, *turned_keys.rules[0].function(g.double(), *(one.double() for one in given), pairing)]
    device = [one.cuda() for one in given]
    found = [turned_keys.forward(*device, pairing), *turned_keys.rules[0].function(g.cuda(), *device, pairing)]
    assert [one.dtype for one in found] == [dtype, dtype, torch.float32, torch.float32]
    for one, other in zip(found, wanted, strict=True):
        assert (one.double().cpu() - other).abs().max() < limit * other.abs().max()
