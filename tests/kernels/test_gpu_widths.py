"""Widths of neighbourhoods by kernels, against the searches of `cartograd.affinity`."""

import math

import pytest
import torch

from cartograd.affinity.entropic_rows import _solve_chunk
from cartograd.affinity.fuzzy import _reach
from cartograd.affinity.rootsearch import bracket, falling_root
from cartograd.kernels import gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def distances(m, dtype, device):
    D = (5 * torch.rand(60, m, generator=torch.Generator().manual_seed(m))).sort(1).values
    D[0], D[1, :20], D[2], D[4] = 1.0, D[1, 0].clone(), 1e-8 * D[2], 0.0
    D[3] = torch.linspace(0, 1e6, m) ** 2
    return D.to(dtype).to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("m", "perplexity"), [(29, 10.5), (90, 30.0)])
def test_entropic_rows(kernel_device, m, perplexity, dtype):
    D = distances(m, dtype, kernel_device)
    found = gpu.load("widths").entropic(D, perplexity)
    true = _solve_chunk(D.double(), math.log(perplexity))
    torch.testing.assert_close(found.double(), true, rtol=1e-6, atol=1e-6 if dtype == torch.float32 else 1e-9)
    usual = torch.special.entr(found[5:].double().exp()).sum(1)
    torch.testing.assert_close(usual, torch.full_like(usual, math.log(perplexity)), rtol=1e-6, atol=0)


@pytest.mark.parametrize("m", [14, 29])
def test_smooth_widths(kernel_device, m):
    D = distances(m, torch.float32, kernel_device)
    reach, target = _reach(D.double(), 1.0), math.log2(m + 1)
    found = gpu.load("widths").smooth(D, reach, target)
    excess = (D.double() - reach[:, None]).clamp(min=0)

    def residual(u):
        E = torch.exp(-torch.exp(u)[:, None] * excess)
        return E.sum(1) - target, -(torch.exp(u)[:, None] * excess * E).nan_to_num(0.0).sum(1)

    true = torch.where(excess.amax(1) > 0, torch.exp(-falling_root(residual, *bracket(excess))), 0.0)
    torch.testing.assert_close(found, true, rtol=1e-9, atol=0)
    sums = torch.exp(-excess[5:] / found[5:, None]).sum(1)
    torch.testing.assert_close(sums, torch.full_like(sums, target), rtol=1e-9, atol=0)
