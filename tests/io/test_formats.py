"""Every format: what another library wrote is read as it is, and broken files are refused by name."""

import datetime
import decimal
import json
import logging
import sys

import numpy
import pytest
import torch
from scipy import sparse

import cartograd
from cartograd.errors import DataFileError, FileAbsentError, FileAccessError, InputError, OptionError
from cartograd.io import h5ad, packages, read

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.feather")
pytest.importorskip("pyarrow.parquet")


def arrow_table():
    return pyarrow.table(
        {
            "single": pyarrow.array([1.5, 2.5, 3.5], pyarrow.float32()),
            "half": pyarrow.array(numpy.array([1, 2, 3], dtype=numpy.float16)),
            "whole": pyarrow.array([1, None, 3], pyarrow.int16()),
            "money": pyarrow.array([decimal.Decimal("1.25"), decimal.Decimal("2.50"), None]),
            "vector": pyarrow.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pyarrow.list_(pyarrow.float32())),
            "fixed": pyarrow.array([[1, 2], [3, 4], [5, 6]], pyarrow.list_(pyarrow.int8(), 2)),
            "ragged": pyarrow.array([[1.0], [2.0, 3.0], None]),
            "word": ["a", None, "c"],
            "category": pyarrow.array(["u", "v", "u"]).dictionary_encode(),
            "flag": [True, None, False],
            "day": [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)],
            "moment": pyarrow.array([0, 1, None], pyarrow.timestamp("ms", "UTC")),
            "nothing": pyarrow.nulls(3),
            "blob": [b"\x00", b"\x01", None],
            "record": [{"a": 1}, None, {"a": 2}],
        }
    )


def check_arrow(table):
    assert table.feature_names == (*("single", "half", "whole", "money", "vector_0", "vector_1", "fixed_0", "fixed_1"),)
    wanted = [[1.5, 1, 1, 1.25, 1, 2, 1, 2], [2.5, 2, 2, 2.5, 3, 4, 3, 4], [3.5, 3, 3, 1.875, 5, 6, 5, 6]]
    numpy.testing.assert_array_equal(table.X, wanted)
    assert table.columns["word"].tolist() == ["a", None, "c"]
    assert table.columns["category"].tolist() == ["u", "v", "u"]
    assert table.columns["flag"].tolist() == ["true", None, "false"]
    assert table.columns["ragged"].tolist() == ["[1.0]", "[2.0, 3.0]", None]
    assert table.columns["record"].tolist() == ['{"a": 1}', None, '{"a": 2}']
    assert str(table.columns["day"][0])[:10] == "2020-01-01"
    assert numpy.isnat(table.columns["moment"][2])
    assert "blob" not in table.columns


def test_parquet(tmp_path):
    pyarrow.parquet.write_table(arrow_table(), tmp_path / "a.parquet", row_group_size=2)
    check_arrow(read(tmp_path / "a.parquet", missing="mean"))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_and_arrow(tmp_path, compression):
    pyarrow.feather.write_feather(arrow_table(), tmp_path / "a.feather", compression=compression, chunksize=2)
    check_arrow(read(tmp_path / "a.feather", missing="mean"))
    table = arrow_table()
    with pyarrow.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    check_arrow(read(tmp_path / "a.arrow", missing="mean"))
    check_arrow(read(table, missing="mean"))


def test_feather_of_version_1_is_named(tmp_path):
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(20) + b"FEA1")
    with pytest.raises(DataFileError, match="Feather of version 1"):
        read(tmp_path / "a.feather")


def test_the_index_of_pandas_names_the_rows(tmp_path):
    frame = pandas.DataFrame({"a": [1.0, 2.0]}, index=["r1", "r2"])
    frame.to_parquet(tmp_path / "a.parquet")
    for table in (read(tmp_path / "a.parquet"), read(frame)):
        assert table.ids.tolist() == ["r1", "r2"]
        assert table.feature_names == ("a",)


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_kinds_of_pandas(backend):
    frame = pandas.DataFrame(
        {"n": [1, None, 3], "x": [0.5, 1.5, None], "w": ["a", None, "c"], "f": [True, False, True]}
    )
    table = read(frame.convert_dtypes(dtype_backend=backend), missing="zero")
    assert table.feature_names == ("n", "x")
    assert table.X.tolist() == [[1, 0.5], [0, 1.5], [3, 0]]
    assert table.columns["w"].tolist() == ["a", None, "c"]
    assert table.columns["f"].tolist() == [True, False, True]


