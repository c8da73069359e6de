"""Every affinity takes every kind of data that a search takes, keeps its parameters, and leaves the data alone."""

import dataclasses

import numpy
import pytest
import scipy.sparse
import torch

import cartograd
from cartograd import affinity as A
from cartograd.errors import InputError, OptionError
from cartograd.neighbors import Graph

AFFINITIES = [
    A.EntropicAffinity(5),
    A.EntropicAffinity(5, sparsity=False),
    A.SymmetricEntropicAffinity(10),
    A.SinkhornAffinity(),
    A.DoublyStochasticQuadraticAffinity(),
    A.SelfTuningAffinity(),
    A.MAGICAffinity(),
    A.UMAPAffinity(6),
    A.PHATEAffinity(),
    A.PACMAPAffinity(4),
    A.GaussianAffinity(),
    A.StudentAffinity(),
    A.NormalizedGaussianAffinity(),
    A.NormalizedStudentAffinity(),
]
NAMES = [type(one).__name__ + ("" if getattr(one, "sparsity", None) is not False else " dense") for one in AFFINITIES]


def points():
    return numpy.random.default_rng(0).normal(size=(30, 4)).astype(numpy.float32)


def memmap(X, folder):
    X.tofile(folder / "rows")
    return numpy.memmap(folder / "rows", dtype=X.dtype, shape=X.shape, mode="r")


def loader(X, folder):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X)), batch_size=8)


KINDS = {
    "list": lambda X, folder: X.tolist(),
    "torch": lambda X, folder: torch.from_numpy(X),
    "cartograd": lambda X, folder: cartograd.Tensor(torch.from_numpy(X)),
    "requires grad": lambda X, folder: cartograd.Tensor(torch.from_numpy(X), requires_grad=True),
    "not contiguous": lambda X, folder: numpy.asfortranarray(X)[::1],
    "csr": lambda X, folder: scipy.sparse.csr_array(X),
    "memmap": memmap,
    "loader": loader,
}


def dense(P):
    if isinstance(P, Graph):
        return P.to_dense()
    return P.data if isinstance(P, cartograd.Tensor) else P


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("affinity", AFFINITIES, ids=NAMES)
def test_kinds_of_data(affinity, kind, tmp_path):
    if (
        isinstance(affinity, A.EntropicAffinity)
        and affinity.sparsity is None
        and kind in ("cartograd", "requires grad")
    ):
        affinity = dataclasses.replace(affinity, sparsity=False)
        expected = affinity(points())
    else:
        expected = dense(affinity(points()))
    found = dense(affinity(KINDS[kind](points(), tmp_path)))
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found.to(expected.dtype), expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("affinity", AFFINITIES, ids=NAMES)
def test_other_metrics(affinity):
    for metric in ("cosine", "manhattan", lambda a, b: (a - b).abs().sum(-1)):
        P = dense(dataclasses.replace(affinity, metric=metric)(points()))
        assert bool(torch.isfinite(P).all())
        last = P
    torch.testing.assert_close(
        last, dense(dataclasses.replace(affinity, metric="manhattan")(points())), atol=1e-5, rtol=1e-3
    )


@pytest.mark.parametrize("affinity", AFFINITIES, ids=NAMES)
def test_data_and_parameters_are_left_alone(affinity):
    X = points()
    before, parameters = X.copy(), repr(affinity)
    first, second = dense(affinity(X)), dense(affinity(X))
    assert torch.equal(first, second)
    assert numpy.array_equal(X, before)
    assert repr(affinity) == parameters
    with pytest.raises(dataclasses.FrozenInstanceError):
        affinity.metric = "cosine"


@pytest.mark.parametrize("affinity", AFFINITIES, ids=NAMES)
def test_refusals(affinity):
    with pytest.raises(InputError, match="two dimensions"):
        affinity(points()[:, 0])
    with pytest.raises(InputError, match="empty"):
        affinity(points()[:0])
    X = points()
    X[2, 3] = numpy.inf
    with pytest.raises(InputError, match="infinity: first at row 2, column 3"):
        affinity(X)
    with pytest.raises(InputError, match="takes the square matrix of all distances"):
        dataclasses.replace(affinity, metric="precomputed")(points())
    C = numpy.ones((30, 30))
    C[1, 2] = -1
    with pytest.raises(InputError, match="precomputed distances cannot be negative"):
        dataclasses.replace(affinity, metric="precomputed")(C)
    with pytest.raises(OptionError, match="unknown metric 'sine'"):
        dataclasses.replace(affinity, metric="sine")


def test_no_nan_far_from_the_origin():
    for affinity in AFFINITIES:
        P = dense(affinity(points().astype(numpy.float64) + 1e6))
        torch.testing.assert_close(P, dense(affinity(points().astype(numpy.float64))), atol=1e-6, rtol=1e-4)
