"""Which columns become features, and what becomes of missing values; filled values against scikit-learn."""

import logging

import numpy
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from cartograd.errors import DataFileError, InputError, OptionError, UnsupportedError
from cartograd.io import read

pandas = pytest.importorskip("pandas")


def people():
    return pandas.DataFrame(
        {
            "id": [104, 101, 107, 102],
            "name": ["Ann", "Bo", "Cy", "Di"],
            "height": [1.7, 1.8, 1.6, 1.75],
            "age": [30, 40, 20, 50],
            "target": [0, 1, 0, 1],
            "town": pandas.Categorical(["A", "B", "A", "C"]),
            "member": [True, False, True, True],
            "since": pandas.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"]),
        }
    )


def test_quantities_are_features_and_everything_else_is_kept(caplog):
    with caplog.at_level(logging.INFO, "cartograd.io"):
        table = read(people())
    assert table.feature_names == ("height", "age")
    numpy.testing.assert_array_equal(table.X, people()[["height", "age"]].to_numpy())
    assert list(table.columns) == ["id", "name", "target", "town", "member", "since"]
    assert table.ids.tolist() == [104, 101, 107, 102]
    for name, reason in {
        "id": "it looks like ids",
        "target": "it looks like a label",
        "town": "text",
        "member": "truth values",
        "since": "times",
    }.items():
        assert f"column {name!r} is kept beside the features: {reason}" in caplog.text


def test_columns_that_are_chosen():
    table = read(people(), columns=["age", "member", "target"], label="target", color="height", text="name")
    assert table.feature_names == ("age", "member", "target")
    assert table.X.tolist() == [[30, 1, 0], [40, 0, 1], [20, 1, 0], [50, 1, 1]]
    assert table.label.tolist() == [0, 1, 0, 1]
    assert table.color.tolist() == [1.7, 1.8, 1.6, 1.75]
    assert table.text.tolist() == ["Ann", "Bo", "Cy", "Di"]
    assert repr(table) == "Table(4 rows, 3 features, 5 other columns, label='target', color='height', text='name')"
    assert list(table.all_columns()) == ["age", "member", "target", "id", "name", "height", "town", "since"]
    assert read(people(), columns=["-age"]).feature_names == ("height",)
    assert read(people(), columns="age").feature_names == ("age",)
    assert read(people(), label="age").feature_names == ("height",)
    assert read(people(), color="age").feature_names == ("height", "age"), "a colour may be a feature"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"columns": ["hieght"]}, OptionError, r"columns: there is no column 'hieght'; did you mean 'height'\?"),
        ({"label": "zzz"}, OptionError, "label: there is no column 'zzz'; there are 'id', 'name'"),
        ({"columns": ["-agee"]}, OptionError, "no column 'agee'; did you mean 'age'"),
        ({"columns": ["-age", "height"]}, OptionError, "with and without a minus"),
        ({"columns": ["name"]}, InputError, r"row 1, column 'name': 'Ann' is no number; .*one_hot=\['name'\]"),
        ({"columns": ["since"]}, InputError, "column 'since' holds times"),
        ({"columns": []}, InputError, "there are no features"),
        ({"missing": "guess"}, OptionError, "missing must be one of error, mean, median, zero, drop, got 'guess'"),
        ({"one_hot": ["nope"]}, OptionError, "one_hot: there is no column 'nope'"),
    ],
)
def test_choices_that_cannot_be(options, kind, message):
    with pytest.raises(kind, match=f"^DataFrame: .*{message}"):
        read(people(), **options)


def test_one_hot_equals_scikit_learn():
    table = read(people(), one_hot=["town", "member"], columns=["age"])
    encoder = OneHotEncoder(sparse_output=False)
    wanted = encoder.fit_transform(people()[["town", "member"]])
    numpy.testing.assert_array_equal(table.X[:, 1:], wanted)
    assert table.feature_names == ("age", "town=A", "town=B", "town=C", "member=False", "member=True")
    assert table.columns["town"].tolist() == ["A", "B", "A", "C"]
    only = read(people()[["town"]], one_hot="town")
    assert only.X.dtype == numpy.float32
    many = pandas.DataFrame({"x": [f"v{n}" for n in range(1001)]})
    with pytest.raises(OptionError, match="has 1,001 different values, at most 1,000"):
        read(many, one_hot="x")


def holes(dtype=numpy.float64):
    draw = numpy.random.default_rng(3)
    X = draw.normal(size=(40, 3)).astype(dtype)
    X[draw.random((40, 3)) < 0.2] = numpy.nan
    return X


