"""IncrementalPCA against scikit-learn's, batch by batch."""

import numpy
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA as Whole
from sklearn.decomposition import IncrementalPCA as Reference

from cartograd.embedding.incremental_pca import IncrementalPCA, low_rank
from cartograd.errors import InputError, OptionError

ATTRIBUTES = ("mean_", "var_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "components_")
DIGITS = load_digits().data


def same(model, reference, X, rtol=1e-8):
    for name in ATTRIBUTES:
        numpy.testing.assert_allclose(getattr(model, name), getattr(reference, name), rtol=rtol, atol=rtol)
    numpy.testing.assert_allclose(model.transform(X), reference.transform(X), rtol=rtol, atol=10 * rtol)
    assert model.noise_variance_ == pytest.approx(reference.noise_variance_, rel=1e-6, abs=1e-9)
    assert model.n_samples_seen_ == reference.n_samples_seen_
    assert model.n_components_ == reference.n_components_


@pytest.mark.parametrize("components", [1, 10, 20])
@pytest.mark.parametrize("batch_size", [64, 100, 590, None])
def test_digits(components, batch_size):
    # 1797 rows leave a last batch of 5, 97 or 27: joined to the one before where that is fewer than components
    X = DIGITS
    model = IncrementalPCA(components, batch_size=batch_size).fit(X)
    same(model, Reference(components, batch_size=batch_size).fit(X), X)


def test_all_components():
    X = DIGITS[:, DIGITS.std(0) > 0.5]  # constant columns leave directions that nothing determines
    model, reference = IncrementalPCA().fit(X), Reference().fit(X)
    same(model, reference, X)
    assert model.batch_size_ == reference.batch_size_ == 5 * X.shape[1]


def test_wide_batches_are_decomposed_without_all_of_their_values():
    rng = numpy.random.default_rng(0)
    X = rng.normal(size=(900, 20)) * numpy.linspace(5, 1, 20) @ rng.normal(size=(20, 700)) + rng.normal(size=(900, 700))
    same(IncrementalPCA(3, batch_size=450).fit(X), Reference(3, batch_size=450).fit(X), X, 1e-7)


def test_batch_after_batch():
    model, reference = IncrementalPCA(7), Reference(7)
    for start, stop in [(0, 100), (100, 102), (102, 103), (103, 800), (800, 1797)]:
        model.partial_fit(DIGITS[start:stop])
        reference.partial_fit(DIGITS[start:stop])
        same(model, reference, DIGITS)


def test_batches_of_one_size_are_those_of_fit():
    model = IncrementalPCA(4)
    for start in range(0, 1500, 300):
        model.partial_fit(DIGITS[start : start + 300])
    numpy.testing.assert_allclose(model.components_, IncrementalPCA(4, batch_size=300).fit(DIGITS[:1500]).components_)


def test_fit_forgets():
    model = IncrementalPCA(3).fit(DIGITS[:500])
    model.fit(DIGITS)
    assert model.n_samples_seen_ == 1797
    assert numpy.array_equal(model.components_, IncrementalPCA(3).fit(DIGITS).components_)


@pytest.mark.cpu
@pytest.mark.parametrize("size", [1, 50, 64, 1797])
def test_loaders_and_generators_give_what_the_table_gives(size):
    X = torch.from_numpy(DIGITS).to(torch.float32)
    expected = IncrementalPCA(5, batch_size=200).fit(X)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=size)
    for data in (loader, X.split(size), iter(X.split(size))):
        model = IncrementalPCA(5, batch_size=200).fit(data)
        assert torch.equal(model.components_, expected.components_)
        assert model.n_samples_seen_ == model.n_samples_in_ == 1797
    assert torch.equal(IncrementalPCA(5, batch_size=200).fit_transform(loader), expected.transform(X))
    assert isinstance(IncrementalPCA(5).fit_transform([DIGITS[:900], DIGITS[900:]]), numpy.ndarray)


