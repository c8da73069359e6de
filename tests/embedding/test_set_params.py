"""`set_params` after a fit changes the next fit, not where a fitted map places new rows."""

import numpy
import pytest

import cartograd

X = numpy.random.RandomState(0).rand(80, 4).astype("float32")
NEW = numpy.random.RandomState(1).rand(20, 4).astype("float32")
CHANGES = {
    "UMAP": {
        "negative_sample_rate": 20,
        "repulsion_strength": 5.0,
        "local_connectivity": 4.0,
        "n_components": 3,
        "lr": 0.1,
        "n_neighbors": 40,
        "metric": "cosine",
        "backend": "cells",
    },
    "LargeVis": {"n_negatives": 50, "repulsion_strength": 5.0, "metric": "cosine"},
    "InfoTSNE": {"n_negatives": 50, "repulsion_strength": 5.0},
    "TSNE": {"repulsion_strength": 5.0, "n_components": 3, "perplexity": 3.0},
    "SNE": {"repulsion_strength": 5.0},
    "TSNEkhorn": {"repulsion_strength": 5.0},
    "COSNE": {"gamma": 0.5, "learning_rate_for_h_loss": 9.0, "repulsion_strength": 5.0},
    "PACMAP": {"repulsion_strength": 5.0, "n_neighbors": 3, "FP_ratio": 5.0},
    "PHATE": {"metric_in": "cosine", "n_components": 3},
    "KernelPCA": {"affinity": cartograd.StudentAffinity(zero_diag=False), "n_components": 3},
    "PCA": {"n_components": 3},
}


@pytest.mark.parametrize("name", CHANGES)
def test_new_rows_are_placed_by_the_parameters_of_the_fit(name):
    steps = {} if "PCA" in name else {"max_iter": 30}
    few = {"perplexity": 8} if "perplexity" in getattr(cartograd, name)().get_params() else {}
    model = getattr(cartograd, name)(random_state=0, **steps, **few).fit(X)
    before = model.transform(NEW)
    model.set_params(**CHANGES[name])
    numpy.testing.assert_array_equal(model.transform(NEW), before)
    assert {key: model.get_params()[key] for key in CHANGES[name]} == CHANGES[name]


def test_the_next_fit_follows():
    model = cartograd.UMAP(max_iter=10, random_state=0).fit(X)
    model.set_params(n_components=3)
    assert model.fit(X).transform(NEW).shape == (20, 3)


def test_a_saved_model_keeps_the_parameters_of_its_fit(tmp_path):
    model = cartograd.UMAP(max_iter=10, random_state=0).fit(X)
    before = model.transform(NEW)
    model.set_params(negative_sample_rate=20, repulsion_strength=9.0)
    model.save(tmp_path / "model")
    numpy.testing.assert_array_equal(cartograd.load(tmp_path / "model").transform(NEW), before)
