"""PCA against scikit-learn's full decomposition, on every route and for every kind of input."""

import numpy
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as Reference

from cartograd import Tensor
from cartograd.embedding.pca import PCA, principal_scores
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors.intake import intake
from cartograd.neighbors.rows import SparseRows

ATTRIBUTES = ("mean_", "explained_variance_", "explained_variance_ratio_", "singular_values_")
# n, d, components: decomposed as a whole, by the covariance, iterated, by inner products
SHAPES = [(500, 20, 3), (20, 500, 5), (6000, 60, 60), (6000, 60, 4), (700, 600, 3), (600, 700, 3), (200, 1500, 150)]


def table(n, d, seed=0, falls_to=1e-2):
    rng = numpy.random.default_rng(seed)
    rank = min(n, d)
    spectrum = numpy.logspace(0, numpy.log10(falls_to), rank)
    return rng.normal(size=(n, rank)) * spectrum @ rng.normal(size=(rank, d)) + rng.normal(size=d)


def apart(a, b):
    return float(numpy.abs(numpy.asarray(a, dtype=float) - b).max() / numpy.abs(b).max())


@pytest.mark.parametrize(("n", "d", "c"), SHAPES)
def test_as_a_full_decomposition(n, d, c):
    X = table(n, d)
    model, reference = PCA(c), Reference(c, svd_solver="full")
    assert apart(model.fit_transform(X), reference.fit_transform(X)) < 1e-8
    assert apart(model.components_, reference.components_) < 1e-8
    for name in ATTRIBUTES:
        numpy.testing.assert_allclose(getattr(model, name), getattr(reference, name), rtol=1e-8)
    assert model.noise_variance_ == pytest.approx(reference.noise_variance_, rel=1e-6)
    assert model.n_components_ == c
    single = PCA(c).fit(X.astype(numpy.float32))
    assert single.components_.dtype == single.embedding_.dtype == numpy.float32
    assert apart(single.embedding_, reference.transform(X)) < 1e-5
    numpy.testing.assert_allclose(single.singular_values_, reference.singular_values_, rtol=1e-5)


def test_small_singular_values_are_those_of_the_data_not_of_their_square():
    rng = numpy.random.default_rng(0)
    left, _ = numpy.linalg.qr(rng.normal(size=(6000, 60)) - rng.normal(size=(6000, 60)).mean(0))
    right, _ = numpy.linalg.qr(rng.normal(size=(60, 60)))
    X = left * numpy.logspace(3, -3, 60) @ right.T
    expected = numpy.linalg.svd(X - X.mean(0), compute_uv=False)
    numpy.testing.assert_allclose(PCA(60).fit(X).singular_values_, expected, rtol=1e-8)


def test_digits_as_scikit_learn_by_default_signs_included():
    X = load_digits().data
    assert apart(PCA().fit_transform(X), Reference(2).fit_transform(X)) < 1e-8
    assert PCA(n_components=None).fit(X).components_.shape == (64, 64)


def test_inverse():
    X = table(500, 20)
    reference = Reference(5).fit(X)
    model = PCA(5).fit(X)
    assert (
        apart(model.inverse_transform(model.transform(X)), reference.inverse_transform(reference.transform(X))) < 1e-9
    )
    whole = PCA(20).fit(torch.from_numpy(X))
    torch.testing.assert_close(whole.inverse_transform(whole.transform(torch.from_numpy(X))), torch.from_numpy(X))
    with pytest.raises(InputError, match="X has 3 columns, but PCA has 5 components"):
        model.inverse_transform(numpy.zeros((2, 3)))


class Loaded:
    """Rows one by one, for a loader."""

    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return torch.from_numpy(self.X[i]), 0


def kinds(X, folder):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    mapped = numpy.memmap(folder / "rows", X.dtype, "w+", shape=X.shape)
    mapped[:] = X
    return {
        "list": X.tolist(),
        "torch": torch.from_numpy(X),
        "ours": Tensor(torch.from_numpy(X)),
        "memmap": mapped,
        "loader": torch.utils.data.DataLoader(Loaded(X), batch_size=100),
        "generator": (X[i : i + 100] for i in range(0, len(X), 100)),
        "batches": [X[:100], X[100:]],
        "csr": sparse.csr_matrix(X),
        "csc": sparse.csc_array(X),
        "pandas": pandas.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]),
        "polars": polars.DataFrame(X, schema=[f"c{i}" for i in range(X.shape[1])]),
        "fortran": numpy.asfortranarray(X),
        "strided": numpy.repeat(X, 2, 1)[:, ::2],
    }


def test_every_kind_of_input_gives_the_same_and_its_own_kind_back(tmp_path):
    X = table(900, 300)
    expected = PCA(3).fit(X)
    for kind, data in kinds(X, tmp_path).items():
        model = PCA(3)
        Z = model.fit_transform(data)
        wanted = {"torch": torch.Tensor, "loader": torch.Tensor, "ours": Tensor}.get(kind, numpy.ndarray)
        for value in (Z, model.components_, model.mean_, model.singular_values_, model.embedding_):
            assert type(value) is wanted, kind
            assert not getattr(value, "requires_grad", False)
        plain = Z.data if kind == "ours" else Z
        assert apart(plain, expected.embedding_) < 1e-8, kind


@pytest.mark.cpu
def test_sparse_rows_are_never_dense_as_a_whole(monkeypatch):
    X = sparse.random(1500, 1200, 0.02, format="csr", random_state=0)
    most = []
    block = SparseRows.block
    monkeypatch.setattr(SparseRows, "block", lambda self, a, b: (most.append(b - a), block(self, a, b))[1])
    model = PCA(4).fit(X)
    assert max(most) <= 200
    reference = Reference(4, svd_solver="full").fit(X.toarray())
    numpy.testing.assert_allclose(model.singular_values_, reference.singular_values_, rtol=1e-8)
    assert apart(model.embedding_, reference.transform(X.toarray())) < 1e-6


