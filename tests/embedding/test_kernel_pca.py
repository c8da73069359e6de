"""KernelPCA against scikit-learn's, fitted rows and new ones."""

import copy

import numpy
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA as Reference
from sklearn.metrics.pairwise import rbf_kernel

from cartograd.affinity import EntropicAffinity, GaussianAffinity, SinkhornAffinity, StudentAffinity
from cartograd.embedding import kernel_pca
from cartograd.embedding.kernel_pca import KernelPCA
from cartograd.errors import InputError, MemoryBudgetError, OptionError

DIGITS = load_digits().data / 16
SIGMA = 8.0
KERNEL = GaussianAffinity(sigma=SIGMA, zero_diag=False)


@pytest.mark.parametrize("components", [1, 3, 30])
@pytest.mark.parametrize(("dtype", "rtol"), [(numpy.float64, 1e-8), (numpy.float32, 1e-4)])
@pytest.mark.parametrize("n", [150, 600])  # all eigenvalues found, and (but for 30) iterated
def test_gaussian(components, dtype, rtol, n):
    X, new = DIGITS[:n].astype(dtype), DIGITS[n : n + 50].astype(dtype)
    model = KernelPCA(components, affinity=KERNEL)
    reference = Reference(components, kernel="rbf", gamma=1 / SIGMA, eigen_solver="dense")
    expected = reference.fit_transform(DIGITS[:n])
    Z = model.fit_transform(X)
    assert Z.dtype == dtype
    numpy.testing.assert_allclose(Z, expected, rtol=rtol, atol=rtol * numpy.abs(expected).max())
    numpy.testing.assert_allclose(model.transform(X), expected, rtol=rtol, atol=rtol * numpy.abs(expected).max())
    numpy.testing.assert_allclose(model.transform(new), reference.transform(DIGITS[n : n + 50]), rtol=rtol, atol=rtol)
    numpy.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=rtol)


@pytest.mark.parametrize("n", [150, 600])
def test_precomputed(n):
    K = rbf_kernel(DIGITS[:n], gamma=1 / SIGMA)
    between = rbf_kernel(DIGITS[n:], DIGITS[:n], gamma=1 / SIGMA)
    model, reference = KernelPCA(4, affinity="precomputed").fit(K), Reference(4, kernel="precomputed").fit(K)
    for ours, theirs in (
        (model.embedding_, reference.transform(K)),
        (model.transform(between), reference.transform(between)),
    ):
        numpy.testing.assert_allclose(ours, theirs, atol=1e-8)
    with pytest.raises(InputError, match="takes the square matrix K"):
        model.fit(K[:, :-1])


def test_student_kernel_and_any_function():
    def student(X):
        X = numpy.asarray(X.cpu() if isinstance(X, torch.Tensor) else X)
        return torch.from_numpy(1 / (1 + ((X[:, None] - X[None]) ** 2).sum(-1)))

    X = DIGITS[:100]
    K = student(X).numpy()
    reference = Reference(3, kernel="precomputed").fit(K)
    model = KernelPCA(3, affinity=StudentAffinity(zero_diag=False)).fit(X)
    numpy.testing.assert_allclose(model.embedding_, reference.transform(K), atol=1e-8)
    between = 1 / (1 + ((DIGITS[100:120, None] - X[None]) ** 2).sum(-1))
    numpy.testing.assert_allclose(model.transform(DIGITS[100:120]), reference.transform(between), atol=1e-8)
    numpy.testing.assert_allclose(KernelPCA(3, affinity=student).fit_transform(X), reference.transform(K), atol=1e-8)


def test_default_kernel_is_new_at_every_fit_and_left_alone():
    X = DIGITS[:40]
    model = KernelPCA()
    model.fit(X)
    assert model.affinity is None
    numpy.testing.assert_allclose(model.embedding_, Reference(2, kernel="rbf", gamma=1.0).fit_transform(X), atol=1e-8)
    assert clone(model).get_params() == {
        "n_jobs": None,
        "precision": "float32",
        "n_components": 2,
        "affinity": None,
        "nodiag": False,
        "device": "auto",
        "backend": None,
        "verbose": False,
        "random_state": None,
    }