def test_polars():
    frame = polars.DataFrame({"a": [1.5, 2.5], "w": ["x", None], "v": [[1.0, 2.0], [3.0, 4.0]]})
    table = read(frame, text="w")
    assert table.X.tolist() == [[1.5, 1, 2], [2.5, 3, 4]]
    assert table.text.tolist() == ["x", None]


def test_vectors_in_an_object_column():
    frame = pandas.DataFrame({"v": [numpy.arange(3.0), numpy.ones(3)]})
    assert read(frame).feature_names == ("v_0", "v_1", "v_2")


def test_arrays_and_tensors():
    X = numpy.arange(6.0).reshape(3, 2)
    for source in (X, torch.from_numpy(X), cartograd.tensor(X), torch.from_numpy(X).to(torch.bfloat16)):
        numpy.testing.assert_array_equal(read(source).X, X)


def test_jsonl(tmp_path):
    rows = [
        {"a": 1, "w": "x", "v": [1, 2]},
        {"a": 2.5, "v": [3, None], "late": True},
        {"w": "ü", "a": None, "v": [5, 6]},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    table = read(path, missing="zero")
    assert table.feature_names == ("a", "v_0", "v_1")
    assert table.X.tolist() == [[1, 1, 2], [2.5, 3, 0], [0, 5, 6]]
    assert table.columns["w"].tolist() == ["x", None, "ü"]
    with pytest.raises(InputError, match=r"row 2 \(line 2\), column 'v_1'"):
        read(path)
    path.write_text("[1, 2]\n[3, 4]\n")
    assert read(path).X.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ('{"a": 1}\n{"a": \n', "line 2 is no JSON: .*"),
        ('{"a": 1}\n3\n', "line 2 is a int; every line must be an object or a list"),
        ('{"a": 1}\n' + "[" * 100_000, "line 2 is no JSON"),
        ('{"a": ' + "9" * 5000 + "}", "line 1 is no JSON"),
        (
            "".join(f'{{"a": {n}}}\n' for n in range(20)) + '{"a": "x"}',
            r"row 21 \(line 21\), column 'a': 'x' is no number",
        ),
    ],
)
def test_broken_jsonl(tmp_path, text, message):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.jsonl: .*{message}"):
        read(tmp_path / "a.jsonl")


def cells(matrix=numpy.array):
    draw = numpy.random.default_rng(0)
    obs = pandas.DataFrame(
        {"kind": pandas.Categorical(["T", "B", "T", None]), "depth": [10, 20, 30, 40]}, index=["c1", "c2", "c3", "c4"]
    )
    counts = draw.poisson(0.5, size=(4, 5)).astype(numpy.float32)
    found = anndata.AnnData(matrix(counts), obs=obs, var=pandas.DataFrame(index=[f"gene{n}" for n in range(5)]))
    found.layers["raw"] = found.X.copy()
    return found, counts


@pytest.mark.parametrize("matrix", [numpy.array, sparse.csr_matrix, sparse.csc_matrix], ids=["dense", "csr", "csc"])
def test_h5ad(tmp_path, matrix):
    found, counts = cells(matrix)
    found.write_h5ad(tmp_path / "a.h5ad")
    for table in (read(tmp_path / "a.h5ad", label="kind"), read(found, label="kind")):
        numpy.testing.assert_array_equal(table.X, counts)
        assert table.X.dtype == numpy.float32
        assert table.feature_names == tuple(f"gene{n}" for n in range(5))
        assert table.ids.tolist() == ["c1", "c2", "c3", "c4"]
        assert table.label.tolist() == ["T", "B", "T", None]
        assert table.columns["depth"].tolist() == [10, 20, 30, 40]
    assert read(tmp_path / "a.h5ad", columns=["gene3", "depth"]).X.tolist() == [
        [counts[n, 3], 10 * (n + 1)] for n in range(4)
    ]
    numpy.testing.assert_array_equal(read(tmp_path / "a.h5ad", key="raw").X, counts)
    found.obsm["X_pca"] = numpy.eye(4)
    found.write_h5ad(tmp_path / "b.h5ad")
    assert read(tmp_path / "b.h5ad").X.tolist() == numpy.eye(4).tolist()
    assert read(tmp_path / "b.h5ad", key="X").X.shape == (4, 5)
    with pytest.raises(OptionError, match="no matrix 'X_umap' in it; there are 'X', 'X_pca', 'raw'"):
        read(tmp_path / "b.h5ad", key="X_umap")


