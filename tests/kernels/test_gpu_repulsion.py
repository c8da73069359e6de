"""Repulsion from all points, by tiles and by a grid, against the sums in float64."""

import pytest
import torch

from cartograd.embedding.forces import exact, poincare
from cartograd.embedding.forces import gpu as forces
from cartograd.embedding.forces.grid import Grid
from cartograd.kernels import gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def error(found, true):
    return float((found.double() - true.double()).norm() / true.double().norm())


def points(n, scale, device, seed=1):
    Z = scale * torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    Z[5], Z[0] = Z[6], 1e3  # two in one place, one far away
    return Z.to(device)


@pytest.mark.parametrize("n", [300, 513])
def test_student_sums(kernel_device, n):
    kernels, Z, Q = gpu.load("repulsion"), points(n, 3.0, kernel_device), points(77, 1.0, kernel_device, 2)
    for queries, own in ((Z, True), (Q, False)):
        sums, pulls = kernels.student_sums(queries, Z, own)
        true_sums, true_pulls = exact.student_sums(queries.double(), Z.double(), own)
        torch.testing.assert_close(sums.double(), true_sums, rtol=1e-5, atol=0)  # of the one far away, too
        assert error(pulls, true_pulls) < 1e-6


def test_gaussian_sums(kernel_device):
    kernels, Z = gpu.load("repulsion"), points(300, 3.0, kernel_device)
    nearest, logs = kernels.gaussian_rows(Z, Z, True)
    true_nearest, true_logs = exact.gaussian_rows(Z.double(), Z.double(), True)
    torch.testing.assert_close(nearest.double(), true_nearest, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logs.double(), true_logs, rtol=1e-5, atol=1e-5)
    pulls = kernels.gaussian_pulls(Z, nearest, logs)
    assert error(pulls * (-2 / 300), exact.sne_repulsion(Z.double())[0]) < 1e-5


def test_the_grid_spreads_and_reads_as_the_twin(kernel_device):
    kernels = gpu.load("grid")
    Z = 5 * torch.randn(500, 2, generator=torch.Generator().manual_seed(3)).to(kernel_device)
    low = Z.amin(0).double()
    grid = Grid.over(low, [float((Z.amax(0) - low).max())] * 2, 0.25)
    side = grid.nodes[0]
    torch.testing.assert_close(kernels.charges(Z, low, 0.25, side, torch.float64), grid.charges(Z), rtol=0, atol=1e-12)
    potential = torch.randn(side, side, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(
        kernel_device
    )
    found = kernels.read(potential, Z, low, 0.25)
    torch.testing.assert_close(found, grid.read(potential, Z, None), rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [0.003, 0.3, 3.0, 10.0])
def test_repulsion_by_a_grid(kernel_device, monkeypatch, scale):
    monkeypatch.setattr(forces, "SPARSE", 1e9)
    Z = scale * torch.randn(2000, 2, generator=torch.Generator().manual_seed(5)).to(kernel_device)
    gradient, total = forces.GridRepulsion()(Z)
    true, true_total = exact.tsne_repulsion(Z.double())
    assert error(gradient, true) < 1e-3
    assert float(total / true_total - 1) == pytest.approx(0, abs=1e-4)


def test_a_map_too_wide_for_a_grid_is_summed_exactly(kernel_device):
    Z = points(300, 1e5, kernel_device)
    assert error(forces.GridRepulsion()(Z)[0], exact.tsne_repulsion(Z.double())[0]) < 1e-5
    lost = forces.GridRepulsion()(torch.full((200, 2), torch.nan, device=kernel_device))
    assert not bool(torch.isfinite(lost[1]))


def disc(n, device, seed=6):
    """Points of the unit disc up to its rim; two of them in one place, two very near each other."""
    Z = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    Z *= (torch.linspace(0.01, 1 - 1e-7, n, dtype=torch.float64) / Z.norm(dim=1))[:, None]
    Z[5], Z[8] = Z[6], Z[9] + 1e-12
    return Z.to(device)


@pytest.mark.parametrize("gamma", [0.1, 2.0])
@pytest.mark.parametrize("n", [300, 514])
def test_repulsion_in_the_disc(kernel_device, n, gamma):
    kernels, Z, Q = gpu.load("poincare"), disc(n, kernel_device), disc(77, kernel_device, 7)
    for queries, own in ((Z, True), (Q, False)):
        sums, pulls = kernels.repulsion_sums(queries, Z, own, gamma)
        true_sums, true_pulls = poincare.repulsion_sums(queries.cpu(), Z.cpu(), own, gamma)
        torch.testing.assert_close(sums.cpu(), true_sums, rtol=1e-11, atol=0)
        off = (pulls.cpu() - true_pulls).norm(dim=1)
        assert float((off / true_pulls.norm(dim=1)).max()) < 1e-9  # row by row: near the rim they are much longer


def test_cosne_takes_the_kernel(cuda_device):
    Z = disc(400, cuda_device)
    found, total = poincare.cosne_repulsion(Z, 2.0)
    again, _ = poincare.cosne_repulsion(Z, 2.0)
    assert torch.equal(found, again)
    true, true_total = poincare.cosne_repulsion(Z.cpu(), 2.0)
    assert float(total.cpu() / true_total - 1) == pytest.approx(0, abs=1e-11)
    assert error(found.cpu(), true) < 1e-9
    assert torch.equal(found, poincare.scaled(gpu.load("poincare").repulsion_sums(Z, Z, True, 2.0)[1], -4.0, total))