def test_components_without_a_share():
    X = numpy.repeat(DIGITS[:4], 5, 0)  # three directions at most
    reference = Reference(kernel="rbf", gamma=1 / SIGMA).fit(X)
    assert KernelPCA(10, affinity=KERNEL, nodiag=True).fit_transform(X).shape == (20, 3)
    every = KernelPCA(None, affinity=KERNEL).fit(X)
    numpy.testing.assert_allclose(every.eigenvalues_, reference.eigenvalues_[:3], rtol=1e-8)
    padded = KernelPCA(10, affinity=KERNEL).fit(X)
    assert not padded.embedding_[:, 3:].any()
    assert not padded.transform(X[:2])[:, 3:].any()
    assert every.get_feature_names_out().tolist() == ["kernelpca0", "kernelpca1", "kernelpca2"]


def test_kinds(tmp_path):
    X = DIGITS[:60]
    expected = KernelPCA(3, affinity=KERNEL).fit(X).transform(DIGITS[60:70])
    mapped = numpy.memmap(tmp_path / "rows", X.dtype, "w+", shape=X.shape)
    mapped[:] = X
    loader = torch.utils.data.DataLoader(torch.from_numpy(X), batch_size=7)
    for data in (X.tolist(), torch.from_numpy(X), sparse.csr_array(X), mapped, loader):
        model = KernelPCA(3, affinity=KERNEL).fit(data)
        is_torch = isinstance(data, torch.Tensor) or data is loader
        assert isinstance(model.embedding_, torch.Tensor if is_torch else numpy.ndarray)
        numpy.testing.assert_allclose(model.transform(DIGITS[60:70]), expected, atol=1e-10)


def test_the_rows_fitted_are_kept_by_value():
    X = DIGITS[:60].copy()
    model = KernelPCA(3, affinity=KERNEL).fit(X)
    before = model.transform(DIGITS[60:70])
    X[:] = 0
    assert numpy.array_equal(model.transform(DIGITS[60:70]), before)
    assert numpy.array_equal(copy.deepcopy(model).transform(DIGITS[60:70]), before)


def test_the_same_bits_at_any_thread_count():
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(KernelPCA(2, affinity=KERNEL).fit_transform(torch.from_numpy(DIGITS[:900])))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_no_transform_by_a_kernel_that_depends_on_all_rows():
    model = KernelPCA(3, affinity=SinkhornAffinity(zero_diag=False)).fit(DIGITS[:50])
    with pytest.raises(OptionError, match="SinkhornAffinity depends on all rows: use fit_transform"):
        model.transform(DIGITS[:5])


def test_refusals(monkeypatch):
    X = DIGITS[:50]
    with pytest.raises(OptionError, match="no inner product: its eigenvalues go from -"):
        KernelPCA(affinity=GaussianAffinity(sigma=SIGMA)).fit(X)
    with pytest.raises(OptionError, match="must be finite and symmetric"):
        KernelPCA(affinity=EntropicAffinity(5)).fit(X)
    with pytest.raises(OptionError, match="n_components=51 is too large for n_samples=50"):
        KernelPCA(51).fit(X)
    with pytest.raises(OptionError, match="backend must be one of None"):
        KernelPCA(backend="faiss").fit(X)
    with pytest.raises(OptionError, match="affinity must be an affinity"):
        KernelPCA(affinity="rbf").fit(X)
    with pytest.raises(InputError, match=r"must be a matrix \(50, 50\)"):
        KernelPCA(affinity=lambda rows: torch.eye(3)).fit(X)
    monkeypatch.setattr(kernel_pca, "free_bytes", lambda device: 90_000.0)
    with pytest.raises(MemoryBudgetError, match=r"KernelPCA of 50 rows would need about .* use at most 45 rows"):
        KernelPCA().fit(X)
