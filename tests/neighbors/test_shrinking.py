"""Where memory runs out tiles become smaller, and the answer is the same."""

import logging

import numpy as np
import pytest
import torch

import cartograd
from cartograd.errors import MemoryBudgetError
from cartograd.neighbors import calibrate, exact, search, tiles
from cartograd.neighbors.cells import CellJoin, tile_budget
from cartograd.neighbors.shrinking import shrinking

X = np.random.default_rng(4).normal(size=(3000, 8)).astype("float32")


def full(*_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_sizes_are_halved_until_the_work_fits(caplog):
    tried = []

    def work(size):
        tried.append(size)
        return size if size <= 100 else full()

    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        assert shrinking(work, 1000, 64, "sums") == 64
    assert tried == [1000, 500, 250, 125, 64]
    assert "sums: out of memory, trying again with tiles of size 64" in caplog.text


def test_below_the_least_the_error_is_torchs():
    tried = []
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        shrinking(lambda size: full(tried.append(size)), 100, 30, "sums")
    assert tried == [100, 50, 30]


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_an_exact_search_shrinks_its_tiles(metric, monkeypatch):
    expected = search(X, 7, metric=metric, backend="exact")
    real, seen = tiles.Tiles.scores, []

    def scores(self, a, b):
        seen.append(self.size)
        return real(self, a, b) if self.size <= 300 else full()

    monkeypatch.setattr(tiles.Tiles, "scores", scores)
    found = search(X, 7, metric=metric, backend="exact")
    assert min(seen) == 256
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_a_kernel_whose_copies_do_not_fit_gives_way_to_tiles(monkeypatch, caplog):
    expected = search(X, 7, backend="exact")
    monkeypatch.setattr(exact.fused, "serves", lambda *_: True)
    monkeypatch.setattr(exact.fused, "search_fused", full)
    with caplog.at_level(logging.INFO, "cartograd.neighbors"):
        np.testing.assert_array_equal(search(X, 7, backend="exact")[0], expected[0])
    assert "searching by tiles" in caplog.text


def test_a_search_in_cells_shrinks_its_tiles(monkeypatch, device):
    monkeypatch.setattr(calibrate, "serves", lambda problem: False)
    expected = search(X, 7, backend="cells", random_state=0)
    real, seen = CellJoin._join_nearest, []

    def join(self, cell):
        seen.append(self.budget)
        return real(self, cell) if self.budget <= 1 << 21 else full()

    monkeypatch.setattr(CellJoin, "_join_nearest", join)
    found = search(X, 7, backend="cells", random_state=0)
    assert max(seen) == tile_budget(device)
    assert min(seen) == 1 << 21
    np.testing.assert_array_equal(found[0], expected[0])


def test_a_fit_that_does_not_fit_in_the_smallest_tiles_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(tiles.Tiles, "scores", full)
    with pytest.raises(MemoryBudgetError, match=r"UMAP ran out of memory on .*GiB were expected.*use fewer neighbours"):
        cartograd.UMAP(n_neighbors=5, max_iter=2).fit(X[:300])