@pytest.mark.parametrize(("n", "d", "c"), SHAPES)
def test_the_same_bits_at_any_thread_count(n, d, c):
    X = torch.from_numpy(table(n, d)).to(torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            torch.randn(3)
            found.append(PCA(c).fit(X))
    finally:
        torch.set_num_threads(before)
    for model in found[1:]:
        assert torch.equal(model.components_, found[0].components_)
        assert torch.equal(model.embedding_, found[0].embedding_)


def test_a_row_does_not_depend_on_the_others():
    X = table(1000, 70)
    model = PCA(5).fit(X)
    Z = model.transform(X)
    order = numpy.random.default_rng(0).permutation(len(X))
    assert numpy.array_equal(model.transform(X[order]), Z[order])
    for rows in (slice(0, 1), slice(300, 307), slice(999, 1000)):
        assert numpy.array_equal(model.transform(X[rows]), Z[rows])
    assert numpy.array_equal(Z, model.embedding_)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e300, 1e-300])
@pytest.mark.parametrize(("n", "d"), [(120, 10), (6000, 60), (700, 600)])
def test_extreme_scales(n, d, scale):
    X = table(n, d)
    model = PCA(2).fit(X * scale)
    reference = Reference(2, svd_solver="full").fit(X)
    assert apart(model.embedding_ / scale, reference.transform(X)) < 1e-6
    numpy.testing.assert_allclose(model.singular_values_ / scale, reference.singular_values_, rtol=1e-8)
    numpy.testing.assert_allclose(model.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-6)


def test_large_offset():
    X = table(6000, 60)
    assert apart(PCA(2).fit_transform(X + 1e7), Reference(2, svd_solver="full").fit_transform(X)) < 1e-7


@pytest.mark.parametrize("X", [numpy.ones((30, 4)), numpy.zeros((30, 4)), numpy.ones((900, 700))])
def test_data_without_variance(X):
    model = PCA(2).fit(X)
    assert not model.embedding_.any()
    assert not model.explained_variance_ratio_.any()
    numpy.testing.assert_allclose(model.components_ @ model.components_.T, numpy.eye(2), atol=1e-12)


def test_refusals():
    X = table(8, 5)
    with pytest.raises(
        OptionError, match=r"n_components=6 .* n_samples=8 and n_features=5: the largest that fits is 5"
    ):
        PCA(6).fit(X)
    with pytest.raises(OptionError, match="n_components must be at least 1"):
        PCA(0).fit(X)
    with pytest.raises(UnsupportedError, match="n_components must be a whole number"):
        PCA(2.5).fit(X)
    with pytest.raises(InputError, match="at least 2 rows"):
        PCA(1).fit(X[:1])
    with pytest.raises(OptionError, match="svd_driver must be one of"):
        PCA(svd_driver="fastest").fit(X)
    with pytest.raises(OptionError, match="needs a process group"):
        PCA(distributed=True).fit(X)
    with pytest.raises(TypeError):
        PCA(whitenn=True)
    X[3, 2] = numpy.nan
    with pytest.raises(InputError, match="contains NaN: first at row 3, column 2"):
        PCA().fit(X)


def test_parameters_are_those_of_the_table_and_refit_forgets():
    assert PCA(3).get_params() == {
        "n_jobs": None,
        "precision": "float32",
        "n_components": 3,
        "device": "auto",
        "distributed": "auto",
        "verbose": False,
        "random_state": None,
        "svd_driver": None,
    }
    model = PCA(2).fit(table(50, 10))
    model.fit(table(60, 4, seed=1))
    assert numpy.array_equal(model.components_, clone(model).fit(table(60, 4, seed=1)).components_)


def test_pandas_out():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(table(50, 4), index=range(7, 57))
    Z = PCA(2).set_output(transform="pandas").fit_transform(X)
    assert list(Z.columns) == ["pca0", "pca1"]
    assert list(Z.index) == list(X.index)


def test_nothing_random_is_touched():
    X = torch.from_numpy(table(700, 600))
    state, numbers = torch.get_rng_state(), numpy.random.get_state()[1].copy()
    one, two = PCA(2, random_state=3).fit(X), PCA(2, random_state=3).fit(X)
    assert torch.equal(torch.get_rng_state(), state)
    assert numpy.array_equal(numpy.random.get_state()[1], numbers)
    assert torch.equal(one.embedding_, two.embedding_)
    torch.testing.assert_close(one.embedding_, PCA(2, random_state=4).fit(X).embedding_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(500, 20), (6000, 60), (700, 600), (600, 700)])
def test_scores_for_a_start(n, d):
    X = table(n, d)
    scores = principal_scores(intake(X, "X", None).rows, 2, 0)
    assert apart(scores, Reference(2, svd_solver="full").fit_transform(X)) < 1e-2


def test_scores_for_a_start_are_filled_up_with_zeros():
    X = numpy.array([[1.0, 0.0], [0.0, 0.0], [5.0, 1.0]])
    scores = principal_scores(intake(X, "X", None).rows, 4, 0)
    assert apart(scores[:, :2], Reference(2).fit_transform(X)) < 1e-12
    assert scores.shape == (3, 4)
    assert not scores[:, 2:].any()
    assert principal_scores(intake(X[:1], "X", None).rows, 2, 0).tolist() == [[0.0, 0.0]]
