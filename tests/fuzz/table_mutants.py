"""Small whole files of every format of tables, and damaged or hostile ones made of them."""

import gzip
import io
import json
import random
import struct
import zipfile

import numpy

NUMBERS = [0, 1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1]
CELLS = [
    "", " ", "\t", '"', '""', "'", ",", ";", "|", "\n", "\r", "\r\n", "\0", "\ufeff", "\u2028", "nan", "inf", "-inf",
    "1e309", "-1e-400", "0x10", "1_000", "1,5", "1,000", "١٢", "١e٣", "1" * 400, "9" * 5000, "x" * 5000, "NA", "-",
    "+", "=1+1", "true", "False", "2020-01-01", "é", "\ud800", "a,b;c|d\te f", "column_1", "id", "y", "[", "{", "null",
    "007",
]  # fmt: skip
VALUES = [
    None, True, -1, 0.5, 1e308, 10**30, -(10**400), float("nan"), float("inf"), "", "x", "\ud800", "\0", [], [1],
    [1, [2]], [None, 1.5], {}, {"": 1}, {"a": {"b": []}}, [[[]]], "9" * 5000,
]  # fmt: skip
KEYS = ["", "a", "b", "word", "\ud800", "\0", "x" * 300, "0", "a.1", "=1", "column_1"]
DTYPES = [
    "<f8", ">f8", "<f2", "<f16", "|O", "<U3", "|S0", "|V8",
    "<c16", "<M8[s]", "<m8", "|b1", "<i8", ">u2", "<U1000000", "x", "", "<f8,<i4",
]  # fmt: skip
SHAPES = [
    "(30, 3)", "(30,)", "()", "(0, 3)", "(30, 0)", "(-1, 3)", "(2**40, 2)",
    "(1, 2, 3)", "(99999999999,)", "30", "(30, 3", "(True, 3)", "(3.5,)",
]  # fmt: skip


def whole_files(folder):
    """Return the bytes of a whole file of each format, by suffix."""
    import anndata
    import pandas
    from PIL import Image

    from cartograd.io import write_table

    draw = numpy.random.default_rng(1)
    words = [f"w{n % 7}" if n else None for n in range(30)]
    columns = {"a": draw.normal(size=30), "n": numpy.arange(30), "word": words, "flag": draw.random(30) < 0.5}
    rows = [{"a": float(a), "n": n, "word": word, "v": [n, 1]} for n, (a, word) in enumerate(zip(columns["a"], words))]
    files = {}
    for suffix in ("csv", "tsv", "jsonl", "npz", "parquet", "arrow", "feather"):
        write_table(folder / f"whole.{suffix}", columns)
        files[suffix] = (folder / f"whole.{suffix}").read_bytes()
    write_table(folder / "whole.npy", {"X": draw.normal(size=(30, 3))})
    files["npy"] = (folder / "whole.npy").read_bytes()
    files["json"] = json.dumps(rows).encode()
    files["unknown"] = files["csv"]
    files["csv.gz"] = gzip.compress(files["csv"])
    files["csv.zip"] = zipped([("whole.csv", files["csv"])])
    files |= arrow_kinds(folder)
    for suffix in ("png", "jpg", "tiff"):
        content = io.BytesIO()
        Image.fromarray(draw.integers(0, 256, (12, 10), dtype=numpy.uint8)).save(content, suffix.replace("jpg", "jpeg"))
        files[suffix] = content.getvalue()
    obs = pandas.DataFrame({"word": pandas.Categorical(words), "n": range(30)}, index=[f"c{n}" for n in range(30)])
    X = draw.normal(size=(30, 3)).astype(numpy.float32)
    anndata.AnnData(X, obs=obs, obsm={"X_pca": X[:, :2]}).write_h5ad(folder / "whole.h5ad")
    files["h5ad"] = (folder / "whole.h5ad").read_bytes()
    return files


