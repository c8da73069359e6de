"""`precision` and `n_jobs`: what rows, map and steps are computed in, by how many threads."""

import numpy
import pytest
import torch

import cartograd
from cartograd.embedding import umap_rows
from cartograd.errors import OptionError
from cartograd.kernels import cpu

X = numpy.random.RandomState(0).rand(120, 5)
MANY = numpy.random.RandomState(1).rand(4200, 5)
SETTINGS = {
    "UMAP": {"n_neighbors": 6},
    "TSNE": {"perplexity": 6},
    "SNE": {"perplexity": 6},
    "LargeVis": {"perplexity": 6},
    "InfoTSNE": {"perplexity": 6, "n_negatives": 20},
    "PACMAP": {"n_neighbors": 5, "iter_per_phase": 4},
}


def fit(name, rows, **options):
    return getattr(cartograd, name)(random_state=0, **{"max_iter": 10, **SETTINGS[name], **options}).fit(rows)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_map_has_the_dtype_of_the_rows(name):
    for dtype in ("float32", "float64"):
        for precision in ("float32", "float64"):
            model = fit(name, X.astype(dtype), precision=precision)
            assert model.embedding_.dtype == model.transform(X[:3].astype(dtype)).dtype == dtype


@pytest.mark.parametrize("name", SETTINGS)
def test_float64_moves_points_by_float64(name):
    coarse, fine = (fit(name, X, precision=precision).embedding_ for precision in ("float32", "float64"))
    assert (coarse == coarse.astype("float32")).all()
    assert not (fine == fine.astype("float32")).all()
    spread = fine.std()
    assert numpy.abs(coarse - fine).max() < 2e-2 * spread


def test_rows_of_float64_are_laid_out_by_the_kernels(monkeypatch):
    used, load = [], cpu.load
    monkeypatch.setattr(cpu, "load", lambda name: used.append(name) or load(name))
    fit("UMAP", MANY)
    assert umap_rows.MODULE in used
    used.clear()
    fit("UMAP", MANY, precision="float64")
    assert umap_rows.MODULE not in used


@pytest.mark.parametrize("name", ["UMAP", "TSNE", "LargeVis", "InfoTSNE", "PACMAP"])
@pytest.mark.parametrize("components", [1, 3])
def test_kernels_of_other_dimensions_agree_with_torch(name, components, monkeypatch):
    options = {"n_components": components, "max_iter": 2, "early_exaggeration_iter": 1}
    if name in ("PACMAP", "LargeVis"):
        options.pop("early_exaggeration_iter")
    rows = MANY.astype("float32")
    by_kernels = fit(name, rows, **options).embedding_
    monkeypatch.setattr(cpu, "usable", lambda: False)
    by_torch = fit(name, rows, **options).embedding_
    assert numpy.abs(by_kernels - by_torch).max() < 1e-3 * by_torch.std()


def test_the_number_of_threads_changes_no_bit_and_is_put_back():
    before = torch.get_num_threads()
    maps = [fit("UMAP", MANY, n_jobs=jobs).embedding_ for jobs in (None, 1, 3, -1)]
    assert torch.get_num_threads() == before
    for other in maps[1:]:
        numpy.testing.assert_array_equal(other, maps[0])


@pytest.mark.parametrize("jobs", [0, 1.5, "2", True])
def test_what_is_no_number_of_threads_is_refused(jobs):
    with pytest.raises((OptionError, TypeError), match="n_jobs must be"):
        cartograd.UMAP(n_jobs=jobs).fit(X)
