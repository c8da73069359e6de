"""The kernels of t-SNE's grid against their plain versions in torch, and against the sums over all pairs."""

import itertools
import math
import subprocess
import sys

import numpy
import pytest
import torch

from cartograd.embedding.forces import compiled, exact, fft
from cartograd.embedding.forces.grid import Grid, overlaps, potential
from cartograd.embedding.forces.kernel import Kernel
from cartograd.embedding.forces.splines import weights
from cartograd.kernels import cpu
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")
N = 4500


def maps(seed=0):
    """Layouts of many extents, float32."""
    print("seed", seed)
    draw = torch.Generator().manual_seed(seed)
    normal = torch.randn(N, 2, generator=draw)
    centres = torch.randn(20, 2, generator=draw).repeat_interleave(-(-N // 20), 0)[:N]
    outliers = normal / 3
    outliers[:3] += 40
    return {
        "of 1e-4": 1e-4 * normal,
        "of 0.3": 0.05 * normal,
        "of 10": 10 * torch.rand(N, 2, generator=draw),
        "wide": 15 * normal,
        "even": 100 * torch.rand(N, 2, generator=draw),
        "sparse": 600 * torch.rand(N, 2, generator=draw),
        "clusters": 15 * centres + normal,
        "tight clusters": 15 * centres + 0.1 * normal,
        "outliers": outliers,
        "far from the origin": normal + 1000,
        "a line": torch.cat([15 * normal[:, :1], torch.zeros(N, 1)], 1),
    }


NAMES = tuple(maps())


def laid(Z, dtype):
    low, extents = fft._box(Z, 0.0)
    grid = fft._grid(low, extents, len(Z), fft.COMPILED)
    return grid, Kernel(grid.nodes, grid.spacing, CPU, dtype, grid.order)


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", NAMES)
def test_the_error_is_below_a_thousandth(name):
    Z = maps()[name]
    assert fft.by_kernels(Z)
    found, total = fft.FFTRepulsion()(Z)
    expected, sums = exact.tsne_repulsion(Z.double())
    error = relative(found.double(), expected)
    print(name, error)
    assert error < (3e-4 if name in ("wide", "clusters", "even", "of 10") else 1e-3)
    assert abs(float(total / sums) - 1) < 1e-4


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 5e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("name", ["wide", "clusters", "outliers"])
def test_charges_are_those_of_the_grid(name, dtype, bound):
    Z = maps()[name]
    grid, kernel = laid(Z, dtype)
    kernels, sums = cpu.load("fft_grid"), compiled.CompiledSums(kernel)
    ids, starts = numpy.empty(N, numpy.int32), numpy.empty(grid.nodes[0] + 1, numpy.int64)
    place = (Z.numpy(), grid.low.numpy(), 1 / grid.spacing)
    kernels.arrange(*place, ids, starts, numpy.empty(N, numpy.int32))
    assert sorted(ids.tolist()) == list(range(N))
    expected, results = grid.charges(Z), []
    for cuts in ((0, grid.nodes[0]), (0, 3, 4, 50, grid.nodes[0]), range(grid.nodes[0] + 1)):
        charges = torch.full(grid.nodes, torch.nan, dtype=dtype)
        for top, bottom in itertools.pairwise(cuts):
            kernels.spread(*place, sums._values, ids, starts, charges.numpy(), top, bottom)
        results.append(charges)
        assert float((charges - expected).abs().max()) < bound * float(expected.max())
    assert all(torch.equal(charges, results[0]) for charges in results)  # whatever the bands


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-5), (torch.float64, 1e-5)])
@pytest.mark.parametrize("name", ["wide", "sparse", "of 10"])
def test_what_is_read_is_what_the_grid_reads(name, dtype, bound):
    Z = maps()[name]
    grid, kernel = laid(Z, dtype)
    sums, pulls = compiled.CompiledSums(kernel)(grid, Z)
    expected = grid.read(potential(grid, Z, kernel), Z, kernel.near)
    assert relative(sums, expected[0]) < bound
    assert relative(pulls.double(), expected[1:].T * -0.5) < bound


def test_the_convolution_is_the_kernels():
    grid = Grid(torch.zeros(2, dtype=torch.float64), (184, 220), 0.25, 7)
    kernel = Kernel(grid.nodes, grid.spacing, CPU, torch.float32, 7)
    charges = torch.rand(grid.nodes, generator=torch.Generator().manual_seed(0))
    sums = compiled.CompiledSums(kernel)
    sums._charges.zero_()
    sums._charges[:, : grid.nodes[1]] = charges
    expected = Kernel(grid.nodes, grid.spacing, CPU, torch.float64, 7).convolve(charges.double())
    assert relative(sums._convolved()[:, : grid.nodes[1]].double(), expected) < 1e-6


@pytest.mark.parametrize("spacing", [0.25, 0.5])
def test_a_points_own_potential_is_nearly_a_wave(spacing):
    near = Kernel((40, 40), spacing, CPU, torch.float64, 7).near
    even, single, double = compiled.own_wave(near).tolist()
    t = torch.linspace(0, 0.99, 34, dtype=torch.float64)
    shares, rises = overlaps(*weights(t, 7))
    wave, turn = torch.cos(2 * math.pi * t), torch.sin(2 * math.pi * t)
    own = shares.T @ near @ shares
    found = even + single * (wave[:, None] + wave) + double * wave[:, None] * wave
    assert float((found - own).abs().max()) < 0.02 * float(own.max() - own.min())
    slope = -math.pi * turn[:, None] * (single + double * wave)
    assert relative(slope, rises.T @ near @ shares) < 0.02


@pytest.mark.parametrize("n", [N, 40_000])
def test_the_same_bits_at_any_thread_count(n):
    Z = 20 * torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    before, runs = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            with all_cores(CPU):
                repulsion = fft.FFTRepulsion()
                runs += [repulsion(Z), repulsion(Z)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(run[0], runs[0][0]) and torch.equal(run[1], runs[0][1]) for run in runs)


def test_what_came_before_does_not_matter():
    steps = [maps()[name] for name in ("of 1e-4", "of 10", "wide", "clusters")]
    repulsion = fft.FFTRepulsion()
    for Z in [*steps, *steps[::-1]]:
        assert torch.equal(repulsion(Z)[0], fft.FFTRepulsion()(Z)[0])


def test_small_maps_and_other_types_stay_with_torch():
    assert not fft.by_kernels(torch.zeros(3000, 2))
    assert not fft.by_kernels(torch.zeros(5000, 4))
    assert not fft.by_kernels(torch.zeros(5000, 2, dtype=torch.float64))
    code = """
import sys, torch, cartograd
X = torch.rand(400, 5, generator=torch.Generator().manual_seed(0))
cartograd.TSNE(perplexity=5, max_iter=4, method="fft").fit(X)
print("numba" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.strip() == "False"