def test_h5ad_kinds_of_columns(tmp_path):
    obs = pandas.DataFrame(
        {
            "word": ["a", "b", "c"],
            "gap": pandas.array([1, None, 3], dtype="Int64"),
            "full": pandas.array([1, 2, 3], dtype="Int64"),
            "maybe": pandas.array([True, None, False], dtype="boolean"),
            "flag": [True, False, True],
            "level": pandas.Categorical([0.5, 1.5, 0.5]),
            "x": [0.1, 0.2, numpy.nan],
        },
        index=["ü", "2", "3"],
    )
    anndata.AnnData(numpy.eye(3), obs=obs).write_h5ad(tmp_path / "a.h5ad")
    table = read(tmp_path / "a.h5ad")
    assert table.ids.tolist() == ["ü", "2", "3"]
    numpy.testing.assert_array_equal(table.columns["gap"], [1, numpy.nan, 3])
    numpy.testing.assert_array_equal(table.columns["x"], [0.1, 0.2, numpy.nan])
    found = {name: column.tolist() for name, column in table.columns.items() if name not in ("gap", "x")}
    assert found == {
        "word": ["a", "b", "c"],
        "full": [1, 2, 3],
        "maybe": ["True", None, "False"],
        "flag": [True, False, True],
        "level": [0.5, 1.5, 0.5],
    }


def test_h5ad_as_older_versions_wrote_it(tmp_path):
    """Categories behind a reference (0.7), and a table of records with categories in uns (0.6)."""
    with h5py.File(tmp_path / "seven.h5ad", "w") as file:
        file["X"] = numpy.eye(3)
        for room, names in (("obs", ["a", "b", "c"]), ("var", ["g", "h", "i"])):
            file.create_group(room)["index"] = names
            file[room].attrs["_index"] = "index"
        file["obs/__categories/kind"] = ["T", "B"]
        file["obs/kind"] = numpy.array([1, -1, 0], dtype=numpy.int8)
        file["obs/kind"].attrs["categories"] = file["obs/__categories/kind"].ref
        file["obs"].attrs["column-order"] = ["kind"]
    with h5py.File(tmp_path / "six.h5ad", "w") as file:
        file["X"] = numpy.eye(3)
        kinds = [("index", "S3"), ("kind", "i1")]
        file["obs"] = numpy.array([(b"a", 1), (b"b", -1), (b"c", 0)], dtype=kinds)
        file["var"] = numpy.array([(b"g",), (b"h",), (b"i",)], dtype=[("index", "S3")])
        file["uns/kind_categories"] = ["T", "B"]
    for name in ("seven", "six"):
        table = read(tmp_path / f"{name}.h5ad", label="kind")
        assert table.label.tolist() == ["B", None, "T"]
        assert table.ids.tolist() == ["a", "b", "c"]
        assert table.feature_names == ("g", "h", "i")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["obs/kind/codes"].write_direct(numpy.int8([0, 1, 0, 9])), "a code is out of range"),
        (lambda file: file["X/indices"].write_direct(numpy.full(len(file["X/indices"]), 99, "i4")), "out of range"),
        (lambda file: file["X/indptr"].write_direct(numpy.int32([0, 5, 2, 3, 4])), "row pointers do not fit"),
        (lambda file: file["X"].attrs.modify("encoding-type", "tape"), "matrix is of the kind 'tape'"),
        (lambda file: file.__delitem__("obs/_index"), "cannot be read as an AnnData file"),
        (lambda file: file["X"].attrs.modify("shape", [4, 10**12]), "its matrix, made dense, would take"),
    ],
)
def test_h5ad_that_is_damaged(tmp_path, change, message):
    cells(sparse.csr_matrix)[0].write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "r+") as file:
        change(file)
    with pytest.raises(DataFileError, match=message):
        read(tmp_path / "a.h5ad")


def test_h5ad_on_which_the_library_never_ends(tmp_path, monkeypatch):
    """A free block of length 0 in the heap of strings: the library walks on the spot."""
    cells()[0].write_h5ad(tmp_path / "a.h5ad")
    data = bytearray((tmp_path / "a.h5ad").read_bytes())
    place = data.index(b"GCOL") + 16
    data[place : place + 16] = bytes(16)
    (tmp_path / "a.h5ad").write_bytes(data)
    monkeypatch.setattr(h5ad, "PATIENCE", 2.0)
    with pytest.raises(DataFileError, match=r"it is damaged: the HDF5 library was still busy with it after 2 s"):
        read(tmp_path / "a.h5ad")


