"""Text tables against pandas, and the errors that name the line and the column."""

import csv
import gzip
import io

import numpy
import pytest

from cartograd.errors import DataFileError, InputError
from cartograd.io import delimited, read

pandas = pytest.importorskip("pandas")


@pytest.fixture
def write(tmp_path):
    def put(text, name="t.csv", encoding="utf-8"):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode(encoding)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return put


def frame(seed=0, n=300):
    """Columns of every kind, with awkward cells."""
    print("seed", seed)
    draw = numpy.random.default_rng(seed)
    awkward = ['say "hi"', "a,b", "two\nlines", "tab\there", "semi;colon", "ünï", "  spaced ", "NA", "None", "1 000"]
    return pandas.DataFrame(
        {
            "small": draw.normal(size=n) * 1e-300,
            "large": draw.normal(size=n) * 1e300,
            "whole": draw.integers(-(2**62), 2**62, size=n),
            "some": draw.integers(0, 5, size=n) / 4,
            "words": draw.choice(awkward, size=n),
            "code": [f"{number:05d}" for number in draw.integers(0, 99999, size=n)],
            "flag": draw.random(n) < 0.5,
        }
    )


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
def test_equals_pandas(write, delimiter, ending, quoting, monkeypatch):
    monkeypatch.setattr(delimited, "PIECE", 7 * 64)  # several pieces
    data = frame()
    text = data.to_csv(index=False, sep=delimiter, lineterminator=ending, quoting=quoting)
    path = write(text)
    table = read(path)
    wanted = pandas.read_csv(
        io.StringIO(text, newline=""),
        sep=delimiter,
        float_precision="round_trip",
        keep_default_na=False,
        dtype={"code": str},
    )
    assert table.feature_names == ("small", "large", "whole", "some")
    numpy.testing.assert_array_equal(table.X, wanted[list(table.feature_names)].to_numpy(dtype=float))
    assert table.columns["words"].tolist() == wanted["words"].tolist()
    assert table.columns["code"].tolist() == wanted["code"].tolist()
    assert table.columns["flag"].dtype == bool
    assert table.columns["flag"].tolist() == data["flag"].tolist()


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-8", "t.csv"),
        ("utf-8-sig", "t.csv"),
        ("utf-16", "t.csv"),
        ("cp1252", "t.csv"),
        ("utf-8", "t.csv.gz"),
        ("utf-8", "T.CSV"),
    ],
)
def test_encodings_and_packing(write, encoding, name):
    table = read(write("größe,wort\n1.5,für\n2.5,Öl\n", name, encoding))
    assert table.feature_names == ("größe",)
    assert table.X.tolist() == [[1.5], [2.5]]
    assert table.columns["wort"].tolist() == ["für", "Öl"]


def test_an_encoding_that_is_named(write):
    path = write("имя,x\nда,1\nнет,2\n", encoding="koi8-r")
    assert read(path, encoding="koi8-r").columns["имя"].tolist() == ["да", "нет"]
    with pytest.raises(DataFileError, match="encoding 'klingon' is unknown"):
        read(path, encoding="klingon")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n1,2\n3,4\n", ("a", "b")),
        ("1,2\n3,4\n5,6\n", ("column_1", "column_2")),
        ("0,1,2\n3,4,5\n6,7,8\n", ("column_1", "column_2", "column_3")),
        ("0,1,2\n.5,.25,.125\n.5,.25,.125\n", ("0", "1", "2")),
        (",0,1\n0,.5,.25\n1,.5,.25\n2,1,2\n", ("0", "1")),
        ("x y\n1 2\n3 4\n", ("x", "y")),
        ("a,b\n1,2\n", ("a", "b")),
        ("a\n1\n2\n", ("a",)),
        ('"a","b"\n"1","2"\n"3","4"\n', ("a", "b")),
        ("height weight\nfirst 1.5 2\nsecond 2.5 3\n", ("height", "weight")),  # as R writes the names of rows
        ("a,a,\n1,2,3\n4,5,6\n", ("a", "a.1", "column_3")),
        ("a;b\n1,5;2\n2,5;3,25\n", ("a", "b")),
        ("a,b\r1,2\r3,4\r", ("a", "b")),
        ("\n\na,b\n\n1,2\n\n3,4\n\n", ("a", "b")),
    ],
)
def test_headers_and_delimiters_are_found(write, text, names):
    assert read(write(text)).feature_names == names


