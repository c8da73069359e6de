"""JSON: arrays of rows are read element by element, whatever the line breaks; ragged lines in linear time."""

import io
import json

import numpy
import pytest

from cartograd.errors import DataFileError
from cartograd.io import jsonarray, read


def write(tmp_path, text, name="a.json"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["a.json", "a", "a.txt"])
def test_an_array_of_objects(tmp_path, indent, name):
    rows = [{"a": 1, "b": 2.5, "t": "x,]"}, {"a": 3, "b": 4.5, "t": None}]
    table = read(write(tmp_path, json.dumps(rows, indent=indent), name))
    assert table.X.tolist() == [[1, 2.5], [3, 4.5]]
    assert table.columns["t"].tolist() == ["x,]", None]


def test_an_array_of_lists(tmp_path):
    assert read(write(tmp_path, "[[1,2],[3,4],[5,6]]")).X.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_lines_of_lists_are_lines(tmp_path):
    assert read(write(tmp_path, "[1,2]\n[3,4]\n")).X.tolist() == [[1, 2], [3, 4]]
    assert read(write(tmp_path, "[[1,2],0]\n[[3,4],5]\n")).X.tolist() == [[1, 2, 0], [3, 4, 5]]


def test_lines_of_objects_in_a_json_file(tmp_path):
    assert read(write(tmp_path, '{"a": 1}\n{"a": 2}\n')).X.tolist() == [[1], [2]]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_pieces_of_any_size(monkeypatch, piece):
    monkeypatch.setattr(jsonarray, "PIECE", piece)
    rows = [{"a": -1.5e3, "t": '\\ " \u20ac'}, [], {}, 12345, "x", True, None, [[1], [2]]]
    for indent in (None, 1):
        found = jsonarray.elements(io.StringIO(json.dumps(rows, indent=indent)))
        assert [value for _, _, value in found] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"a": 2', "row 2 is no JSON: Expecting ',' delimiter"),
        ('[{"a": 1}, {"a": tru}]', "row 2 is no JSON: Expecting value"),
        ('[{"a": 1} {"a": 2}]', r"after row 1 it is no JSON: a comma or \] is missing"),
        ('[{"a": 1}', r"after row 1 it is no JSON: \] is missing"),
        ('[{"a": 1}] x', "something follows its end"),
        ('[{"a": 1}, 3]', "row 2 is a int; every row must be an object or a list"),
        ('{"a": [1, 2], "b": [3, 4]}', "it is one JSON object, and no rows"),
        ('{"a": {"0": 1, "1": 2}}', "it is one JSON object, and no rows"),
        ('{\n "a": [1, 2]\n}', "line 1 is no JSON: .*; write an object on every line, or an array of objects"),
        ("[" * 100_000, "no JSON: maximum recursion depth"),
    ],
)
def test_broken_arrays(tmp_path, text, message):
    with pytest.raises(DataFileError, match=message):
        read(write(tmp_path, text))


def test_an_error_at_the_beginning_of_a_large_file_is_found_there(tmp_path):
    text = '[{"a" 1}, ' + ", ".join(['{"a": 1}'] * 300_000) + "]"
    with pytest.raises(DataFileError, match="row 1 is no JSON: Expecting ':' delimiter"):
        read(write(tmp_path, text))


@pytest.mark.timeout(60)
def test_other_keys_on_every_line(tmp_path):
    lines = [json.dumps({f"k{row}_{place}": place for place in range(100)}) for row in range(1500)]
    with pytest.raises(DataFileError, match=r"rows have [\d,]+ different keys, nearly all of them missing in each row"):
        read(write(tmp_path, "\n".join(lines), "a.jsonl"), missing="zero")


@pytest.mark.timeout(60)
def test_a_ragged_table_that_is_not_empty_is_read(tmp_path):
    lines = [json.dumps({f"k{place}": row for place in range(row % 7, 3000, 7)}) for row in range(500)]
    table = read(write(tmp_path, "\n".join(lines), "a.jsonl"), missing="zero")
    assert table.X.shape == (500, 3000)
    expected = numpy.where(numpy.arange(500)[:, None] % 7 == numpy.arange(3000) % 7, numpy.arange(500)[:, None], 0)
    columns = [int(name[1:]) for name in table.feature_names]
    numpy.testing.assert_array_equal(table.X, expected[:, columns])


def test_missing_keys_of_every_kind(tmp_path):
    lines = ['{"f": true, "t": "x", "v": [1, 2], "n": 1}', '{"n": 2}', '{"n": null, "f": false}']
    table = read(write(tmp_path, "\n".join(lines), "a.jsonl"), missing="zero")
    assert table.X.tolist() == [[1], [2], [0]]
    assert table.columns["f"].tolist() == ["true", None, "false"]
    assert table.columns["t"].tolist() == ["x", None, None]
    assert table.columns["v"].tolist() == ["[1, 2]", None, None]
