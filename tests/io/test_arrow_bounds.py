"""Small files that stand for gigabytes: dictionaries are held once, and views are refused before they are unfolded."""

import json
import struct
import sys
from pathlib import Path

import numpy
import pytest

from cartograd.errors import CartogradError, DataFileError
from cartograd.io import read
from cartograd.io.arrow_bounds import unfolded_size
from cartograd.io.parquet_footer import parquet_columns

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

LIMIT = 1.5 * 2**30


def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


@pytest.fixture
def bounded():
    """The memory that a test takes at its peak is below the limit, and it ends in time."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    yield
    assert peak() - before < LIMIT


def dictionary(rows, text, index="int8"):
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(numpy.zeros(rows, dtype=index)), pyarrow.array([text]))


def write_arrow(path, columns):
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


@pytest.mark.timeout(60)
def test_a_parquet_dictionary_of_one_long_text(tmp_path, bounded):
    rows, text = 20_000_000, "x" * 2000
    table = pyarrow.table({"t": dictionary(rows, text, "int32")})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    del table
    with pytest.raises(CartogradError, match=r"there are no features in it|refused as a bomb"):
        read(tmp_path / "a.parquet")


@pytest.mark.timeout(60)
def test_equal_texts_of_parquet_and_arrow_are_held_once(tmp_path, bounded):
    rows, text = 200_000, "x" * 100_000
    columns = {"x": numpy.random.default_rng(0).normal(size=rows), "t": dictionary(rows, text)}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    write_arrow(tmp_path / "a.arrow", columns)
    for name in ("a.parquet", "a.arrow"):
        column = read(tmp_path / name).columns["t"]
        assert column[0] == text
        assert len({id(cell) for cell in column}) < 20


@pytest.mark.timeout(60)
def test_parquet_texts_that_repeat_the_text_before(tmp_path, bounded):
    table = pyarrow.table({"t": ["x" * 100_000] * 1000})
    options = {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}}
    with pyarrow.parquet.ParquetWriter(tmp_path / "a.parquet", table.schema, **options) as writer:
        for _ in range(20):
            writer.write_table(table)
    assert (tmp_path / "a.parquet").stat().st_size < 3_000_000
    with pytest.raises(DataFileError, match="the table would take"):
        read(tmp_path / "a.parquet", max_bytes=2**28)


def test_parquet_texts_that_are_stored_as_differences_are_read(tmp_path):
    texts = [f"w{place}" if place % 5 else None for place in range(5000)]
    table = pyarrow.table({"x": numpy.arange(5000.0), "t": texts})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, use_dictionary=False, column_encoding={"t": "DELTA_BYTE_ARRAY"})
    assert read(path).columns["t"].tolist() == texts


@pytest.mark.parametrize("refused", [False, True])
def test_texts_within_lists_of_several_row_groups(tmp_path, refused, monkeypatch):
    words = [["p", f"q{n % 3}"][: n % 3] for n in range(300)]
    records = [{"a": n, "b": "x"} for n in range(300)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0] * 300, "w": words, "r": records}), path, row_group_size=100)
    if refused:  # as pyarrow does where a dictionary of a row group is in several pieces
        groups = pyarrow.parquet.ParquetFile.read_row_group

        def read_row_group(self, *given, **options):
            if any("dictionary" in str(one.type) for one in self.schema_arrow):
                raise pyarrow.ArrowNotImplementedError("Nested data conversions not implemented for chunked arrays")
            return groups(self, *given, **options)

        monkeypatch.setattr(pyarrow.parquet.ParquetFile, "read_row_group", read_row_group)
    columns = read(path).columns
    assert [json.loads(cell) for cell in columns["w"]] == words
    assert [json.loads(cell) for cell in columns["r"]] == records


@pytest.mark.timeout(60)
def test_overlapping_list_views(tmp_path, bounded):
    rows, length = 60_000, 20_000
    starts, sizes = numpy.zeros(rows, dtype="int32"), numpy.full(rows, length, dtype="int32")
    views = pyarrow.ListViewArray.from_arrays(starts, sizes, pyarrow.array(numpy.zeros(length)))
    write_arrow(tmp_path / "a.arrow", {"v": views})
    assert (tmp_path / "a.arrow").stat().st_size < 1_000_000
    with pytest.raises(DataFileError, match="the table would take 9,600,480,000 bytes"):
        read(tmp_path / "a.arrow")
    with pytest.raises(DataFileError, match="more than 1000 times: refused as a bomb"):
        read(tmp_path / "a.arrow", max_bytes=2**40)


@pytest.mark.timeout(60)
def test_overlapping_text_views(tmp_path, bounded):
    rows, length = 50_000, 200_000
    view = struct.pack("<i4sii", length, b"xxxx", 0, 0)
    buffers = [None, pyarrow.py_buffer(view * rows), pyarrow.py_buffer(b"x" * length)]
    views = pyarrow.Array.from_buffers(pyarrow.string_view(), rows, buffers)
    write_arrow(tmp_path / "a.arrow", {"v": views})
    with pytest.raises(DataFileError, match=r"the table would take 10,00[\d,]+ bytes"):
        read(tmp_path / "a.arrow")


@pytest.mark.timeout(60)
def test_a_stream_before_many_zero_bytes(tmp_path, bounded):
    """What follows the last message is not read."""
    path = tmp_path / "a.arrow"
    with pyarrow.ipc.new_stream(str(path), pyarrow.schema({"x": pyarrow.float64()})) as writer:
        writer.write_table(pyarrow.table({"x": [1.0, 2.0]}))
    with open(path, "ab") as file:
        size = file.tell()
        file.write(bytes(30_000_000))
        file.truncate(size + 5 * 2**30)
    assert read(path).X.tolist() == [[1], [2]]


def test_every_kind_of_column_has_a_size():
    text, views = ["ab", None, "c"], pyarrow.list_view(pyarrow.float64())
    vectors = [[1.0], [2.0, 3.0], None]
    ends = pyarrow.array([2, 3], pyarrow.int32())
    columns = {
        "whole": pyarrow.array([1, None, 3]),
        "text": pyarrow.array(text),
        "text views": pyarrow.array(text).cast(pyarrow.string_view()),
        "dictionary": pyarrow.array(text).dictionary_encode(),
        "runs": pyarrow.RunEndEncodedArray.from_arrays(ends, pyarrow.array(["u", None])),
        "lists": pyarrow.array(vectors),
        "list views": pyarrow.array(vectors, views),
        "lists of text": pyarrow.array([["a"], [], None]),
        "views of text": pyarrow.array([["a"], [], None], pyarrow.list_view(pyarrow.string())),
        "records": pyarrow.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}]),
        "maps": pyarrow.array([[("k", "v")], None, []], pyarrow.map_(pyarrow.string(), pyarrow.string())),
        "nothing": pyarrow.nulls(3),
        "dictionary of lists": pyarrow.DictionaryArray.from_arrays([0, 0, None], pyarrow.array([[1.0, 2.0]])),
    }
    for name, column in columns.items():
        table = pyarrow.table({"x": [1.0, 2.0, 3.0], name: column})
        assert 24 < unfolded_size(table) < 1000, name
        assert unfolded_size(table.slice(1, 1)) < unfolded_size(table), name
        assert len(read(table.slice(1, 2), missing="zero")) == 2
    found = read(pyarrow.table({"x": [1.0, 2.0, 3.0]} | columns), missing="zero").columns
    assert found["runs"].tolist() == ["u", "u", None]
    assert found["dictionary of lists"].tolist() == ["[1.0, 2.0]", "[1.0, 2.0]", None]
    sliced = read(pyarrow.table({"x": [1.0, 2.0, 3.0]} | columns).slice(1), missing="zero").columns
    assert sliced["runs"].tolist() == ["u", None]


def test_the_footer_is_read_as_pyarrow_reads_it(tmp_path):
    import decimal

    rows = 1000
    table = pyarrow.table(
        {
            "x": numpy.arange(rows * 1.0),
            "t": ["a"] * rows,
            "l": [["u", "v"]] * rows,
            "s": [{"n": 1, "q": "z"}] * rows,
            "d": [decimal.Decimal("1.5")] * rows,
            "f": pyarrow.array([b"abcd"] * rows, pyarrow.binary(4)),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    schema = pyarrow.parquet.ParquetFile(tmp_path / "a.parquet").schema
    with open(tmp_path / "a.parquet", "rb") as file:
        found = parquet_columns(file)
    assert [column.path for column in found] == [schema.column(place).path for place in range(len(found))]
    texts = [column.path for column in found if column.is_text]
    assert texts == ["t", "l.list.element", "s.q"]
    assert next(column.size for column in found if not column.is_text) == 8 * rows
    assert [column.size for column in found][-1] == 4 * rows


def test_damaged_footers_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"t": ["a"] * 100, "x": [1.0] * 100}), path)
    whole = path.read_bytes()
    draw = numpy.random.default_rng(0)
    refused = 0
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(draw.integers(1, 4)):
            data[len(data) - 9 - int(draw.integers(400))] = int(draw.integers(256))
        path.write_bytes(data)
        with open(path, "rb") as file:
            try:
                parquet_columns(file)
            except DataFileError:
                refused += 1
    assert refused > 50
