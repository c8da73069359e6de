"""Files that version 0.1 wrote: they load, and place new rows where 0.1 placed them."""

import json
import pickle
import shutil
from pathlib import Path

import numpy
import pytest
from machine_key import machine_key
from make_witnesses import cases

import cartograd

FOLDER = Path(__file__).resolve().parent / "data" / "0.1"
PLACES = numpy.load(FOLDER / "places.npz")
SAME_MACHINE = json.loads((FOLDER / "machine.json").read_text()) == machine_key()
CASES = cases()
NAMES = [name for name, (_, rows, _, _) in CASES.items() if rows is not None]


def assert_same_coordinates(found, expected):
    """Compare bit by bit where the machine is the one that wrote the files, elsewhere within 1e-5 of the spread."""
    if SAME_MACHINE:
        numpy.testing.assert_array_equal(found, expected)
    else:
        numpy.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * float(abs(expected).max()))


def test_every_estimator_left_a_model_file():
    estimators = {
        "COSNE", "ExactIncrementalPCA", "IncrementalPCA", "InfoTSNE", "KernelPCA", "LargeVis", "PACMAP", "PCA",
        "PHATE", "SNE", "TSNE", "TSNEkhorn", "UMAP",
    }  # fmt: skip
    files = {path.stem for path in FOLDER.glob("*.cartograd")}
    assert files == set(CASES)
    assert estimators <= files


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_0_1_places_new_rows_alike(name):
    model = cartograd.load(FOLDER / f"{name}.cartograd")
    new = CASES[name][3]
    placed = model.transform(new)
    assert placed.dtype == PLACES[f"{name}.new"].dtype
    assert_same_coordinates(placed, PLACES[f"{name}.new"])
    if hasattr(model, "embedding_"):
        numpy.testing.assert_array_equal(model.embedding_, PLACES[f"{name}.map"])


def test_an_unfitted_model_of_0_1_keeps_its_parameters():
    model = cartograd.load(FOLDER / "TSNE-unfitted.cartograd")
    assert (model.perplexity, model.max_iter, model.random_state, hasattr(model, "embedding_")) == (12, 60, 0, False)


def test_a_saved_model_of_0_1_can_be_saved_again(tmp_path):
    model = cartograd.load(FOLDER / "UMAP.cartograd")
    model.save(tmp_path / "again.cartograd")
    new = CASES["UMAP"][3]
    assert_same_coordinates(cartograd.load(tmp_path / "again.cartograd").transform(new), PLACES["UMAP.new"])


def test_a_checkpoint_of_0_1_is_resumed(tmp_path):
    folder = shutil.copytree(FOLDER / "checkpoint", tmp_path / "checkpoint")
    model = cartograd.UMAP(n_neighbors=30, max_iter=60, random_state=0, check_interval=20)
    model.set_params(checkpoint_dir=folder, checkpoint_every=20, resume=True)
    if SAME_MACHINE:  # elsewhere the last bits of 40 more steps differ by more than a bound could say
        assert_same_coordinates(model.fit_transform(CASES["UMAP"][1]), PLACES["UMAP.map"])
    else:
        assert model.fit(CASES["UMAP"][1]).n_iter_ == 60


def test_a_pickle_of_0_1_loads():
    model = pickle.loads((FOLDER / "UMAP.pickle").read_bytes())
    assert_same_coordinates(model.transform(CASES["UMAP"][3]), PLACES["UMAP.new"])
