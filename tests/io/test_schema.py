"""The schema of model files knows what every estimator holds, however it was fitted."""

import warnings

import numpy
import pandas
import pytest
import torch
from scipy.sparse import csr_array

import cartograd
from cartograd.affinity import GaussianAffinity, StudentAffinity
from cartograd.io import schema

ROWS = numpy.random.RandomState(0).rand(70, 5).astype("float32")
NEW = numpy.random.RandomState(1).rand(9, 5).astype("float32")
EQUAL = numpy.ones((20, 5), dtype="float32")
TWICE = numpy.concatenate([ROWS, ROWS[:30]])
WIDE = numpy.random.RandomState(2).rand(130, 120).astype("float32")
SQUARE = numpy.abs(ROWS[:, None] - ROWS[None]).sum(2)
NAMES = (
    "COSNE ExactIncrementalPCA IncrementalPCA InfoTSNE KernelPCA LargeVis PACMAP PCA PHATE SNE TSNE TSNEkhorn UMAP"
).split()
KINDS = {
    "float64": ROWS.astype("float64"),
    "large": ROWS.astype("float64") * 1e30,
    "torch": torch.from_numpy(ROWS),
    "tensor": cartograd.Tensor(torch.from_numpy(ROWS)),
    "frame": pandas.DataFrame(ROWS, columns=list("abcde")),
    "sparse": csr_array(ROWS * (ROWS > 0.5)),
    "half": ROWS.astype("float16"),
    "whole": (ROWS * 100).astype("int64"),
    "equal": EQUAL,
    "twice": TWICE,
}
SHORT = {"max_iter": 4}
MODELS = {
    "a line": (cartograd.UMAP(n_components=1, **SHORT), ROWS, NEW),
    "in space": (cartograd.TSNE(n_components=3, **SHORT), ROWS, NEW),
    "reduced": (cartograd.PACMAP(**SHORT), WIDE, WIDE[:4] + 0.5),
    "distances": (cartograd.UMAP(metric="precomputed", n_neighbors=5, **SHORT), SQUARE, SQUARE[:4] + 0.5),
    "distances of t-SNE": (cartograd.TSNE(metric="precomputed", perplexity=5, **SHORT), SQUARE, SQUARE[:4] + 0.5),
    "distances of COSNE": (cartograd.COSNE(metric="precomputed", perplexity=5, **SHORT), SQUARE, SQUARE[:4] + 0.5),
    "every row": (cartograd.UMAP(process_duplicates=False, **SHORT), TWICE, NEW),
    "cosine": (cartograd.UMAP(metric="cosine", **SHORT), ROWS, NEW),
    "an encoder": (cartograd.UMAP(encoder="mlp", decoder="mlp", hidden_sizes=(8,), n_epochs=2), ROWS, NEW),
    "standard sizes": (cartograd.TSNE(encoder="mlp", n_epochs=2), ROWS, NEW),
    "attention": (cartograd.UMAP(encoder="attention", n_epochs=2), ROWS.reshape(70, 5, 1), NEW.reshape(9, 5, 1)),
    "mamba": (cartograd.UMAP(encoder="mamba3", n_epochs=2), ROWS.reshape(70, 5, 1), NEW.reshape(9, 5, 1)),
    "images": (
        cartograd.UMAP(encoder="cnn", n_epochs=2),
        WIDE[:, :64].reshape(130, 1, 8, 8),
        WIDE[:3, 9:73].reshape(3, 1, 8, 8),
    ),
    "a decoder": (cartograd.LargeVis(decoder="mlp", perplexity=5, batch_size=64, **SHORT), ROWS, NEW),
    "landmarks": (cartograd.PHATE(n_landmarks=20, **SHORT), ROWS, NEW),
    "a kernel": (cartograd.KernelPCA(affinity=StudentAffinity(zero_diag=False)), ROWS, NEW),
    "all of a kernel": (cartograd.KernelPCA(n_components=None, affinity=GaussianAffinity(zero_diag=False)), ROWS, NEW),
    "a kernel given": (cartograd.KernelPCA(affinity="precomputed"), ROWS @ ROWS.T * 1e6, NEW @ ROWS.T * 1e6),
    "all components": (cartograd.PCA(n_components=None), ROWS, NEW),
    "frames": (cartograd.PCA().set_output(transform="pandas"), KINDS["frame"], KINDS["frame"][:5]),
    "a start": (cartograd.UMAP(init=ROWS[:, :2], device="cpu", lr=0.5, **SHORT), ROWS, NEW),
    "float64": (cartograd.UMAP(precision="float64", **SHORT), ROWS, NEW),
}