def test_sparse_rows():
    X = DIGITS
    same(IncrementalPCA(5).fit(sparse.csr_array(X)), Reference(5).fit(X), X)


@pytest.mark.parametrize("seed", [0, 1])
def test_low_rank(seed):
    X = torch.tensor(load_iris().data, dtype=torch.float32)
    whole = IncrementalPCA(2, batch_size=50).fit(X)
    state = torch.get_rng_state()
    rough = IncrementalPCA(2, batch_size=50, lowrank=True, random_state=seed).fit(X)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(rough.components_, whole.components_, rtol=1e-6, atol=1e-7)
    near = IncrementalPCA(5, lowrank=True, lowrank_q=20, random_state=seed).fit(DIGITS)
    numpy.testing.assert_allclose(near.singular_values_, Reference(5).fit(DIGITS).singular_values_, rtol=1e-6)


def test_low_rank_of_a_matrix_of_that_rank():
    rng = torch.Generator().manual_seed(0)
    A = torch.randn(60, 4, generator=rng, dtype=torch.float64) @ torch.randn(4, 30, generator=rng, dtype=torch.float64)
    values, directions = low_rank(A, 4, 1, seed=0)
    torch.testing.assert_close(values, torch.linalg.svdvals(A)[:4])
    torch.testing.assert_close(A @ directions.T @ directions, A)


def test_inverse():
    model, reference = IncrementalPCA(9).fit(DIGITS), Reference(9).fit(DIGITS)
    Z = reference.transform(DIGITS)
    numpy.testing.assert_allclose(model.inverse_transform(Z), reference.inverse_transform(Z), atol=1e-9)


def test_all_rows_in_one_batch_is_pca():
    X = DIGITS[:500]
    whole = Whole(6, svd_solver="full").fit(X)
    model = IncrementalPCA(6, batch_size=500).fit(X)
    numpy.testing.assert_allclose(model.components_, whole.components_, atol=1e-9)
    assert model.noise_variance_ == pytest.approx(whole.noise_variance_)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_extreme_scales(scale):
    X = DIGITS[:600]
    model, reference = IncrementalPCA(3, batch_size=200).fit(X * scale), Reference(3, batch_size=200).fit(X)
    numpy.testing.assert_allclose(model.components_, reference.components_, atol=1e-8)
    numpy.testing.assert_allclose(model.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-8)


def test_the_same_bits_at_any_thread_count():
    X = torch.from_numpy(numpy.random.default_rng(0).normal(size=(900, 700)))
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(IncrementalPCA(3, batch_size=450).fit(X).components_)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_refusals():
    X = DIGITS[:20, :5]
    with pytest.raises(OptionError, match="n_components=6 is too large for n_features=5: the largest that fits is 5"):
        IncrementalPCA(6).fit(X)
    with pytest.raises(OptionError, match="n_components=4 is too large for a first batch of n_samples=3"):
        IncrementalPCA(4).partial_fit(X[:3])
    with pytest.raises(OptionError, match="at least 2 rows"):
        IncrementalPCA(1).partial_fit(X[:1])
    with pytest.raises(OptionError, match="batch_size must be at least 1"):
        IncrementalPCA(batch_size=0).fit(X)
    with pytest.raises(OptionError, match="lowrank_q must be at least 3"):
        IncrementalPCA(3, lowrank=True, lowrank_q=2).fit(X)
    with pytest.raises(InputError, match="expecting 5"):
        IncrementalPCA(2).fit(X).partial_fit(DIGITS[:20, :6])
    with pytest.raises(InputError, match="batch 1 of X has 4 columns where earlier ones had 5"):
        IncrementalPCA(2).fit([X, X[:, :4]])
    with pytest.raises(InputError, match="it gave no batch"):
        IncrementalPCA(2).fit(iter([]))
    bad = X.copy()
    bad[4, 1] = numpy.inf
    with pytest.raises(InputError, match="batch 1 of X contains infinity: first at row 4, column 1"):
        IncrementalPCA(2).fit([X, bad])
