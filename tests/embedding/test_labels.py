"""Labels of every kind: codes pinned, unknown ones left out, wrong ones refused; all methods but UMAP ignore them."""

import sys
from pathlib import Path

import numpy
import pytest
import torch

from cartograd import UMAP, Tensor
from cartograd.embedding.labels import known_labels, labels_of_distinct
from cartograd.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))

from awkward_inputs import ORDINARY
from estimators import METHODS, NAMES

CLASSES = numpy.arange(64) % 3
MODEL = {"n_neighbors": 10, "max_iter": 10, "random_state": 0}


def of_pandas(values, dtype):
    return lambda: pytest.importorskip("pandas").Series(values, dtype=dtype)


KINDS = {
    "ints": (lambda: [5, 7, 5, -1], [0, 1, 0, -1]),
    "uint8": (lambda: numpy.array([5, 7, 5, 255], dtype="uint8"), [0, 1, 0, 2]),
    "floats": (lambda: [5.0, 7.0, numpy.nan, -1.0], [0, 1, -1, -1]),
    "bools": (lambda: [True, False, True, False], [1, 0, 1, 0]),
    "text": (lambda: ["b", "a", "b", "c"], [1, 0, 1, 2]),
    "text and None": (lambda: ["b", None, "b", "a"], [1, -1, 1, 0]),
    "bytes": (lambda: [b"b", b"a", b"b", b"c"], [1, 0, 1, 2]),
    "mixed": (lambda: [1, "a", None, 2.5], [0, 2, -1, 1]),
    "huge": (lambda: [10**30, 5, 10**30, -1], [0, 1, 0, -1]),
    "dates": (lambda: numpy.array(["2020-01-02", "NaT", "2020-01-01", "NaT"], "datetime64[D]"), [1, -1, 0, -1]),
    "column": (lambda: [[5], [7], [5], [-1]], [0, 1, 0, -1]),
    "masked": (lambda: numpy.ma.masked_array([5, 7, 5, 6], [0, 0, 0, 1]), [0, 1, 0, -1]),
    "tensor": (lambda: torch.tensor([5.0, 7.0, torch.nan, 5.0], requires_grad=True), [0, 1, -1, 0]),
    "bfloat16": (lambda: torch.tensor([5, 7, 5, -1]).bfloat16(), [0, 1, 0, -1]),
    "our Tensor": (lambda: Tensor(torch.tensor([5.0, 7.0, 5.0, -1.0])), [0, 1, 0, -1]),
    "pandas, text": (of_pandas(["b", None, "b", "a"], "string"), [1, -1, 1, 0]),
    "pandas, Int64": (of_pandas([5, None, 5, 7], "Int64"), [0, -1, 0, 1]),
    "pandas, categories": (of_pandas(["b", None, "b", "a"], "category"), [1, -1, 1, 0]),
    "polars": (lambda: pytest.importorskip("polars").Series([5, None, 5, 7]), [0, -1, 0, 1]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_codes(kind):
    labels, codes = KINDS[kind]
    assert known_labels(labels(), 4).tolist() == codes


BAD = {
    "too few": (CLASSES[:50], r"y must have one label for each of the 64 rows, got shape \(50,\)"),
    "none": ([], r"got shape \(0,\)"),
    "one": (3, r"got shape \(\)"),
    "text": ("abc", r"got shape \(\)"),
    "two columns": (numpy.stack([CLASSES] * 2, 1), r"got shape \(64, 2\)"),
    "ragged": ([[1], [1, 2]] * 32, "got lists of different lengths"),
}


@pytest.mark.parametrize("what", BAD)
def test_wrong_labels_are_refused(what):
    labels, words = BAD[what]
    model = UMAP(**MODEL).fit(ORDINARY)
    before = model.transform(ORDINARY + 1)
    with pytest.raises(InputError, match=words):
        model.fit(ORDINARY, labels)
    assert numpy.array_equal(model.transform(ORDINARY + 1), before)


def test_the_same_classes_by_other_names_give_the_same_map():
    def fitted(labels):
        return UMAP(**MODEL).fit_transform(ORDINARY, labels)

    by_number = fitted(CLASSES)
    assert numpy.array_equal(fitted(CLASSES.astype(str)), by_number)
    assert numpy.array_equal(fitted(CLASSES * 10.0), by_number)
    assert not numpy.array_equal(fitted(CLASSES % 2), by_number)
    assert not numpy.array_equal(fitted(None), by_number)
    unknown = fitted(numpy.full(64, -1))
    assert numpy.array_equal(fitted([None] * 64), unknown)
    assert numpy.array_equal(fitted(numpy.full(64, numpy.nan)), unknown)


def test_equal_rows_share_their_place_whatever_their_labels():
    rows = numpy.repeat(ORDINARY[:16], 4, axis=0)
    model = UMAP(**MODEL).fit(rows, CLASSES)
    assert numpy.isfinite(model.embedding_).all()
    assert len(numpy.unique(model.embedding_, axis=0)) == 16
    assert numpy.array_equal(model.transform(rows), model.embedding_)
    assert numpy.isfinite(model.transform(ORDINARY)).all()


def test_labels_of_equal_rows():
    labels, rows = torch.tensor([3, 3, -1, 2, 4, -1]), torch.tensor([0, 0, 0, 1, 1, 2])
    assert labels_of_distinct(labels, rows, 3).tolist() == [3, -1, -1]


@pytest.mark.parametrize("y", [[0.5, 1.0, 2.0], numpy.array([1.0, numpy.nan, 2.25]), torch.tensor([0.1, 0.2, 0.3])])
def test_a_continuous_y_is_refused(y):
    with pytest.raises(InputError, match=r"y must hold classes .* continuous y is not served yet"):
        known_labels(y, 3)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "UMAP"])
def test_other_methods_ignore_labels(name):
    plain = METHODS[name].make().fit_transform(ORDINARY)
    for labels in (CLASSES, "abc", [None]):
        assert numpy.array_equal(METHODS[name].make().fit_transform(ORDINARY, labels), plain)