def test_what_was_found_can_be_overruled(write):
    path = write("1;2\n3;4\n5;6\n")
    assert read(path, header=True).feature_names == ("1", "2")
    assert read(path, header=True).X.tolist() == [[3, 4], [5, 6]]
    table = read(path, delimiter=";", header=False)
    assert table.X.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_decimal_commas(write):
    table = read(write("a;b;c\n1,5;1,234;x\n-0,25;12,345;y\n;1,111;z\n"), missing="zero")
    assert table.feature_names == ("a",)
    assert table.X.tolist() == [[1.5], [-0.25], [0.0]]
    assert table.columns["b"].tolist() == ["1,234", "12,345", "1,111"], "thousands or decimals: nobody knows"


def test_a_column_that_turns_to_text_late_is_kept_as_written(write, monkeypatch):
    monkeypatch.setattr(delimited, "PIECE", 20)
    rows = [f"{number}.50,{number}" for number in range(50)] + ["A7,50"] * 30
    table = read(write("code,x\n" + "\n".join(rows)))
    assert table.feature_names == ("x",)
    assert table.columns["code"].tolist()[:3] == ["0.50", "1.50", "2.50"]
    assert len(table) == 80


def test_ids_larger_than_a_float_are_exact(write):
    table = read(write("id,x\n9007199254740993,1\n9007199254740995,2\n"))
    assert table.ids.tolist() == [9007199254740993, 9007199254740995]
    assert table.feature_names == ("x",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("a,b\n", "names of columns and no rows"),
        ("a,b\n1,2\n3\n", "line 3 has 1 fields where the first has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 fields where the first has 2"),
        ('a,b\n1,"2\n3,4\n', "line 2: unexpected end of data"),
        ('a,b\n1,"x"y\n3,4\n', "line 2: ',' expected after '\"'"),
        ("a,b\n1," + "y" * 200_000 + "\n", "line 2: field larger than field limit"),
        (b"a,b\n1,\x00\n", "it is no text"),
        (b"a,b\n" + b"1,2\n" * 20_000 + b"1,\x00\n", "line 20002: a zero byte"),
        (b"a,b\n1,\x81\x8d\n", "not text in utf-8 or cp1252: .* byte 0x81"),
        (b"\xff\xfea\x00,", "not text in utf-16"),
        ("a,b\nx,y\nz,w\n", r"no features in it: none of its columns \('a', 'b'\)"),
    ],
)
def test_errors_name_the_file_and_the_line(write, content, message):
    path = write(content)
    with pytest.raises((DataFileError, InputError), match=rf"(?s){path}: .*{message}"):
        read(path)


def test_a_broken_archive(write, tmp_path):
    whole = gzip.compress(b"a,b\n1,2\n3,4\n")
    for number, data in enumerate([whole[:-4], whole[:15], whole[:10] + b"\xff" * 10]):
        path = tmp_path / f"{number}.csv.gz"
        path.write_bytes(data)
        with pytest.raises(DataFileError, match="gzipped text"):
            read(path)


def test_a_cell_that_is_no_number_is_named(write):
    path = write("a,b\n" + "".join(f"{n},{n}\n" for n in range(30)) + "30,3O\n")
    with pytest.raises(InputError, match=r"row 31 \(line 32\), column 'b': '3O' is no number, and nearly all others"):
        read(path)
    assert read(path, columns=["-b"]).feature_names == ("a",)
    assert read(path, label="b").feature_names == ("a",)
    with pytest.raises(InputError, match=r"row 31 \(line 32\), column 'b': '3O' is no number"):
        read(path, columns=["a", "b"])


def test_lines_are_counted_through_quoted_line_ends(write):
    path = write('x,note\n1,"a\nb\nc"\n,d\n')
    with pytest.raises(InputError, match=r"row 2 \(line 5\), column 'x': the value is missing"):
        read(path)


def test_progress(write, capsys):
    read(write("a\n" + "1\n" * 500), verbose=True)
    assert "rows" in capsys.readouterr().err
    read(write("a\n" + "1\n" * 500))
    assert capsys.readouterr().err == ""
