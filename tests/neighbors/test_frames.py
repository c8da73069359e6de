"""Frames: numbers are taken as they are, and columns of anything else are refused by name."""

import numpy
import pytest

from cartograd import UMAP
from cartograd.errors import InputError, UnsupportedError
from cartograd.neighbors import search

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

COLUMNS = {"a": [1.0, 2.0, 4.0], "name": ["x", "y", "z"], "b": [0.0, 1.0, 1.0]}


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_columns_of_text_are_named(make):
    with pytest.raises(
        InputError, match=r"^X must hold numbers, got .* columns 'name' \((object|str\w*|String)\); drop"
    ):
        UMAP(n_neighbors=2, max_iter=2).fit_transform(make(COLUMNS))


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_frames_of_numbers_are_arrays(make):
    columns = {"a": COLUMNS["a"], "whole": [1, 2, 3], "flag": [True, False, True]}
    expected = search(numpy.column_stack([numpy.float64(column) for column in columns.values()]), 2)
    found = search(make(columns), 2)
    numpy.testing.assert_array_equal(found[0], expected[0])


def test_dates_and_categories_are_named():
    frame = pandas.DataFrame({"a": [1.0, 2.0], "day": pandas.date_range("2020", periods=2)})
    frame["kind"] = pandas.Categorical(["u", "v"])
    with pytest.raises(UnsupportedError, match=r"'day' \(datetime64\[ns\]\), 'kind' \(category\)"):
        search(frame, 1)


def test_missing_whole_numbers_are_named():
    frame = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64"), "b": [1.0, 2.0, 3.0]})
    with pytest.raises(UnsupportedError, match=r"columns 'a' \(Int64\): .*; drop them, fill what is missing"):
        search(frame, 1)


def test_many_columns_of_text_are_listed_in_part():
    frame = pandas.DataFrame({f"c{place}": ["x", "y"] for place in range(40)})
    with pytest.raises(InputError, match=r"'c11' \(\w+\) and 28 more; drop"):
        search(frame, 1)


class Raises:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("first\nsecond")


class NoText:
    def __repr__(self):
        raise RuntimeError("no text")


def test_an_array_interface_that_raises():
    with pytest.raises(
        InputError, match="X cannot be read as a table of numbers: __array__ raised RuntimeError: first"
    ):
        search(Raises(), 1)


def test_objects_without_a_text():
    array = numpy.empty((2, 1), dtype=object)
    array[0, 0], array[1, 0] = 1.0, NoText()
    with pytest.raises(UnsupportedError, match="X holds a NoText, of type NoText: float"):
        search(array, 1)
