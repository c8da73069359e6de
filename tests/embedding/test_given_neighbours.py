"""Neighbours and distances that the caller brings: `precomputed_knn`, `metric="precomputed"`, metrics of all kinds.

What is right gives the map that a search of one's own gives; what is wrong is refused by name, before any work.
"""

import sys
from pathlib import Path

import numpy
import pytest
import torch
from scipy import sparse

from cartograd import KernelPCA
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors import pairwise_distances, search

sys.path.insert(0, str(Path(__file__).parent))

from awkward_inputs import ORDINARY
from estimators import LAYOUTS, METHODS

ROWS = ORDINARY.astype("float64")
NEW = ROWS[:7] + 0.1
INDICES, DISTANCES = search(ROWS, len(ROWS) - 1)
SQUARE, ASIDE = pairwise_distances(ROWS), pairwise_distances(NEW, ROWS)
FAR_APART = numpy.where(SQUARE < 3, SQUARE, 0)
WITH_KNN = [name for name in LAYOUTS if METHODS[name].has("precomputed_knn")]
STANDARD = {"sqeuclidean", "euclidean", "manhattan", "cosine", "angular"}


def near(Z, other, tolerance=1e-6):
    return numpy.abs(numpy.asarray(Z) - other).max() <= tolerance * numpy.abs(other).max()


def one_way(name):
    """TSNEkhorn's affinity needs all distances, and neighbours that are given are not all."""
    return {"symmetric_affinity": False} if name == "TSNEkhorn" else {}


@pytest.mark.parametrize("name", WITH_KNN)
def test_neighbours_found_before_give_the_same_map(name):
    method = METHODS[name]
    searched = method.make(**one_way(name)).fit_transform(ROWS)
    own = numpy.arange(len(ROWS))[:, None]
    itself = numpy.hstack([own, INDICES]), numpy.hstack([numpy.zeros_like(own), DISTANCES])
    given = ((INDICES, DISTANCES), itself, (torch.tensor(INDICES), torch.tensor(DISTANCES)))
    given = (*given, (INDICES.astype("int32"), DISTANCES), (INDICES.tolist(), DISTANCES.tolist()))
    for knn in given:
        before = [numpy.asarray(part).copy() for part in knn]
        model = method.make(precomputed_knn=knn)
        assert numpy.array_equal(model.fit_transform(ROWS), searched)
        assert numpy.isfinite(model.transform(NEW)).all()
        assert all(numpy.array_equal(numpy.asarray(part), was) for part, was in zip(knn, before, strict=True))


BAD_NEIGHBOURS = {
    "a number": (5, UnsupportedError, r"must be the pair \(indices, distances\), .*got 5"),
    "one table": ((INDICES,), UnsupportedError, r"must be the pair \(indices, distances\), .*got a tuple of 1"),
    "two shapes": ((INDICES, DISTANCES[:, :5]), InputError, r"got shapes \(64, 63\) and \(64, 5\)"),
    "one column as a line": ((INDICES[:, 0], DISTANCES[:, 0]), InputError, r"got shapes \(64,\) and \(64,\)"),
    "no columns": ((INDICES[:, :0], DISTANCES[:, :0]), InputError, r"got shapes \(64, 0\) and \(64, 0\)"),
    "other rows": ((INDICES[:9, :5] % 9, DISTANCES[:9, :5]), InputError, "is of 9 rows, but X has 64"),
    "an id too large": ((INDICES + 3, DISTANCES), InputError, "names row 66, but there are 64 rows"),
    "an id below 0": ((INDICES - 1, DISTANCES), InputError, "names row -1, but there are 64 rows"),
    "swapped": ((DISTANCES, INDICES), UnsupportedError, "of precomputed_knn must be whole numbers, got torch.float64"),
    "NaN": ((INDICES, DISTANCES * numpy.nan), InputError, "finite and not negative, got nan at row 0, column 0"),
    "negative": ((INDICES, -DISTANCES), InputError, "finite and not negative, got -"),
    "text": ((INDICES.astype(str), DISTANCES), UnsupportedError, "two tables of numbers, got an array"),
    "None": ((None, None), UnsupportedError, "two tables of numbers, got None"),
    "ragged": (([[1, 2], [0]], [[1.0, 2.0], [1.0]]), UnsupportedError, "two tables of numbers, got a list"),
    "complex": ((INDICES, DISTANCES.astype(complex)), UnsupportedError, "two tables of real numbers"),
    "too few": ((INDICES[:, :2], DISTANCES[:, :2]), OptionError, "has 2 neighbours for each row .* are needed"),
}


