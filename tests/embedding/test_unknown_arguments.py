"""Arguments of other libraries: one line says what to write instead."""

import inspect
import warnings

import pytest
import sklearn.decomposition
import sklearn.manifold

import cartograd
from cartograd.embedding.unknown_arguments import INSTEAD
from cartograd.errors import UnsupportedError

with warnings.catch_warnings():  # umap-learn warns that Tensorflow is absent
    warnings.simplefilter("ignore")
    import openTSNE
    import pacmap
    import umap

PEERS = {
    "UMAP": [umap.UMAP],
    "TSNE": [openTSNE.TSNE, sklearn.manifold.TSNE],
    "PACMAP": [pacmap.PaCMAP],
    "PCA": [sklearn.decomposition.PCA],
    "KernelPCA": [sklearn.decomposition.KernelPCA],
    "IncrementalPCA": [sklearn.decomposition.IncrementalPCA],
}


def foreign_arguments():
    for name, peers in PEERS.items():
        ours = set(inspect.signature(getattr(cartograd, name)).parameters)
        for peer in peers:
            theirs = inspect.signature(peer).parameters
            yield from ((name, one) for one in theirs if one not in ours and one not in ("args", "kwargs", "self"))


@pytest.mark.parametrize(("name", "argument"), list(foreign_arguments()))
def test_every_argument_of_a_peer_is_told_of(name, argument):
    with pytest.raises(UnsupportedError) as caught:
        getattr(cartograd, name)(**{argument: 1})
    said = str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert said == f"{name} has no parameter {argument!r}: {INSTEAD[argument]}"
    assert "\n" not in said


def test_a_name_that_is_nearly_right():
    with pytest.raises(TypeError, match="UMAP has no parameter 'n_neighbours': did you mean 'n_neighbors'"):
        cartograd.UMAP(n_neighbours=3)


def test_arguments_by_position():
    assert cartograd.UMAP(7).n_neighbors == 7
    with pytest.raises(TypeError, match="UMAP takes n_neighbors by position, got 2 arguments"):
        cartograd.UMAP(7, 2)
    with pytest.raises(TypeError, match="got n_neighbors twice"):
        cartograd.UMAP(7, n_neighbors=7)


def test_pacmap_by_the_name_of_its_package():
    assert cartograd.PaCMAP is cartograd.PACMAP
