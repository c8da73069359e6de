"""What a column is taken for, and the table around it."""

import datetime
import math

import numpy as np
import pytest

from cartograd.errors import InputError
from cartograd.viewer.columns import column, natural_key
from cartograd.viewer.table import read_table

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "kind", "names", "codes"),
    [
        (["b", "a", "b", None], "category", ["a", "b"], [1, 0, 1, 2]),
        ([3, 1, 3, 1], "category", ["1", "3"], [1, 0, 1, 0]),
        ([True, False, True, True], "category", ["False", "True"], [1, 0, 1, 1]),
        ([True, None, True, False], "category", ["False", "True"], [1, 2, 1, 0]),
        (np.array(["c10", "c2", "c2", "b"]), "category", ["b", "c2", "c10"], [2, 1, 1, 0]),
        (["", "", "x", NAN], "category", ["", "x"], [0, 0, 1, 2]),
        ([None, None, None, None], "category", [], [0, 0, 0, 0]),
        ([1, "one", 1, "two"], "category", ["1", "one", "two"], [0, 1, 0, 2]),
        (np.ma.array([1, 2, 1, 2], mask=[0, 0, 1, 0]), "category", ["1", "2"], [0, 1, 2, 1]),
        ([1.5, None, 2, NAN], "number", [], None),
        (np.array([1, 2, 3, 4], dtype="datetime64[s]"), "time", [], None),
        ([datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 2), None], "time", [], None),
        (["x" * 200, "a", "b", "c"], "text", ["x" * 200, "a", "b", "c"], [0, 1, 2, 3]),
    ],
)
def test_kinds(values, kind, names, codes):
    found = column("c", values, 4)
    assert (found.kind, found.names) == (kind, names)
    if codes is not None:
        assert found.values.tolist() == codes


def test_numbers_keep_their_values_and_gaps():
    found = column("c", [1.5, None, 2, NAN], 4)
    np.testing.assert_array_equal(found.values, [1.5, NAN, 2.0, NAN])


def test_times_are_milliseconds():
    found = column("c", np.array(["1970-01-02", "NaT"], dtype="datetime64[D]"), 2)
    assert found.values[0] == 86_400_000
    assert math.isnan(found.values[1])


def test_many_whole_numbers_are_numbers_and_many_texts_are_text():
    assert column("c", list(range(21)), 21).kind == "number"
    assert column("c", [i % 20 for i in range(21)], 21).kind == "category"
    assert column("c", [f"t{i}" for i in range(100)], 100).kind == "text"
    assert column("c", [f"t{i % 50}" for i in range(100)], 100).kind == "category"


def test_labels_are_categories_whatever_they_look_like():
    assert column("c", [0.0, 1.0, NAN], 3, kind="category").names == ["0", "1"]
    many = column("c", np.arange(100), 100, kind="category")
    assert many.names == [str(i) for i in range(100)]
    assert many.values.tolist() == list(range(100))


def test_minus_one_is_no_cluster_only_as_the_smallest():
    assert column("c", [-1, 0, 1], 3).unlabelled == 0
    assert column("c", [-2, -1, 0], 3).unlabelled is None
    assert column("c", [0, 1, 2], 3).unlabelled is None


def test_natural_order():
    names = ["10", "9", "-1", "a10", "a9", "A1", "", "é"]
    assert sorted(names, key=natural_key) == ["-1", "9", "10", "", "A1", "a9", "a10", "é"]


def test_arrow_like_frame_like_and_structured():
    class Series:
        def __init__(self, values):
            self.values = values

        def __len__(self):
            return len(self.values)

        def to_numpy(self):
            return np.array(self.values, dtype=object)

    class Frame:
        columns = ("a", 2)

        def __getitem__(self, key):
            return Series(["x", "y"]) if key == "a" else Series([1.5, 2.5])

    class Arrow:
        column_names = ("a",)

        def __getitem__(self, key):
            class Chunked(list):
                def to_pylist(self):
                    return list(self)

            return Chunked(["x", None])

    assert [(c.name, c.kind) for c in read_table(2, Frame()).columns] == [("a", "category"), ("2", "number")]
    assert read_table(2, Arrow()).columns[0].values.tolist() == [0, 1]
    structured = np.array([(1.5, "u"), (2.5, "v")], dtype=[("p", float), ("q", "U1")])
    assert [c.kind for c in read_table(2, structured).columns] == ["number", "category"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_real_frames(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"a": ["x", None, "y"], "b": [1.5, 2.5, None], "c": [1, 2, 1]})
    table = read_table(3, frame, color="a")
    assert [(c.name, c.kind) for c in table.columns] == [("a", "category"), ("b", "number"), ("c", "category")]
    assert table.columns[0].values.tolist() == [0, 2, 1]


def test_a_list_of_lists_is_no_column_of_numbers():
    found = column("c", [[1, 2], [3, 4], [1, 2]], 3)
    assert found.names == ["[1, 2]", "[3, 4]"]
    with pytest.raises(InputError, match="one value for each"):
        column("c", np.zeros((3, 2)), 3)


def test_roles():
    data = {"n": [1.5, 2.5], "c": ["x", "y"], "t": ["long", "text"]}
    table = read_table(2, data, text="t")
    assert (table.color, table.label, table.text) == (1, None, 2)
    table = read_table(2, data, color="n", label=[1, 2])
    assert (table.columns[table.color].name, table.columns[table.label].name) == ("n", "label")
    assert read_table(2, {"color": [1, 2]}, color=["p", "q"]).columns[1].name == "color_"
    assert read_table(2).color is None
    texts = {"t": [f"text {i}" for i in range(40)]}
    assert read_table(40, texts).columns[0].kind == "text"
    assert read_table(40, texts, color="t").columns[0].kind == "category"
