"""Arguments of `read` and names of files: one line of ours, before anything is opened."""

import os
import pathlib

import numpy
import pytest

from cartograd.errors import CartogradError, DataFileError, InputError, OptionError, UnsupportedError
from cartograd.io import read, write_table

ENCODINGS = ["undefined", "idna", "punycode", "rot13", "base64", "unicode_escape", "utf-8\0", "\ud800", "", "x" * 300]
NAMES = {
    "256": "x" * 252 + ".csv",
    "NUL": "a\0b.csv",
    "long": "a/" * 3000 + "b.csv",
    "surrogate": "a\ud800.csv",
    "empty": "",
    "path with NUL": pathlib.Path("a\0b.csv"),
}


class BytesPath:
    def __fspath__(self):
        return b"a.csv"


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 1000
    return text


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_codecs_that_are_no_encodings_of_text(tmp_path, encoding, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n\xff')
    with pytest.raises(DataFileError, match=r"the encoding '.*is unknown; try") as error:
        read(path, encoding=encoding)
    one_line(error)


def test_text_in_another_encoding_than_the_one_named(tmp_path):
    for suffix, text in (("csv", "a,b\n1,2\n"), ("jsonl", '{"a": 1}\n')):
        (tmp_path / f"a.{suffix}").write_text(text)
        with pytest.raises(DataFileError, match="it is not text in utf_16"):
            read(tmp_path / f"a.{suffix}", encoding="utf_16")


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_file_can_have(name):
    with pytest.raises(OptionError, match=r"cannot be one: a (name|path)") as error:
        read(NAMES[name])
    one_line(error)
    with pytest.raises(OptionError, match=r"cannot be one: a (name|path)") as error:
        write_table(NAMES[name], {"a": [1.0]})
    one_line(error)


@pytest.mark.parametrize("path", [b"a.csv", BytesPath(), 3, None, ["a.csv"]])
def test_paths_that_are_no_text(path):
    with pytest.raises(UnsupportedError) as error:
        read(path)
    one_line(error)
    with pytest.raises(UnsupportedError, match="must be text or a path of text") as error:
        write_table(path, {"a": [1.0]})
    one_line(error)


def test_a_name_with_a_line_break_is_shown_in_one_line(tmp_path):
    with pytest.raises(CartogradError, match=r"a\\nb\.csv: there is no such file") as error:
        read(tmp_path / "a\nb.csv")
    one_line(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": "1"}, "max_bytes must be a whole number"),
        ({"max_bytes": 0}, "max_bytes must be at least 1"),
        ({"header": "yes"}, "header must be one of"),
        ({"delimiter": 3}, "delimiter must be text"),
        ({"key": 3}, "key must be text"),
        ({"label": ["a"]}, "label must be text"),
        ({"columns": 3.5}, "columns must be a list of names"),
        ({"columns": [None]}, "columns must hold names as text"),
        ({"one_hot": b"a"}, "one_hot must be a list of names"),
        ({"missing": []}, "missing must be one of error, mean"),
    ],
)
def test_arguments_of_wrong_types(options, message):
    with pytest.raises(CartogradError, match=message) as error:
        read("no-such-file.csv", **options)
    one_line(error)


def test_names_may_come_in_any_list():
    table = numpy.zeros(3, dtype=[("a", "f8"), ("b", "f8")])
    for names in (["a"], ("a",), {"a": 1}.keys(), numpy.array(["a"]), iter(["a"])):
        assert read(table, columns=names).feature_names == ("a",)


def test_halves_of_characters_become_question_marks(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a\\ud800": 1, "t": "x\\udfff"}\n{"a\\ud800": 2, "t": "y"}\n')
    table = read(path)
    assert table.feature_names == ("a?",)
    assert table.columns["t"].tolist() == ["x?", "y"]


def test_names_that_become_equal_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a\\ud800": 1, "a\\udfff": 2}\n')
    with pytest.raises(DataFileError, match=r"two of its columns would be called 'a\?'"):
        read(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match=r"two columns would be called 'a\?'"):
        write_table(tmp_path / "b.csv", {name: [1.0] for name in ("a\ud800", "a\udfff")})
    assert os.listdir(tmp_path) == ["a.jsonl"]
