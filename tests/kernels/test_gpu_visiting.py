"""The search of some cells only: the kernel against its twin, and recall where it is asked for."""

import logging
import re

import pytest
import torch

from cartograd.kernels import gpu
from cartograd.neighbors import fused_cells, search
from cartograd.neighbors.fused_cells import Order

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def clustered(n, d, device, clusters=50):
    generator = torch.Generator().manual_seed(n)
    centres = 3 * torch.randn(clusters, d, generator=generator)
    return (centres[torch.randint(0, clusters, (n,), generator=generator)] + torch.randn(n, d, generator=generator)).to(
        device
    )


@pytest.mark.parametrize("d", [20, 150])
def test_candidates_are_those_of_the_twin(kernel_device, d, monkeypatch):
    kernels, nearest = gpu.load("visiting"), gpu.load("nearest")
    monkeypatch.setattr(kernels, "ROUNDS", 16)  # these cells have few tiles
    X = clustered(1500, d, kernel_device)
    home = torch.cdist(X, X[:5]).argmin(1)
    order = Order.of(home, 5, torch.Generator().manual_seed(0))
    near = torch.tensor([[0, 1], [1, 0], [2, 4], [3, 0], [4, 3]], device=kernel_device)
    visits = fused_cells.visits_of(order, near)
    values, squares = fused_cells._laid_out(nearest, X, X.mean(0), order, torch.float32)
    found = order.names[kernels.candidates(values, squares, visits, 16)[order.places].clamp(min=0).long()]
    twin = order.names[kernels.candidates_in_torch(values, squares, visits, 16)[order.places].clamp(min=0).long()]
    same = (found[:, :, None] == twin[:, None, :]).any(2).double().mean()
    assert float(same) > 0.998  # 16 bits of a distance are looked at
    seen = (home[found.long()][:, :, None] == near[home][:, None, :]).any(2)
    assert bool(seen.all())


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_recall_is_what_was_asked_for(cuda_device, metric, caplog):
    X = clustered(200_000, 32, cuda_device)
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        ids, distances = search(X, 15, metric=metric, backend="cells", random_state=0)
        again, _ = search(X, 15, metric=metric, backend="cells", random_state=0)
    assert "by one kernel" in caplog.text
    assert torch.equal(ids, again)
    truth, true_distances = search(X, 15, metric=metric, backend="exact")
    share = (ids[:, :, None] == truth[:, None, :]).any(2).double().mean()
    said = [float(one) for one in re.findall(r"recall ([0-9.]+) on a sample", caplog.text)]
    assert float(share) == pytest.approx(said[-1], abs=0.02)  # the sample is no better than other rows
    assert float(share) > 0.94
    assert not bool((ids == torch.arange(len(X), device=cuda_device)[:, None]).any())
    both = ids == truth
    torch.testing.assert_close(distances[both], true_distances[both])


def test_recall_is_read_off_rows_like_all_others(kernel_device, monkeypatch, caplog):
    """Rows that became centres of cells would find more of their neighbours than the rest."""
    kernels, ranking = gpu.load("visiting"), gpu.load("ranking")
    monkeypatch.setattr(kernels, "candidates", kernels.candidates_in_torch)
    monkeypatch.setattr(ranking, "measured", ranking.measured_in_torch)
    monkeypatch.setattr(fused_cells, "serves", lambda problem: True)
    monkeypatch.setattr(fused_cells, "ROWS_A_CELL", 256)
    X = clustered(30_000, 16, kernel_device, clusters=300)
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        ids, _ = search(X, 15, backend="cells")
    share = (ids[:, :, None] == search(X, 15, backend="exact")[0][:, None, :]).any(2).double().mean()
    said = [float(one) for one in re.findall(r"recall ([0-9.]+) on a sample", caplog.text)]
    assert float(share) == pytest.approx(said[0], abs=0.02)
    assert float(share) > 0.94