def arrow_kinds(folder):
    """Files of Arrow and Parquet with views, runs, dictionaries, lists and structures."""
    import pyarrow
    import pyarrow.parquet

    words = pyarrow.array(["u", None, "v"] * 10)
    vectors = [[1.0, float(n)] for n in range(30)]
    plain = {
        "x": pyarrow.array(numpy.arange(30.0)),
        "kind": words.dictionary_encode(),
        "vector": pyarrow.array(vectors),
        "fixed": pyarrow.array(vectors, pyarrow.list_(pyarrow.float64(), 2)),
        "record": pyarrow.array([{"a": n, "b": "x"} for n in range(30)]),
        "words": pyarrow.array([["p", "q"][: n % 3] for n in range(30)]),
        "when": pyarrow.array(range(30), pyarrow.timestamp("ms")),
    }
    rare = {
        "view": words.cast(pyarrow.string_view()),
        "views": pyarrow.array(vectors, pyarrow.list_view(pyarrow.float64())),
        "runs": pyarrow.RunEndEncodedArray.from_arrays(
            pyarrow.array([10, 30], pyarrow.int32()), pyarrow.array(["p", "q"])
        ),
        "nothing": pyarrow.nulls(30),
    }
    with pyarrow.ipc.new_stream(folder / "rich.arrow", pyarrow.table(plain | rare).schema) as writer:
        writer.write_table(pyarrow.table(plain | rare), max_chunksize=20)
    pyarrow.parquet.write_table(pyarrow.table(plain), folder / "rich.parquet", row_group_size=20)
    return {f"rich.{suffix}": (folder / f"rich.{suffix}").read_bytes() for suffix in ("arrow", "parquet")}


def zipped(members):
    """A zip archive of (name, content)."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def mutant(draw, suffix, whole, others):
    """Return `whole` damaged in one to three ways: its bytes, or what the format is made of."""
    data = whole
    structured = STRUCTURED.get(suffix, STRUCTURED.get(suffix.rpartition(".")[2], []))
    ways = structured if structured and draw.random() < 0.6 else [flip, overwrite, cut, splice, number, number, swap]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        data = draw.choice(ways)(draw, data, others) if data else data
    return data


def flip(draw, data, others):
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def overwrite(draw, data, others):
    begin, length = draw.randrange(len(data)), draw.randint(1, 32)
    run = draw.choice([b"\0" * length, b"\xff" * length, draw.randbytes(length)])
    return data[:begin] + run[: len(data) - begin] + data[begin + length :]


def cut(draw, data, others):
    return data[: draw.randrange(len(data))]


def splice(draw, data, others):
    begin, end = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
    place = draw.randrange(len(data) + 1)
    return draw.choice(
        [
            data[:begin] + data[end:],
            data[:end] + data[begin:end] + data[end:],
            data[:place] + data[begin:end] + data[place:],
            data[:place] + draw.randbytes(draw.randint(1, 64)) + data[place:],
        ]
    )


def number(draw, data, others):
    """A number of a header, or what may be one, replaced by one at the edge of what is allowed."""
    form = draw.choice(["<H", "<I", "<Q", ">I", ">H"])
    size = struct.calcsize(form)
    near_an_end = draw.choice([0, max(0, len(data) - 400), draw.randrange(len(data))])
    place = min(near_an_end + draw.randrange(400), max(0, len(data) - size))
    return data[:place] + struct.pack(form, draw.choice(NUMBERS) % 2 ** (8 * size)) + data[place + size :]


def swap(draw, data, others):
    """The beginning of one file and the end of another."""
    other = draw.choice(others)
    return data[: draw.randrange(len(data))] + other[draw.randrange(len(other)) :]


def edit_cells(draw, data, others):
    """Cells, lines, delimiters and encodings of a text table."""
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    for _ in range(draw.randint(1, 4)):
        row = draw.choice([0, draw.randrange(len(lines))])
        delimiter = "\t" if "\t" in lines[row] else ","
        cells = lines[row].split(delimiter)
        cells[draw.randrange(len(cells))] = draw.choice(CELLS)
        lines[row] = draw.choice([delimiter, delimiter, delimiter, draw.choice(";| \t")]).join(cells)
        if draw.random() < 0.2:
            lines.insert(draw.randrange(len(lines)), draw.choice(["", draw.choice(CELLS), lines[0]]))
    text = draw.choice(["\n", "\n", "\n", "\r\n", "\r"]).join(lines)
    encoding = draw.choice(
        ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "latin-1", "utf-7"]
    )
    return text.encode(
        encoding,
        "replace"
        if encoding == "latin-1"
        else "surrogatepass"
        if "-" in encoding and encoding != "utf-7"
        else "replace",
    )


def edit_json(draw, data, others):
    """Values, keys and brackets of JSON."""
    text = data.decode("utf-8", "replace")
    try:
        rows = json.loads(text)
        one_array = True
    except (ValueError, RecursionError):
        one_array = False
        rows = [_parsed(line) for line in text.split("\n")]
    if not isinstance(rows, list) or not rows:
        return data
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(rows))
        if isinstance(rows[place], dict) and draw.random() < 0.8:
            key = draw.choice([*rows[place], *KEYS])
            rows[place] = {**rows[place], key: draw.choice(VALUES)}
        else:
            rows[place] = draw.choice([*VALUES, list(range(5))])
    written = json.dumps(rows) if one_array else "\n".join(map(json.dumps, rows))
    deep = "[" * draw.choice([1, 50, 5000, 200_000])
    return draw.choice([written] * 9 + [deep + written, written + deep]).encode()


def _parsed(line):
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line[:100]


def edit_header(draw, data, others):
    """The header of a NumPy array."""
    shape, dtype, order = draw.choice(SHAPES), draw.choice(DTYPES), draw.choice(["False", "True", "None", "1"])
    text = f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text = draw.choice([text] * 8 + [text[:-3], "(" * 5000, text + draw.choice(CELLS[:-20]), "__import__('os')"])
    header = text.encode("utf-8", "replace") + b"\n"
    version = draw.choice([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
    form = "<H" if version == b"\x01\x00" else "<I"
    length = draw.choice([len(header)] * 6 + [0, 65_535])
    return b"\x93NUMPY" + version + struct.pack(form, length) + header + data[128 : draw.choice([len(data), 200])]


def edit_archive(draw, data, others):
    """The members of a zip archive: damaged ones, renamed ones, more and fewer."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # it is damaged already
        return data
    if not members:
        return data
    place = draw.randrange(len(members))
    name, content = members[place]
    names = [
        name,
        "X.npy",
        "../x.npy",
        "/x.csv",
        "a" * 300 + ".npy",
        "file.npy",
        "",
        "x",
        "dir/",
        "[Content_Types].xml",
        "é.csv",
    ]
    members[place] = (
        draw.choice(names),
        draw.choice([edit_header, edit_cells, flip, cut])(draw, content or b"x", others),
    )
    if draw.random() < 0.3:
        members.insert(0, draw.choice(members))
    return zipped(members if draw.random() < 0.9 else members[1:])


