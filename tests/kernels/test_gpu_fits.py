"""Whole fits on a GPU: as good as on the CPU, the same bits twice, and the place where "auto" computes."""

import logging

import numpy
import pytest
import torch

import cartograd
from cartograd.embedding import device_choice
from cartograd.errors import MemoryBudgetError
from cartograd.metrics import trustworthiness

pytestmark = pytest.mark.gpu

METHODS = {
    "UMAP": {"n_neighbors": 15, "max_iter": 200},
    "TSNE": {"max_iter": 500},
    "LargeVis": {"max_iter": 500},
    "InfoTSNE": {"max_iter": 400, "n_negatives": 50},
    "PACMAP": {},
    "SNE": {"max_iter": 300},
}


def rows(n=3000):
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(20, 30, generator=generator)
    return centres[torch.randint(0, 20, (n,), generator=generator)] + torch.randn(n, 30, generator=generator)


@pytest.mark.parametrize("name", METHODS)
def test_a_map_is_as_good_as_on_the_cpu_and_the_same_twice(cuda_device, name):
    X = rows()

    def make(device):
        return getattr(cartograd, name)(**METHODS[name], random_state=0, device=device)

    first, second = (make("cuda").fit_transform(X) for _ in range(2))
    assert torch.equal(first, second)
    ours, theirs = (trustworthiness(X, Z, 15) for Z in (first, make("cpu").fit_transform(X)))
    assert abs(float(ours) - float(theirs)) < 0.01
    assert float(ours) > 0.8


def test_tsne_by_a_grid_and_by_all_pairs_reach_the_same_divergence(cuda_device):
    X = rows(6000).to(cuda_device)
    fits = [cartograd.TSNE(method=method, max_iter=500).fit(X) for method in ("fft", "exact")]
    assert fits[0].kl_divergence_ == pytest.approx(fits[1].kl_divergence_, rel=0.02)


def test_auto_takes_many_rows_to_the_card_and_answers_where_they_came_from(cuda_device, caplog, monkeypatch):
    monkeypatch.setattr(device_choice, "ROWS", 1000)
    monkeypatch.delenv("CARTOGRAD_DEVICE", raising=False)
    X = rows(2000).numpy()
    with caplog.at_level(logging.INFO, logger="cartograd.embedding"):
        model = cartograd.UMAP(15, max_iter=20).fit(X)
    assert "2000 rows go to the GPU" in caplog.text
    assert isinstance(model.embedding_, numpy.ndarray)
    assert model._placement.places.device.type == "cuda"
    assert cartograd.UMAP(15, max_iter=20, device="cpu").fit(X)._placement.places.device.type == "cpu"


def test_memory_that_runs_out_is_told_with_the_estimate(cuda_device, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cartograd.UMAP, "_start", full)
    with pytest.raises(MemoryBudgetError, match=r"UMAP ran out of memory on cuda.*GiB were expected.*device='cpu'"):
        cartograd.UMAP(15, max_iter=20).fit(rows(500).to(cuda_device))
