"""New rows by the kernel: where torch puts them, each alone, on any number of threads."""

import numpy
import pytest
import torch

from cartograd import UMAP
from cartograd.embedding import umap_placing
from cartograd.kernels import cpu

pytestmark = pytest.mark.cpu

DRAWS = numpy.random.RandomState(0)
CENTRES = DRAWS.randn(12, 8) * 3
ROWS = (CENTRES[DRAWS.randint(12, size=4300)] + DRAWS.randn(4300, 8)).astype("float32")
TRAIN, NEW = ROWS[:4100], ROWS[4100:]


@pytest.fixture(scope="module")
def fitted():
    return UMAP(n_neighbors=10, max_iter=30, random_state=0).fit(TRAIN)


def by_torch(model, rows, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(umap_placing, "by_kernel", lambda *_: False)
        return model.transform(rows)


@pytest.mark.parametrize(
    "options",
    [{}, {"repulsion_strength": 3.0}, {"negative_sample_rate": 0}, {"negative_sample_rate": 7, "lr": 0.3}],
    ids=str,
)
def test_places_are_torchs_but_for_rounding(fitted, options, monkeypatch):
    model = UMAP(n_neighbors=10, max_iter=30, random_state=0).fit(TRAIN) if options else fitted
    model.set_params(**options)
    ours, plain = model.transform(NEW), by_torch(model, NEW, monkeypatch)
    apart = numpy.abs(ours - plain).max(1)
    print("largest difference", apart.max(), "of a map of", numpy.ptp(model.embedding_))
    assert apart.max() < 2e-3 * numpy.ptp(model.embedding_)
    assert numpy.median(apart) < 1e-4
    assert (ours != plain).any(), "the kernel was not used"


def test_a_row_does_not_depend_on_the_others_nor_on_threads(fitted):
    whole = fitted.transform(NEW)
    order = numpy.random.RandomState(1).permutation(len(NEW))
    assert numpy.array_equal(fitted.transform(NEW[order]), whole[order])
    assert numpy.array_equal(fitted.transform(NEW[7:8]), whole[7:8])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        repeated = numpy.concatenate([NEW] * 6)
        assert numpy.array_equal(fitted.transform(repeated), numpy.concatenate([whole] * 6))
    finally:
        torch.set_num_threads(threads)


def test_without_numba_torch_places_them(fitted, monkeypatch):
    plain = by_torch(fitted, NEW, monkeypatch)
    monkeypatch.setattr(cpu, "usable", lambda: False)
    assert numpy.array_equal(fitted.transform(NEW), plain)


def test_rows_at_the_place_of_a_fitted_point_are_not_lost(fitted):
    near = fitted._placement
    k, here = 4, torch.arange(4)[None, :].expand(3, 4).contiguous()
    Z = near.places[:3].clone()
    descent = umap_placing.Descent(1.5, 0.9, 1.0, 5, [0.1, 0.05])
    keys = torch.zeros(3, 2, dtype=torch.int64)
    out = umap_placing.settled(Z, near, here, torch.ones(3, k), torch.ones(3), keys, descent)
    assert bool(torch.isfinite(out).all())
