"""Every estimator in a file and back: the same bits from transform; also by pickle and copy."""

import copy
import pickle
import warnings

import numpy
import pytest
import torch

import cartograd
from cartograd.errors import ModelFileError

ROWS = numpy.random.RandomState(0).rand(70, 5).astype("float32")
NEW = numpy.random.RandomState(1).rand(9, 5).astype("float32")
NAMES = (
    "COSNE ExactIncrementalPCA IncrementalPCA InfoTSNE KernelPCA LargeVis PACMAP PCA PHATE SNE TSNE TSNEkhorn UMAP"
).split()


def fitted(name, X=ROWS):
    kind = getattr(cartograd, name)
    options = {"max_iter": 6} if "max_iter" in kind().get_params() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # 30 neighbours or perplexity 30 are many for 70 rows
        return kind(**options).fit(X)


@pytest.mark.parametrize("name", NAMES)
def test_round_trips(name, tmp_path):
    model = fitted(name)
    expected = model.transform(NEW), model.transform(ROWS)
    model.save(tmp_path / "a.cartograd")
    for other in (
        cartograd.load(tmp_path / "a.cartograd"),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ):
        assert type(other) is type(model)
        assert other.get_params() == model.get_params()
        assert numpy.array_equal(other.transform(NEW), expected[0])
        assert numpy.array_equal(other.transform(ROWS), expected[1])
        if hasattr(model, "embedding_"):
            assert numpy.array_equal(other.embedding_, model.embedding_)


def test_supervised_sparse_and_torch_models(tmp_path):
    from scipy.sparse import csr_array

    for X in (csr_array(ROWS), torch.from_numpy(ROWS)):
        model = cartograd.UMAP(n_neighbors=5, max_iter=4).fit(X, numpy.arange(70) % 3)
        model.save(tmp_path / "b.cartograd")
        again = cartograd.load(tmp_path / "b.cartograd")
        assert numpy.array_equal(numpy.asarray(again.transform(NEW)), numpy.asarray(model.transform(NEW)))
        assert type(again.embedding_) is type(model.embedding_)


def test_an_unfitted_model_and_one_with_a_function(tmp_path):
    cartograd.TSNE(perplexity=7.5).save(tmp_path / "c.cartograd")
    assert cartograd.load(tmp_path / "c.cartograd").perplexity == 7.5
    with pytest.raises(ModelFileError, match="metric"):
        cartograd.UMAP(metric=lambda x, y: (x - y).abs().sum(-1)).save(tmp_path / "d.cartograd")
    assert not (tmp_path / "d.cartograd").exists()
