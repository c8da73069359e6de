import numpy
import pytest

import cartograd
from cartograd.errors import OptionError, UnsupportedError

anndata = pytest.importorskip("anndata")
QUICK = {"n_neighbors": 8, "max_iter": 10}


@pytest.fixture
def adata():
    rng = numpy.random.default_rng(0)
    made = anndata.AnnData(rng.normal(size=(50, 6)).astype("float32"))
    made.obsm["X_pca"] = rng.normal(size=(50, 4))
    return made


def test_umap_writes_where_scanpy_does(adata):
    assert cartograd.tl.umap(adata, min_dist=0.3, **QUICK) is None
    model = cartograd.UMAP(min_dist=0.3, random_state=0, **QUICK)
    numpy.testing.assert_array_equal(adata.obsm["X_umap"], model.fit_transform(adata.obsm["X_pca"]))
    assert adata.uns["umap"] == {
        "params": {
            "random_state": 0,
            "min_dist": 0.3,
            "n_neighbors": 8,
            "max_iter": 10,
            "use_rep": "X_pca",
            "method": "UMAP",
        },
        "connectivities_key": "connectivities",
    }
    expected = model.affinity_in_.to_scipy()
    assert (adata.obsp["connectivities"] != expected).nnz == 0
    assert adata.obsp["connectivities"].shape == (50, 50)


def test_a_graph_of_another_tool_stays(adata):
    adata.obsp["connectivities"] = other = numpy.eye(50)
    cartograd.tl.umap(adata, **QUICK)
    numpy.testing.assert_array_equal(adata.obsp["connectivities"], other)
    assert adata.uns["umap"]["connectivities_key"] == "umap_connectivities"
    assert adata.obsp["umap_connectivities"].nnz > 50


def test_our_own_graph_is_replaced(adata):
    cartograd.tl.umap(adata, n_neighbors=5, max_iter=5)
    few = adata.obsp["connectivities"].nnz
    cartograd.tl.umap(adata, n_neighbors=12, max_iter=5)
    assert adata.obsp["connectivities"].nnz > few
    assert list(adata.obsp) == ["connectivities"]


@pytest.mark.parametrize("place", ["X", "counts", "X_pca"])
def test_what_is_mapped(adata, place):
    sparse = pytest.importorskip("scipy.sparse")
    adata.layers["counts"] = sparse.csc_array(adata.X * (adata.X > -1))
    source = {"X": adata.X, "counts": adata.layers["counts"].toarray(), "X_pca": adata.obsm["X_pca"]}[place]
    cartograd.tl.umap(adata, use_rep=place, key_added="mine", **QUICK)
    expected = cartograd.UMAP(random_state=0, **QUICK).fit_transform(source)
    numpy.testing.assert_allclose(adata.obsm["mine"], expected, rtol=1e-5, atol=1e-5)
    assert adata.uns["mine"]["params"]["use_rep"] == place
    assert "mine_connectivities" in adata.obsp
    assert "connectivities" not in adata.obsp


def test_x_without_components(adata):
    del adata.obsm["X_pca"]
    cartograd.tl.umap(adata, **QUICK)
    assert adata.uns["umap"]["params"]["use_rep"] == "X"


def test_a_copy_leaves_the_original(adata):
    copied = cartograd.tl.tsne(adata, copy=True, perplexity=5, max_iter=10)
    assert "X_tsne" not in adata.obsm
    assert "tsne" not in adata.uns
    assert copied.obsm["X_tsne"].shape == (50, 2)
    assert copied.uns["tsne"]["params"]["perplexity"] == 5


def test_pacmap(adata):
    if not hasattr(cartograd.embedding, "PACMAP"):
        pytest.skip("PACMAP is not in this version")
    cartograd.tl.pacmap(adata, max_iter=10)
    assert adata.obsm["X_pacmap"].shape == (50, 2)


def test_equal_rows_have_no_graph_of_all(adata):
    adata.obsm["X_pca"][1] = adata.obsm["X_pca"][0]
    cartograd.tl.umap(adata, **QUICK)
    numpy.testing.assert_array_equal(adata.obsm["X_umap"][0], adata.obsm["X_umap"][1])
    assert "connectivities" not in adata.obsp


def test_it_can_be_written_and_read_again(adata, tmp_path):
    cartograd.tl.umap(adata, **QUICK)
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    numpy.testing.assert_array_equal(again.obsm["X_umap"], adata.obsm["X_umap"])
    assert again.uns["umap"]["params"]["n_neighbors"] == 8


def test_what_is_refused(adata):
    with pytest.raises(OptionError, match=r"use_rep='X_scvi' is not in adata; there are 'X', 'X_pca'"):
        cartograd.tl.umap(adata, use_rep="X_scvi")
    with pytest.raises(OptionError, match="min_dost"):
        cartograd.tl.umap(adata, min_dost=1)
    with pytest.raises(UnsupportedError, match="adata must be an AnnData object, got ndarray"):
        cartograd.tl.umap(adata.X)
    assert "X_umap" not in adata.obsm