@pytest.mark.parametrize("rule", ["mean", "median", "zero"])
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64])
def test_filled_values_equal_scikit_learn(rule, dtype):
    X = holes(dtype)
    imputer = SimpleImputer(strategy="constant", fill_value=0.0) if rule == "zero" else SimpleImputer(strategy=rule)
    table = read(pandas.DataFrame(X, columns=list("abc")), missing=rule)
    assert table.X.dtype == dtype
    numpy.testing.assert_allclose(table.X, imputer.fit_transform(X), rtol=1e-6 if dtype == numpy.float32 else 1e-14)
    assert numpy.isnan(X).any(), "the data of the caller are as they were"


def test_rows_with_missing_values_can_be_dropped():
    X = holes()
    frame = pandas.DataFrame(X, columns=list("abc")).assign(word=[f"w{n}" for n in range(40)])
    table = read(frame, missing="drop", text="word")
    whole = ~numpy.isnan(X).any(axis=1)
    numpy.testing.assert_array_equal(table.X, X[whole])
    assert table.rows.tolist() == table.ids.tolist() == numpy.nonzero(whole)[0].tolist()
    assert table.text.tolist() == [f"w{n}" for n in numpy.nonzero(whole)[0]]
    with pytest.raises(InputError, match="leaves no row: column 'b'"):
        read(pandas.DataFrame({"a": [1.0, 2.0], "b": [numpy.nan] * 2}), columns=["a", "b"], missing="drop")


def test_missing_values_are_refused_with_their_place():
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, numpy.nan, numpy.nan]})
    message = (
        r"row 2, column 'b': the value is missing \(2 of 6 are\); say what to do: missing='mean', 'median' or 'zero'"
    )
    with pytest.raises(InputError, match=message):
        read(frame)
    with pytest.raises(InputError, match="row 3, column 'a': inf; features must be finite"):
        read(pandas.DataFrame({"a": [1.0, 2.0, numpy.inf]}), missing="mean")
    empty = pandas.DataFrame({"a": [1.0, 2.0], "b": [numpy.nan] * 2})
    assert read(empty).feature_names == ("a",), "a column without any value is no feature"
    with pytest.raises(InputError, match=r"column 'b' has no value at all, so there is no mean; .*columns=\['-b'\]"):
        read(empty, columns=["a", "b"], missing="mean")
    with pytest.raises(InputError, match="row 2, column 't=x': the value is missing"):
        read(pandas.DataFrame({"t": ["x", None, "y"]}), one_hot="t")
    assert read(pandas.DataFrame({"t": ["x", None, "y"]}), one_hot="t", missing="zero").X.tolist() == [
        [1, 0],
        [0, 0],
        [0, 1],
    ]


@pytest.mark.parametrize(
    ("name", "values", "is_feature"),
    [
        ("id", [3, 1, 2], False),
        ("cell_id", [3, 1, 2], False),
        ("cellId", [3, 1, 2], False),
        ("Index", [0, 1, 2], False),
        ("id", [3, 3, 2], True),
        ("id", [0.5, 1.5, 2.5], True),
        ("paid", [3, 1, 2], True),
        ("width", [3, 1, 2], True),
        ("class", [1, 1, 2, 2], False),
        ("class", [1, 2, 3, 4], True),
        ("class", [0.5, 0.5, 1.5, 1.5], True),
        ("y", [1, 1, 2, 2], False),
    ],
)
def test_what_looks_like_ids_or_a_label(name, values, is_feature):
    frame = pandas.DataFrame({name: values, "other": numpy.linspace(0, 1, len(values))})
    assert (name in read(frame).feature_names) == is_feature


def test_y_beside_x_is_a_coordinate():
    assert read(pandas.DataFrame({"x": [1, 1, 2, 2], "y": [1, 1, 2, 2]})).feature_names == ("x", "y")


def test_precision_follows_the_data():
    kinds = {"a": numpy.float16, "b": numpy.uint8, "c": numpy.float32}
    small = pandas.DataFrame({name: numpy.array([0, 1, 2], dtype=kind) for name, kind in kinds.items()})
    assert read(small).X.dtype == numpy.float32
    assert read(small.assign(d=[1, 2, 4])).X.dtype == numpy.float64


def test_sources_that_are_none():
    with pytest.raises(UnsupportedError, match="int: it is no table"):
        read(3)
    with pytest.raises(DataFileError, match="there are no rows in it"):
        read(pandas.DataFrame({"a": []}))
    with pytest.raises(OptionError, match="there is no column 'q'"):
        read("iris").column("q")