def edit_packed(draw, data, others):
    """The text in a gzipped file."""
    try:
        text = gzip.decompress(data)
    except Exception:  # it is damaged already
        return data
    packed = gzip.compress(edit_cells(draw, text, others))
    return draw.choice([packed, packed, packed + packed, packed[:-4] + draw.randbytes(4), gzip.compress(packed)])


STRUCTURED = {
    "csv": [edit_cells],
    "tsv": [edit_cells],
    "unknown": [edit_cells, edit_json],
    "jsonl": [edit_json],
    "json": [edit_json],
    "npy": [edit_header],
    "npz": [edit_archive],
    "csv.zip": [edit_archive],
    "csv.gz": [edit_packed],
}
"""Ways of damage that know the format, by suffix."""


def options_of(draw):
    """Arguments of `read`, mostly none."""
    options = {
        "missing": draw.choice(["error", "mean", "zero", "zero", "zero", "drop", "median"]),
        "header": draw.choice([None, None, None, True, False]),
    }
    rare = {
        "encoding": ["utf-8", "utf-16", "latin-1", "cp037", "utf-7", "ascii", "utf-8-sig", "shift_jis"],
        "delimiter": [",", ";", "\t", " ", "a", "\0", "1"],
        "columns": ["a", ["-a"], ["n", "word"], []],
        "one_hot": ["word", ["flag"], ["a"]],
        "label": ["word", "a", "nosuch"],
        "key": ["X", "a", "X_pca", ""],
        "max_bytes": [1, 1000, 100_000],
    }
    for name, values in rare.items():
        if draw.random() < 0.05:
            options[name] = draw.choice(values)
    return options


def case(seed, suffix, place, whole, others):
    """Return the bytes and the arguments of one case: the same for the same seed, suffix and place."""
    draw = random.Random(f"{seed}-{suffix}-{place}")
    return mutant(draw, suffix, whole, others), options_of(draw)