def again(model, tmp_path):
    model.save(tmp_path / "m")
    return cartograd.load(tmp_path / "m")


def fitted(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small data
        return model.fit(X)


def assert_alike(model, X, new, tmp_path):
    other = again(fitted(model, X), tmp_path)
    expected, found = model.transform(new), other.transform(new)
    numpy.testing.assert_array_equal(numpy.asarray(found), numpy.asarray(expected))
    private = [name for name in vars(model) if name.startswith("_") and name not in schema.FITTED]
    assert private == []


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_of_every_kind_of_rows(name, kind, tmp_path):
    cls, X = getattr(cartograd, name), KINDS[kind]
    options = {"max_iter": 4} if "max_iter" in cls().get_params() else {}
    options |= {"perplexity": 5} if "perplexity" in cls().get_params() else {}
    new = NEW * 1e30 if kind == "large" else NEW.astype("float64") if kind == "float64" else NEW
    if kind == "sparse":
        new = csr_array(NEW)
    if kind == "frame":
        new = pandas.DataFrame(NEW, columns=list("abcde"))
    try:
        fitted(cls(**options), X)
    except cartograd.CartogradError as error:
        pytest.skip(f"{name} refuses these rows: {error}")
    assert_alike(cls(**options), X, new, tmp_path)


@pytest.mark.parametrize("name", list(MODELS))
def test_other_models(name, tmp_path):
    assert_alike(*MODELS[name], tmp_path)


def test_supervised(tmp_path):
    model = fitted(cartograd.UMAP(n_neighbors=5, **SHORT), ROWS)
    model.fit(ROWS, numpy.arange(70) % 3)
    assert numpy.array_equal(again(model, tmp_path).transform(NEW), model.transform(NEW))


def test_parameters_changed_after_the_fit(tmp_path):
    model = fitted(cartograd.UMAP(n_neighbors=5, **SHORT), ROWS).set_params(
        n_components=3, metric="cosine", n_neighbors=9
    )
    other = again(model, tmp_path)
    assert (other.n_components, other.metric, other.n_neighbors) == (3, "cosine", 9)
    assert numpy.array_equal(other.transform(NEW), model.transform(NEW))


def test_incremental_fits(tmp_path):
    for cls in (cartograd.IncrementalPCA, cartograd.ExactIncrementalPCA):
        model = cls(n_components=2)
        for part in (ROWS[:35], ROWS[35:]):
            model.partial_fit(part)
        other = again(model, tmp_path)
        assert numpy.array_equal(other.transform(NEW), model.transform(NEW))
        assert numpy.array_equal(other.partial_fit(NEW).components_, model.partial_fit(NEW).components_)


def test_rows_in_a_file(tmp_path):
    mapped = numpy.memmap(tmp_path / "rows", dtype="float32", mode="w+", shape=ROWS.shape)
    mapped[:] = ROWS
    assert_alike(cartograd.UMAP(n_neighbors=5, **SHORT), mapped, NEW, tmp_path)
    assert_alike(cartograd.KernelPCA(), mapped, NEW, tmp_path)


def test_every_declared_constraint_is_met_by_some_estimator(tmp_path):
    declared = {name for name in schema.FITTED if name != "_sklearn_output_config"}
    seen = set()
    for model, X, _ in MODELS.values():
        seen |= set(vars(fitted(model, X)))
    for name in NAMES:
        cls = getattr(cartograd, name)
        seen |= set(vars(fitted(cls(**({"max_iter": 2} if "max_iter" in cls().get_params() else {})), ROWS)))
    assert sorted(declared - seen - {"given_mean_"}) == []
