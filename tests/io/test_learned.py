"""What a table teaches: figures of the values that were there, categories, and rows that are read like its own."""

import numpy
import pytest

from cartograd.errors import InputError, ModelFileError
from cartograd.io import read
from cartograd.io.learned import Learned, learn, restore


@pytest.fixture
def write(tmp_path):
    def file(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return file


TRAINING = "a,b,hue\n1,10,red\n,20,blue\n3,,red\n8,40,green\n"


@pytest.mark.parametrize("missing", ["mean", "median", "zero"])
def test_figures_are_those_of_the_values_that_were_there(write, missing):
    learned = learn(read(write("old.csv", TRAINING), missing=missing, one_hot=["hue"]))
    assert learned.names == ("a", "b")
    assert learned.means == [4.0, pytest.approx(70 / 3)]
    assert learned.medians == [3.0, 20.0]
    assert learned.categories == {"hue": ["blue", "green", "red"]}


def test_new_rows_take_the_old_figures_and_categories(write):
    learned = learn(read(write("old.csv", TRAINING), missing="mean", one_hot=["hue"]))
    path = write("new.csv", "a,b,hue\n,1000,red\n900,,red\n")
    table = read(path, columns=["a", "b"], one_hot=["hue"], missing="median", learned=learned)
    assert table.feature_names == ("a", "b", "hue=blue", "hue=green", "hue=red")
    numpy.testing.assert_array_equal(table.X, [[3, 1000, 0, 0, 1], [900, 20, 0, 0, 1]])
    table = read(path, columns=["a", "b"], missing="mean", learned=learned)
    numpy.testing.assert_allclose(table.X, [[4, 1000], [900, 70 / 3]])


def test_rows_of_the_map_are_read_bit_for_bit(write):
    path = write("old.csv", TRAINING)
    for missing in ("mean", "median"):
        table = read(path, missing=missing, one_hot=["hue"])
        again = read(path, columns=["a", "b"], missing=missing, one_hot=["hue"], learned=learn(table))
        assert again.X.tobytes() == table.X.tobytes()


def test_a_column_without_any_value_in_the_new_rows(write):
    learned = learn(read(write("old.csv", TRAINING), missing="mean", columns=["a", "b"]))
    table = read(write("new.csv", "a,b\n,1\n,2\n"), columns=["a", "b"], missing="mean", learned=learned)
    numpy.testing.assert_array_equal(table.X[:, 0], [4.0, 4.0])


def test_codes_that_became_numbers_with_a_point_are_the_same_codes(write):
    learned = learn(read(write("old.csv", "a,kind\n1,1\n2,2\n3,3\n"), one_hot=["kind"], columns=["a"]))
    table = read(
        write("new.csv", "a,kind\n1,2\n2,\n3,3\n"), columns=["a"], one_hot=["kind"], missing="mean", learned=learned
    )
    numpy.testing.assert_array_equal(table.X[:, 1:], [[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert table.feature_names[1:] == ("kind=1", "kind=2", "kind=3")


def test_an_unknown_category_is_named_with_its_row(write):
    learned = learn(read(write("old.csv", TRAINING), missing="mean", one_hot=["hue"]))
    path = write("new.csv", "a,b,hue\n1,2,red\n1,2,pink\n")
    with pytest.raises(
        InputError, match=r"'hue=pink' is a category that the map was made without \(row 2 \(line 3\)\)"
    ):
        read(path, columns=["a", "b"], one_hot=["hue"], learned=learned)


def test_a_figure_that_was_never_learned(write):
    with pytest.raises(InputError, match="column 'b' has a gap, and the map was made without a mean of that column"):
        read(write("new.csv", "a,b\n1,\n2,3\n"), missing="mean", learned=Learned(["a"], [1.0], [1.0]))


def test_dropped_rows_are_counted(write):
    path = write("old.csv", TRAINING)
    assert read(path, missing="drop").dropped == 2
    assert read(path, missing="mean").dropped == 0


def test_it_comes_back_from_plain_data(write):
    table = read(write("old.csv", TRAINING), missing="mean", one_hot=["hue"])
    assert restore(table.feature_names, learn(table).plain()) == Learned(
        ["a", "b"], learn(table).means, learn(table).medians, {"hue": ["blue", "green", "red"]}
    )


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        {},
        {"means": [1.0], "medians": [], "categories": {}},
        {"means": ["x", "y"], "medians": [], "categories": {}},
        {"means": [], "medians": [], "categories": {"a": 3}},
        {"means": [], "medians": [], "categories": {"a": [1, 2, 3]}},
        {"means": [True, 1.0], "medians": [], "categories": {}},
    ],
)
def test_damaged_plain_data_are_refused(plain):
    with pytest.raises(ModelFileError, match="what the model holds of the columns of its rows is damaged"):
        restore(["a", "b"], plain)
