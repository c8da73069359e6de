"""Every awkward input x every estimator x `fit_transform` and `transform`: it works, or it is refused before any work.

Works: a finite map of the right shape, kind and precision, with no warning but the ones that belong to it. Refused: the
named error with its words, and an estimator that is as it was before. The last test prints and checks the count.
"""

import functools
import re
import sys
import warnings
from pathlib import Path

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cartograd
from cartograd import embedding
from cartograd.embedding.estimator import Estimator
from cartograd.errors import OptionError

sys.path.insert(0, str(Path(__file__).parent))

from awkward_inputs import CASES, ORDINARY, Refusal, table
from estimators import BASES, METHODS, NAMES

pytestmark = pytest.mark.timeout(60)  # a hang is a failure

TOO_FEW = r"is too large for \d+ different rows: .* used"
ALL_EQUAL = r"all \d+ rows are equal: the map is a small disc of random places"
NO_NAMES = "X has feature names, but .* was fitted without feature names"
NAMES_MISSING = "X does not have valid feature names, but .* was fitted with feature names"
HEAVY = {"mm", "addmm", "bmm", "sort", "topk", "kthvalue", "_cdist_forward", "_euclidean_dist", "index_add"}
HEAVY |= {"_linalg_svd", "_linalg_eigh", "linalg_qr", "linalg_cholesky_ex", "scatter_add"}


class Work(TorchDispatchMode):
    """Writes down the torch operations in which the work of a fit or of a placement consists."""

    def __init__(self):
        super().__init__()
        self.done = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.done |= {func.overloadpacket.__name__} & HEAVY
        return func(*args, **kwargs or {})


@functools.cache
def map_of_ordinary_rows(name):
    return METHODS[name].make().fit(ORDINARY)


def expected(name, case):
    """What a fit says; None where it works."""
    if case.width == 1 and name in ("PCA", "IncrementalPCA", "ExactIncrementalPCA"):
        return Refusal(OptionError, "n_components=2 is too large for .*n_features=1: the largest that fits is 1")
    return case.refused


def belonging(name, different):
    """The warning that belongs to a fit of so many different rows, if any."""
    method = METHODS[name]
    if method.is_layout and different == 1:
        return ALL_EQUAL
    return TOO_FEW if different < method.enough else None


def watched(action, warning):
    """What `action` gives, with this one warning and no other."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = action()
    told = [(one.category, str(one.message)) for one in caught]
    assert len(told) == (warning is not None), told
    assert all(kind is UserWarning and re.search(warning, words) for kind, words in told), told
    return answer


def places(Z, rows, kind="numpy", dtype="float32"):
    """A map as a NumPy array, after a look at its kind, precision, shape and values."""
    if kind == "tensor":
        assert type(Z) is cartograd.Tensor
        assert not Z.requires_grad
        Z, kind = Z.data, "torch"
    assert type(Z) is (numpy.ndarray if kind == "numpy" else torch.Tensor)
    assert kind == "numpy" or not Z.requires_grad
    Z = Z if kind == "numpy" else Z.numpy()
    assert Z.dtype == dtype
    assert Z.shape == (rows, 2)
    assert numpy.isfinite(Z).all()
    return Z


def near(Z, other, tolerance):
    """Whether two maps differ at most by this share of their size."""
    return numpy.abs(Z - other).max() <= tolerance * numpy.abs(other).max()


def check_refused(action, refusal, model):
    """The named error and nothing else: no work done, the model as it was."""
    before = dict(vars(model))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NO_NAMES)
        with Work() as work, pytest.raises(refusal.error, match=refusal.words) as raised:
            action()
    assert type(raised.value) is refusal.error
    assert not work.done
    assert vars(model) == before


by_name = pytest.mark.parametrize("name", NAMES)
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_name
@by_case
def test_fit_transform(case, name):
    model, data, refusal = METHODS[name].make(), case.make(), expected(name, case)
    if refusal is not None:
        check_refused(lambda: model.fit_transform(data), refusal, model)
        return
    values = table(data)
    _, firsts, groups = numpy.unique(values, axis=0, return_index=True, return_inverse=True)
    Z = watched(lambda: model.fit_transform(data), belonging(name, len(firsts)))
    Z = places(Z, case.rows, case.kind, case.dtype)
    assert numpy.array_equal(table(data), values)
    assert not (isinstance(data, numpy.ndarray) and numpy.shares_memory(Z, data))
    if len(firsts) == 1 and METHODS[name].is_layout:
        assert 0 < numpy.linalg.norm(Z, axis=1).max() <= 0.01
        assert len(numpy.unique(Z, axis=0)) == case.rows
    else:
        assert near(Z, Z[firsts][groups], 0 if METHODS[name].is_layout else 1e-12)  # equal rows share a place
        assert len(firsts) == 1 or name == "KernelPCA" or numpy.ptp(Z, axis=0).max() > 0  # its kernel has a fixed width
        again = places(model.transform(case.make()), case.rows, case.kind, case.dtype)
        assert near(again, Z, 0 if METHODS[name].is_layout else 1e-5)
    check_new_rows(model, case)


def check_new_rows(model, case):
    """Ordinary rows in the map of awkward ones."""
    rows = numpy.random.RandomState(3).randn(6, case.width).astype(case.dtype)
    places(watched(lambda: model.transform(rows), NAMES_MISSING if case.named else None), 6, dtype=case.dtype)


@by_name
@by_case
def test_transform(case, name):
    model, data, refusal = map_of_ordinary_rows(name), case.make(), case.refusal_of_placing()
    if refusal is not None:
        check_refused(lambda: model.transform(data), refusal, model)
        return
    values, before = table(data), dict(vars(model))
    Z = watched(lambda: model.transform(data), NO_NAMES if case.named else None)
    Z = places(Z, case.rows, case.kind, case.dtype)
    assert numpy.array_equal(table(data), values)
    assert not (isinstance(data, numpy.ndarray) and numpy.shares_memory(Z, data))
    assert vars(model) == before


def test_every_estimator_is_in_the_matrix():
    classes = [one for one in vars(embedding).values() if isinstance(one, type) and issubclass(one, Estimator)]
    assert {one.__name__ for one in classes} - BASES == set(NAMES) <= set(cartograd._NAMES["embedding"].split())
    assert len(NAMES) == 13


def test_count(request, capsys):
    """The matrix is whole, the 50 cases of the peers in it; how much of it works, and how much is refused."""
    matrix = [item for item in request.session.items if "test_inputs.py" in item.nodeid and "case" in item.fixturenames]
    if len(matrix) < 2 * len(CASES) * len(NAMES):
        pytest.skip("only a part of the matrix was asked for")
    fits = [expected(name, case) is None for name in NAMES for case in CASES]
    placings = [case.refusal_of_placing() is None for case in CASES] * len(NAMES)
    with capsys.disabled():
        print(f"\n{len(CASES)} inputs x {len(NAMES)} estimators")
        for way, works in (("fit_transform", fits), ("transform", placings)):
            print(f"{way:15} tried {len(works)}, work {sum(works)}, refused {works.count(False)}")
    assert sum(case.peers for case in CASES) == 50
    assert min(sum(fits), sum(placings)) > len(fits) // 2
