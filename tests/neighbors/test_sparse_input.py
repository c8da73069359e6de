"""Sparse matrices whose indices lie outside of them, and sparse rows too wide to be made dense, are refused."""

import numpy as np
import pytest
from scipy import sparse

import cartograd
from cartograd.embedding import memory
from cartograd.errors import InputError, MemoryBudgetError
from cartograd.neighbors import Graph, free_memory, search

ESTIMATORS = (
    "COSNE ExactIncrementalPCA IncrementalPCA InfoTSNE KernelPCA LargeVis PACMAP PCA PHATE SNE TSNE TSNEkhorn UMAP"
).split()


def whole(n=60, d=12):
    draw = np.random.default_rng(0)
    return sparse.csr_array(draw.normal(size=(n, d)) * (draw.random((n, d)) < 0.4))


def damaged(way):
    """A matrix with one index array changed after it was built, as no constructor would allow."""
    X = whole()
    if way == "large index":
        X.indices[::7] = 10**8
    elif way == "negative index":
        X.indices[3] = -(10**8)
    elif way == "large pointer":
        X.indptr[5] = 10**9
    elif way == "falling pointer":
        X.indptr[5] = 1
    elif way == "first pointer":
        X.indptr[0] = 2
    elif way == "last pointer":
        X.indptr[-1] = 10**9
    elif way == "few values":
        X.data = X.data[:5]
    elif way == "few pointers":
        X.indptr = X.indptr[:-4]
    elif way == "fractions":
        X.indices = X.indices.astype(float)
    elif way == "csc":
        X = X.tocsc()
        X.indices[::7] = 10**8
    elif way == "bsr":
        X = X.tobsr((2, 2))
        X.indices[::7] = 10**8
    elif way == "coo":
        X = X.tocoo()
        X.coords[0][::7] = 10**8
    elif way == "lil":
        X = X.tolil()
        X.rows[2] = [0, 10**6]
        X.data[2] = [1.0, 1.0]
    return X


WAYS = [
    "large index", "negative index", "large pointer", "falling pointer", "first pointer", "last pointer", "few values",
    "few pointers", "fractions", "csc", "bsr", "coo", "lil",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_damaged_structure_is_refused(way):
    with pytest.raises(InputError, match=r"X is a damaged sparse matrix: (indices|indptr|coords)"):
        search(damaged(way), 3)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("way", ["large index", "negative index", "large pointer"])
def test_every_estimator_refuses_it(name, way):
    model = getattr(cartograd, name)()
    with pytest.raises(InputError, match="X is a damaged sparse matrix"):
        model.fit(damaged(way))


def test_new_rows_queries_scores_affinities_and_graphs_are_checked_too():
    model = cartograd.PCA().fit(whole())
    bad = damaged("large index")
    square = whole(12, 12)
    square.indices[0] = 10**8
    for use in (
        lambda: model.transform(bad),
        lambda: search(whole().toarray(), 3, queries=bad),
        lambda: search(whole(), 3, queries=bad),
        lambda: search(square, 3, metric="precomputed"),
        lambda: cartograd.metrics.trustworthiness(bad, np.zeros((60, 2))),
        lambda: cartograd.UMAPAffinity(n_neighbors=3)(bad),
        lambda: Graph.from_scipy(square),
    ):
        with pytest.raises(InputError, match="damaged sparse matrix"):
            use()


def test_flags_older_than_the_indices_do_not_mislead():
    """scipy remembers that a matrix was sorted and without duplicates; the arrays themselves are looked at."""
    X = whole()
    assert X.has_canonical_format
    X.indices[: X.indptr[1]] = X.indices[0]  # the entries of row 0 all in one column: they are added
    dense = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape).toarray()
    np.testing.assert_array_equal(search(X, 3)[0], search(dense, 3)[0])


def test_queries_of_another_width_are_not_made_dense_first():
    with pytest.raises(InputError, match="columns"):
        search(whole().toarray(), 3, queries=sparse.csr_array((60, 2**40)))


def wide(n=200, d=10**7):
    draw = np.random.default_rng(0)
    places = np.repeat(np.arange(n), 20), draw.integers(0, d, n * 20)
    return sparse.csr_array((draw.normal(size=n * 20).astype(np.float32), places), shape=(n, d))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_ten_million_columns_are_refused_by_the_estimate(name, monkeypatch):
    for module in (memory, free_memory):
        monkeypatch.setattr(module, "free_bytes", lambda device: 8e9)
    with pytest.raises(MemoryBudgetError, match=r"would need about [\d.]+ GiB, and 7.5 GiB are free"):
        getattr(cartograd, name)().fit(wide())


def test_ten_million_columns_are_searched_as_they_are(monkeypatch):
    monkeypatch.setattr(free_memory, "free_bytes", lambda device: 1e9)
    X = wide()
    used = np.unique(X.indices)
    narrow = sparse.csr_array(X.tocsc()[:, used]).toarray()
    np.testing.assert_array_equal(search(X, 5)[0], search(narrow, 5)[0])
    with pytest.raises(MemoryBudgetError, match="made dense"):
        search(X, 5, metric="manhattan")


def test_keys_of_sparse_rows_are_those_of_the_dense_rows(monkeypatch):
    """Equal rows are found, and fitted rows recognized, whichever way they come in."""
    import torch

    from cartograd.embedding import rowkeys
    from cartograd.neighbors.intake import intake

    dense = whole(50, 30).toarray()
    dense[3], dense[4] = 0.0, -0.0
    keys = rowkeys.row_keys(intake(dense, "X", None).rows)
    for piece in (1 << 22, 7):
        monkeypatch.setattr(rowkeys, "SPARSE_PIECE", piece)
        assert torch.equal(rowkeys.row_keys(intake(sparse.csr_array(dense), "X", None).rows), keys)