@pytest.mark.parametrize("name", WITH_KNN)
@pytest.mark.parametrize("what", BAD_NEIGHBOURS)
def test_bad_neighbours_are_refused(name, what):
    knn, error, words = BAD_NEIGHBOURS[what]
    model = METHODS[name].make(precomputed_knn=knn)
    with pytest.raises(error, match=words) as raised:
        model.fit(ROWS)
    assert type(raised.value) is error
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("name", LAYOUTS)
def test_distances_give_the_map_of_their_rows(name):
    method = METHODS[name]
    by_rows = method.make(**{method.metric: "euclidean"}, init="normal").fit(ROWS)
    model = method.make(**{method.metric: "precomputed"}, init="normal")
    assert near(model.fit_transform(SQUARE), by_rows.embedding_)
    assert near(model.transform(SQUARE[5:9]), by_rows.embedding_[5:9])
    if name != "UMAP":  # whose negatives are drawn by what is in the row
        assert near(model.transform(ASIDE), by_rows.transform(NEW))
    assert near(model.fit(torch.tensor(SQUARE)).embedding_, by_rows.embedding_)
    assert near(model.transform(torch.tensor(ASIDE)), model.transform(ASIDE), 0)
    assert model.transform(ASIDE.astype("float32")).dtype == numpy.float32
    for scale in (1e-300, 1e300):
        assert numpy.isfinite(model.fit(SQUARE).transform(ASIDE * scale)).all()
        assert numpy.isfinite(model.fit_transform(SQUARE * scale)).all()
    assert numpy.isfinite(model.fit_transform(SQUARE * 0)).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_sparse_distances(name):
    """Pairs that are not stored are no neighbours, in a fit and in a placement; methods of all pairs want them all."""
    method = METHODS[name]
    dense = method.make(**{method.metric: "precomputed"}, init="normal").fit(SQUARE)
    model = method.make(**{method.metric: "precomputed"}, init="normal")
    if name == "PHATE":
        with pytest.raises(UnsupportedError, match="give a dense matrix"):
            model.fit(sparse.csr_matrix(SQUARE))
        return
    stored = sparse.csr_matrix(SQUARE)
    assert near(model.fit_transform(stored), dense.embedding_)
    assert near(model.transform(sparse.csr_matrix(ASIDE)), dense.transform(ASIDE))
    assert near(dense.transform(sparse.csr_matrix(ASIDE)), dense.transform(ASIDE))
    assert near(model.transform(ASIDE), dense.transform(ASIDE))
    few = r"stores \d+ neighbours, and k=\d+ were asked for"
    with pytest.raises(InputError, match=few):
        model.fit(sparse.csr_matrix(FAR_APART))
    with pytest.raises(InputError, match=few):
        dense.transform(sparse.csr_matrix(numpy.where(ASIDE < 2, ASIDE, 0)))


