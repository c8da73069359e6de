"""Tables that are written: read back by other libraries, and by us, as they were."""

import csv
import json

import numpy
import pytest
import torch

import cartograd
from cartograd.errors import CartogradError, FileAbsentError, InputError, OptionError, UnsupportedError
from cartograd.io import read, write_table

pyarrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pytest.importorskip("pyarrow.feather")
pytest.importorskip("pyarrow.parquet")

HOSTILE = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "plain", 'quo"te', "a,b\nc", "", None]


def columns():
    draw = numpy.random.default_rng(0)
    n = len(HOSTILE)
    return {
        "x": draw.normal(size=n),
        "y": draw.normal(size=n).astype(numpy.float32),
        "n": draw.integers(-(2**62), 2**62, size=n),
        "flag": draw.random(n) < 0.5,
        "text": HOSTILE,
        "when": numpy.arange(n).astype("datetime64[s]"),
        "v": draw.normal(size=(n, 2)),
    }


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_arrow_files_hold_exactly_what_was_given(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    write_table(path, columns())
    table = pyarrow.parquet.read_table(path) if suffix == ".parquet" else pyarrow.feather.read_table(path)
    for name, values in columns().items():
        found = table.column(name).to_pylist()
        assert found == (values if isinstance(values, list) else values.tolist()), name
    assert str(table.schema.field("y").type) == "float"
    assert polars.read_parquet(path).shape == (len(HOSTILE), 7) if suffix == ".parquet" else True


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_text_tables_against_pandas(tmp_path, suffix, delimiter):
    path = tmp_path / f"t{suffix}"
    write_table(path, columns())
    found = pandas.read_csv(path, sep=delimiter, float_precision="round_trip", keep_default_na=False)
    assert list(found) == ["x", "y", "n", "flag", "text", "when", "v_0", "v_1"]
    assert found["x"].tolist() == columns()["x"].tolist()
    assert found["y"].astype(numpy.float32).tolist() == columns()["y"].tolist()
    assert found["n"].tolist() == columns()["n"].tolist()
    assert found["v_1"].tolist() == columns()["v"][:, 1].tolist()
    assert found["when"][1] == "1970-01-01T00:00:01"


def test_no_cell_of_text_is_a_formula(tmp_path):
    cells = [*HOSTILE, "-5", "+1e3", "- 5", "=", "@"]
    write_table(tmp_path / "t.csv", {"=name": cells, "number": numpy.linspace(-1, 1, len(cells))})
    with open(tmp_path / "t.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=name", "number"]
    for (text, number), given in zip(rows, cells, strict=True):
        given = given or ""
        dangerous = given[:1] in ("=", "+", "-", "@", "\t", "\r") and given not in ("-5", "+1e3")
        assert text == ("'" + given if dangerous else given)
        float(number)
    assert rows[0][1] == "-1.0", "numbers stay numbers"


def test_a_row_of_one_missing_cell_is_a_row(tmp_path):
    write_table(tmp_path / "t.csv", {"a": [1.5, None, 2.5]})
    assert pandas.read_csv(tmp_path / "t.csv", skip_blank_lines=True)["a"].isna().tolist() == [False, True, False]
    assert read(tmp_path / "t.csv", missing="zero").X.tolist() == [[1.5], [0], [2.5]]


def test_jsonl(tmp_path):
    given = columns() | {"odd": numpy.array([numpy.nan, numpy.inf, -numpy.inf] + [0.1] * (len(HOSTILE) - 3))}
    write_table(tmp_path / "t.jsonl", given)
    rows = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == HOSTILE
    assert [row["n"] for row in rows] == given["n"].tolist()
    assert [row["v"] for row in rows] == given["v"].tolist()
    assert [row["odd"] for row in rows[:4]] == [None, float("inf"), float("-inf"), 0.1]
    assert numpy.float32([row["y"] for row in rows]).tolist() == given["y"].tolist()


def test_numpy_files(tmp_path):
    write_table(tmp_path / "t.npz", columns() | {"file": numpy.zeros(len(HOSTILE))})
    with numpy.load(tmp_path / "t.npz", allow_pickle=False) as found:
        assert found["x"].tolist() == columns()["x"].tolist()
        assert found["text"].tolist() == [text or "" for text in HOSTILE]
        assert "file" in found
    write_table(tmp_path / "t.npy", {"x": [1.0, 2.0], "v": numpy.eye(2)})
    assert numpy.load(tmp_path / "t.npy").tolist() == [[1, 1, 0], [2, 0, 1]]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".csv", ".tsv", ".jsonl", ".npz"])
def test_what_we_write_we_read(tmp_path, suffix):
    given = {
        "a": numpy.random.default_rng(1).normal(size=50) * 1e10,
        "w": [f"wört {n}" if n % 3 else None for n in range(50)],
    }
    write_table(tmp_path / f"t{suffix}", given)
    table = read(tmp_path / f"t{suffix}", text="w")
    assert table.X[:, 0].tolist() == given["a"].tolist()
    assert table.text.tolist() == given["w"]


def test_kinds_of_columns(tmp_path):
    path = tmp_path / "t.csv"
    write_table(
        path,
        {
            "torch": torch.tensor([1.5, 2.5]),
            "ours": cartograd.tensor([0.1, 0.2]),
            "series": pandas.Series([1, 2]),
            "category": pandas.Series(["a", None], dtype="category"),
            "gaps": [1, None],
            "bytes": [b"x", b"\xff"],
            "half": ["\ud800", "ok"],
        },
    )
    assert path.read_text() == "torch,ours,series,category,gaps,bytes,half\n1.5,0.1,1,a,1.0,x,?\n2.5,0.2,2,,,�,ok\n"


@pytest.mark.parametrize(
    ("name", "given", "kind", "message"),
    [
        ("t.xlsx", {"a": [1]}, OptionError, r"its name must end in one of \.parquet, \.feather"),
        ("t.csv", {}, InputError, "no columns"),
        ("t.csv", {"a": [1], "b": [1, 2]}, InputError, r"of one length, got \{'a': 1, 'b': 2\}"),
        ("t.csv", {3: [1]}, UnsupportedError, "names of columns must be text, got 3"),
        (
            "t.csv",
            {"a": numpy.zeros((1, 2, 3))},
            UnsupportedError,
            r"column 'a' is an array of float64 of shape \(1, 2, 3\)",
        ),
        ("t.csv", {"a": [1j]}, UnsupportedError, "column 'a' is an array of complex128"),
        ("t.csv", {"a": numpy.zeros((1, 2)), "a_1": [1]}, InputError, "two columns would be called 'a_1'"),
        ("t.npy", {"a": ["x"]}, InputError, r"\.npy holds numbers only, and column 'a' holds object"),
        ("no/t.csv", {"a": [1]}, FileAbsentError, "does not exist"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, given, kind, message):
    with pytest.raises(kind, match=message):
        write_table(tmp_path / name, given)
    assert not list(tmp_path.iterdir())


class Raises:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("first\nsecond")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "npz", "npy"])
@pytest.mark.parametrize("values", [[[1, 2], [3]], Raises(), 3, None, [1j], [[[1]]]])
def test_columns_that_cannot_be_written_are_named(tmp_path, suffix, values):
    with pytest.raises(CartogradError, match="column 'bad' ") as error:
        write_table(tmp_path / f"a.{suffix}", {"bad": values})
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a\0b", "x" * 70_000])
def test_names_that_an_archive_cannot_hold(tmp_path, name):
    with pytest.raises(CartogradError, match="its name is too long, or holds NUL"):
        write_table(tmp_path / "a.npz", {name: [1.0]})
