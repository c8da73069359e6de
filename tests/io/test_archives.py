"""Zip archives: NumPy's, one packed text table, spreadsheets, and anything else."""

import warnings
import zipfile

import numpy
import pytest

from cartograd.errors import DataFileError
from cartograd.io import read

TABLE = "a,b\n1,2\n3,4\n"


def archive(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal names
        for name, content in members:
            file.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["a.csv.zip", "a.zip", "a"])
def test_one_packed_table_is_read(tmp_path, name):
    path = archive(tmp_path / name, [("inner.csv", TABLE), ("__MACOSX/._inner.csv", "x")])
    assert read(path).X.tolist() == [[1, 2], [3, 4]]


def test_packed_lines_of_json(tmp_path):
    path = archive(tmp_path / "a.zip", [("inner.jsonl", '{"a": 1}\n{"a": 2}\n')])
    assert read(path).X.tolist() == [[1], [2]]


@pytest.mark.parametrize("name", ["a.zip", "a.csv.zip"])
@pytest.mark.parametrize("members", [[], ["a.csv", "b.csv"], ["a.exe"], ["a.pdf", "b", "c", "d"]])
def test_other_archives_are_named(tmp_path, name, members):
    path = archive(tmp_path / name, [(member, TABLE) for member in members])
    with pytest.raises(DataFileError, match=r"it is a zip archive that holds .*, not one text table") as error:
        read(path)
    assert (members[0] if members else "nothing") in str(error.value)


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.csv.zip"])
@pytest.mark.parametrize("member", ["[Content_Types].xml", "mimetype", "Index/Document.iwa"])
def test_spreadsheets_are_named(tmp_path, name, member):
    with pytest.raises(DataFileError, match=r"it is a spreadsheet, which is not read; save its sheet as \.csv"):
        read(archive(tmp_path / name, [(member, "x"), ("xl/workbook.xml", "x")]))


def test_old_spreadsheets_are_named(tmp_path):
    (tmp_path / "a.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    with pytest.raises(DataFileError, match="it is a spreadsheet"):
        read(tmp_path / "a.xls")


def test_an_npz_with_another_member(tmp_path):
    with pytest.raises(DataFileError, match=r"a\.npz: 'readme\.txt' in it is no NumPy array \(\.npy\)"):
        read(archive(tmp_path / "a.npz", [("readme.txt", "hello")]))


def test_an_npz_with_two_arrays_of_one_name(tmp_path):
    numpy.save(tmp_path / "X.npy", numpy.ones((3, 2)))
    content = (tmp_path / "X.npy").read_bytes()
    with pytest.raises(DataFileError, match="two arrays of the name 'X'"):
        read(archive(tmp_path / "a.npz", [("X.npy", content), ("X.npy", content)]))


def test_a_packed_bomb(tmp_path):
    path = archive(tmp_path / "a.csv.zip", [("a.csv", "a,b\n" + "0,0\n" * 10_000_000)])
    with pytest.raises(DataFileError, match=r"its member 'a\.csv' would expand from"):
        read(path)


def test_a_broken_archive(tmp_path):
    path = archive(tmp_path / "a.csv.zip", [("a.csv", TABLE)])
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataFileError, match="it cannot be read as a zip archive"):
        read(path)