BAD_DISTANCES = {
    "not square": (SQUARE[:, :50], InputError, r"takes the square matrix of all distances, got shape \(64, 50\)"),
    "negative": (-SQUARE, InputError, "precomputed distances cannot be negative, got -"),
    "NaN": (
        numpy.where(SQUARE[3, 8] == SQUARE, numpy.nan, SQUARE),
        InputError,
        "contains NaN: first at row 3, column 8",
    ),
    "inf": (numpy.where(SQUARE[3, 8] == SQUARE, numpy.inf, SQUARE), InputError, "infinity: first at row 3, column 8"),
    "one row": (SQUARE[:1, :1], InputError, "needs at least 2 rows, got 1 sample"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_bad_distances_are_refused(name):
    method = METHODS[name]
    fitted = method.make(**{method.metric: "precomputed"}).fit(SQUARE)
    before = fitted.transform(ASIDE)
    for matrix, error, words in BAD_DISTANCES.values():
        with pytest.raises(error, match=words):
            method.make(**{method.metric: "precomputed"}).fit(matrix)
        with pytest.raises(error, match=words):
            fitted.fit(matrix)
    with pytest.raises(InputError, match=r"X has 50 features, but \w+ is expecting 64 features"):
        fitted.transform(ASIDE[:, :50])
    with pytest.raises(InputError, match="cannot be negative"):
        fitted.transform(-ASIDE)
    assert numpy.array_equal(fitted.transform(ASIDE), before)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("metric", [*sorted(STANDARD), "hamming", "jaccard", "sqhyperbolic"])
def test_metrics_by_name(name, metric):
    """Dense and sparse rows; binary ones for sets, rows in the unit ball for hyperbolic distances."""
    rows = ROWS > 1.8 if metric in ("hamming", "jaccard") else ROWS * (0.02 if metric == "sqhyperbolic" else 1)
    method = METHODS[name]
    model = method.make(**{method.metric: metric}, process_duplicates=False)
    assert numpy.isfinite(model.fit_transform(rows)).all()
    assert numpy.isfinite(model.transform(rows[::-1, ::-1])).all()
    stored = sparse.csr_matrix(numpy.where(ROWS > 1, rows, 0))
    assert numpy.isfinite(model.fit_transform(stored)).all()
    assert numpy.isfinite(model.transform(stored[::-1])).all()


def whole_tiles(a, b):
    return ((a - b) ** 2).sum(-1).sqrt()


def single_pairs(a, b):
    return abs(a - b).max()


def pairwise_maximum(a, b):
    return abs(a - b).amax(-1)


@pytest.mark.parametrize("name", LAYOUTS)
def test_metrics_by_function(name):
    method = METHODS[name]

    def fitted(metric):
        return method.make(**{method.metric: metric}, init="normal").fit(ROWS)

    by_name, by_function = fitted("euclidean"), fitted(whole_tiles)
    assert near(by_function.embedding_, by_name.embedding_)
    assert near(by_function.transform(NEW), by_name.transform(NEW))
    tiles, pairs = fitted(pairwise_maximum), fitted(single_pairs)
    assert near(pairs.embedding_, tiles.embedding_)
    assert not near(pairs.embedding_, by_name.embedding_, 1e-5)


BAD_METRICS = {
    "unknown": ("euclid", OptionError, "unknown metric(_in)? 'euclid': known are angular, cosine"),
    "None": (None, UnsupportedError, "metric(_in)? must be a name or a function of two Tensors, got None"),
    "a number": (2, UnsupportedError, "metric(_in)? must be a name or a function of two Tensors, got 2"),
    "gives text": (lambda a, b: "x", UnsupportedError, "gives no distances"),
    "gives NaN": (lambda a, b: float("nan"), InputError, "gave nan for two of the rows; distances must be finite"),
    "raises": (lambda a, b: 1 / 0, UnsupportedError, "ZeroDivisionError: division by zero"),
    "a similarity": (lambda a, b: (a * b).sum(-1), InputError, r"gave -.* distances cannot be negative"),
    "outside the ball": ("sqhyperbolic", InputError, "inside the unit ball, and row 0 of X has length"),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("what", BAD_METRICS)
def test_bad_metrics_are_refused(name, what):
    metric, error, words = BAD_METRICS[what]
    method = METHODS[name]
    with pytest.raises(error, match=words) as raised:
        method.make(**{method.metric: metric}).fit(ROWS)
    assert type(raised.value) is error


def test_a_kernel_given_as_it_is():
    kernel, aside = numpy.exp(-(SQUARE**2)), numpy.exp(-(ASIDE**2))
    by_rows = KernelPCA().fit(ROWS)
    model = KernelPCA(affinity="precomputed").fit(kernel)
    assert near(model.embedding_, by_rows.embedding_)
    assert near(model.transform(aside), by_rows.transform(NEW))
    for matrix, error, words in (
        (kernel[:, :50], InputError, r"takes the square matrix K, got shape \(64, 50\)"),
        (kernel + numpy.triu(kernel), OptionError, "must be finite and symmetric"),
        (-kernel, OptionError, "no inner product"),
    ):
        with pytest.raises(error, match=words):
            model.fit(matrix)
        assert near(model.transform(aside), by_rows.transform(NEW))
