"""ExactIncrementalPCA: what all rows at once give, however they are cut."""

import numpy
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as Reference

from cartograd.embedding.exact_incremental_pca import ExactIncrementalPCA
from cartograd.embedding.moments import merged, moments
from cartograd.errors import InputError, OptionError
from cartograd.neighbors.rows import TensorRows

DIGITS = load_digits().data
ATTRIBUTES = ("mean_", "components_", "explained_variance_", "explained_variance_ratio_", "singular_values_")


def same(model, X, components=5, rtol=1e-8):
    reference = Reference(components, svd_solver="full").fit(X)
    for name in ATTRIBUTES:
        numpy.testing.assert_allclose(getattr(model, name), getattr(reference, name), rtol=rtol, atol=rtol)
    numpy.testing.assert_allclose(model.transform(X), reference.transform(X), atol=1e-6)
    assert model.noise_variance_ == pytest.approx(reference.noise_variance_)
    assert model.n_samples_seen_ == len(X)


CUTS = {"one": [1797], "even": [600, 600, 597], "ragged": [1, 2, 3, 1000, 791], "rows": [1] * 40 + [1757]}


@pytest.mark.parametrize("cut", CUTS)
def test_fit_from_batches(cut):
    parts = numpy.split(DIGITS, numpy.cumsum(CUTS[cut])[:-1])
    for data in (parts, iter(parts)):
        model = ExactIncrementalPCA(5).fit(data)
        same(model, DIGITS)
        assert isinstance(model.components_, numpy.ndarray)
    model = ExactIncrementalPCA(5)
    for part in parts:
        model.partial_fit(part)
    same(model, DIGITS)


def test_fit_from_tables():
    for data in (DIGITS, DIGITS.tolist(), sparse.csr_matrix(DIGITS)):
        same(ExactIncrementalPCA(5).fit(data), DIGITS)
    loader = torch.utils.data.DataLoader(torch.from_numpy(DIGITS), batch_size=100, shuffle=True)
    model = ExactIncrementalPCA(5).fit(loader)
    assert isinstance(model.components_, torch.Tensor)
    same(model, DIGITS)


def test_fit_transform():
    expected = Reference(5, svd_solver="full").fit_transform(DIGITS)
    parts = numpy.split(DIGITS, [100, 700])
    loader = torch.utils.data.DataLoader(torch.from_numpy(DIGITS), batch_size=100)
    for data in (DIGITS, parts, iter(parts), loader):
        Z = ExactIncrementalPCA(5).fit_transform(data)
        assert isinstance(Z, torch.Tensor if data is loader else numpy.ndarray)
        numpy.testing.assert_allclose(Z, expected, atol=1e-8)


def test_two_walks():
    parts = numpy.split(DIGITS, [100, 700])
    model = ExactIncrementalPCA(5).compute_mean(iter(parts))
    numpy.testing.assert_allclose(model.mean_, DIGITS.mean(0), rtol=1e-12, atol=1e-14)
    model.partial_fit(parts[0])
    # about the mean of all, not about that of the batch
    apart = parts[0] - DIGITS.mean(0)
    expected = numpy.linalg.eigvalsh(apart.T @ apart / 99)[::-1][:5]
    numpy.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-8)
    for part in parts[1:]:
        model.partial_fit(part)
    same(model, DIGITS)
    same(model.fit(parts), DIGITS)
    with pytest.raises(InputError, match="X has 3 features, but compute_mean was given 64"):
        ExactIncrementalPCA().compute_mean(DIGITS).partial_fit(DIGITS[:, :3])


def test_wide_rows_are_iterated():
    rng = numpy.random.default_rng(0)
    X = rng.normal(size=(900, 20)) * numpy.linspace(5, 1, 20) @ rng.normal(size=(20, 700)) + rng.normal(size=(900, 700))
    model = ExactIncrementalPCA(3).fit([X[:300], X[300:]])
    reference = Reference(3, svd_solver="full").fit(X)
    numpy.testing.assert_allclose(model.components_, reference.components_, atol=1e-8)
    assert model.noise_variance_ == pytest.approx(reference.noise_variance_)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_scales(scale):
    parts = numpy.split(DIGITS * scale, [900])
    reference = Reference(3).fit(DIGITS)
    model = ExactIncrementalPCA(3).fit(parts)
    numpy.testing.assert_allclose(model.components_, reference.components_, atol=1e-8)
    numpy.testing.assert_allclose(model.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-8)


def test_offset_in_single_precision():
    X = (numpy.random.default_rng(0).normal(size=(4000, 5)) * [5, 4, 3, 2, 1] * 50 + 1e6).astype(numpy.float32)
    parts = numpy.split(X, range(500, 4000, 500))
    expected = Reference(5, svd_solver="full").fit(X.astype(numpy.float64)).explained_variance_
    model = ExactIncrementalPCA(5).compute_mean(parts)
    for part in parts:
        model.partial_fit(part)
    numpy.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-6)
    numpy.testing.assert_allclose(ExactIncrementalPCA(5).fit(parts).explained_variance_, expected, rtol=1e-6)


def test_moments_of_parts_are_those_of_the_whole():
    X = torch.from_numpy(DIGITS + 1e6)
    a, b = moments(TensorRows(X[:700])), moments(TensorRows(X[700:]))
    both = merged(a, b)
    torch.testing.assert_close(both.mean, X.mean(0))
    torch.testing.assert_close(both.scatter, torch.cov(torch.from_numpy(DIGITS).T) * 1796, rtol=1e-6, atol=1e-3)


def test_fewer_rows_than_components_at_first():
    model = ExactIncrementalPCA(5).partial_fit(DIGITS[:2])
    assert model.components_.shape == (5, 64)
    assert model.explained_variance_[1:].max() < 1e-9 * model.explained_variance_[0]
    same(model.partial_fit(DIGITS[2:]), DIGITS)


def test_refusals():
    with pytest.raises(OptionError, match="n_components=65 is too large"):
        ExactIncrementalPCA(65).partial_fit(DIGITS)
    with pytest.raises(OptionError, match=r"n_components=5 .* n_samples=3"):
        ExactIncrementalPCA(5).fit([DIGITS[:2], DIGITS[2:3]])
    with pytest.raises(InputError, match="at least 2 rows"):
        ExactIncrementalPCA(1).fit([DIGITS[:1]])
    with pytest.raises(InputError, match="it gave no batch"):
        ExactIncrementalPCA().compute_mean(iter([]))
    with pytest.raises(InputError, match="expecting 64"):
        ExactIncrementalPCA().fit(DIGITS).partial_fit(DIGITS[:, :3])