def test_h5ad_within_another_program(tmp_path, monkeypatch):
    found, counts = cells()
    found.write_h5ad(tmp_path / "a.h5ad")
    monkeypatch.setattr(sys, "executable", "")
    numpy.testing.assert_array_equal(read(tmp_path / "a.h5ad").X, counts)


def test_h5ad_that_leads_elsewhere(tmp_path):
    """A file could name another one on this machine as its own data."""
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["X"] = numpy.ones((4, 5))
    found, _ = cells()
    for way, message in [("link", "is a link to another file"), ("storage", "lie in another file")]:
        found.write_h5ad(tmp_path / "a.h5ad")
        with h5py.File(tmp_path / "a.h5ad", "a") as file:
            del file["X"]
            if way == "link":
                file["X"] = h5py.ExternalLink(str(secret), "X")
            else:
                file.create_dataset("X", (4, 5), "f8", external=[(str(secret), 0, 160)])
        with pytest.raises(DataFileError, match=message):
            read(tmp_path / "a.h5ad")


def test_standard_input(tmp_path, monkeypatch):
    pandas.DataFrame({"a": [1.0, 2.0]}).to_parquet(tmp_path / "p")
    numpy.save(tmp_path / "n.npy", numpy.array([[1.0], [2.0]]))
    for data in (
        b"a\n1\n2\n",
        b'{"a": 1}\n{"a": 2}\n',
        (tmp_path / "p").read_bytes(),
        (tmp_path / "n.npy").read_bytes(),
    ):
        path = tmp_path / "stdin"
        path.write_bytes(data)
        with open(path) as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            assert read("-").X.tolist() == [[1], [2]]
    for data, message in [(b"", "it is empty"), (b"\x00\x01", "its kind is unknown"), (b"a,b\n1\n", "line 2 has 1")]:
        path.write_bytes(data)
        with open(path) as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(DataFileError, match=f"standard input: .*{message}"):
                read("-")


@pytest.mark.parametrize("name", ["iris", "wine", "digits"])
def test_built_in_sets(name, tmp_path, monkeypatch, caplog):
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.INFO, "cartograd.io"):
        table = read(name)
    assert f"write './{name}'" in caplog.text
    numpy.testing.assert_array_equal(table.X, found.data)
    assert table.feature_names == tuple(found.feature_names)
    assert table.label.tolist() == (found.target if name == "digits" else found.target_names[found.target]).tolist()
    if name == "digits":
        numpy.testing.assert_array_equal(numpy.round(table.thumbnails / 255 * 16), found.images)


def test_names_without_a_known_ending_are_known_by_their_content(tmp_path):
    (tmp_path / "table.data").write_text("a;b\n1;2\n3;4\n")
    assert read(tmp_path / "table.data").X.tolist() == [[1, 2], [3, 4]]
    numpy.save(tmp_path / "array.npy", numpy.eye(2))
    (tmp_path / "array.npy").rename(tmp_path / "array")
    assert read(tmp_path / "array").X.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather", "h5ad"])
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"ARROW1\0\0", b"hello, this is something else", b"\x89HDF\r\n\x1a\n"]
)
def test_broken_files(tmp_path, suffix, content):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=rf"a\.{suffix}: it cannot be read as|no rows"):
        read(path)


def test_files_that_are_not_there_or_closed(tmp_path):
    with pytest.raises(
        FileAbsentError, match=r"nothing\.csv: there is no such file or folder, nor a built-in set \(digits"
    ):
        read("nothing.csv")
    assert issubclass(FileAbsentError, FileNotFoundError)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises((FileAbsentError, FileAccessError)):
        read(tmp_path / "loop")


def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path):
    def absent(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(packages.importlib, "import_module", absent)
    (tmp_path / "pictures").mkdir()
    for name, extra in {"a.parquet": "tables", "a.feather": "tables", "a.h5ad": "anndata", "pictures": "plot"}.items():
        if extra != "plot":
            (tmp_path / name).write_bytes(b"x")
        with pytest.raises(ImportError, match=rf'pip install "cartograd\[{extra}\]"'):
            read(tmp_path / name)
