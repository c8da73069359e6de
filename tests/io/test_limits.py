"""Archives that expand absurdly, and tables beyond the limit, are refused before they are unpacked."""

import gzip
import resource
import struct
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

import cartograd.io.h5ad
from cartograd.errors import DataFileError, InputError
from cartograd.io import limits, read, write_table

LARGE = 25_000_000
"""Float64 numbers: 200 MB."""


def npz(path):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w", force_zip64=True) as file,
    ):
        numpy.lib.format.write_array_header_1_0(file, {"shape": (LARGE, 1), "fortran_order": False, "descr": "<f8"})
        for _ in range(20):
            file.write(bytes(8 * LARGE // 20))


def csv(path):
    with gzip.open(path, "wb") as file:
        file.write(b"a,b\n")
        for _ in range(20):
            file.write(b"0,0\n" * (8 * LARGE // 80))


def jsonl(path):
    with gzip.open(path, "wb") as file:
        for _ in range(20):
            file.write(b'{"a": 1}\n' * (8 * LARGE // 180))


def parquet(path):
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema({"a": pyarrow.float64()})
    piece = pyarrow.table({"a": numpy.zeros(LARGE // 20)})
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(piece, row_group_size=len(piece))


def feather(path):
    import pyarrow

    piece = pyarrow.table({"a": numpy.zeros(LARGE // 20)})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_file(path, piece.schema, options=options) as writer:
        for _ in range(20):
            writer.write_table(piece)


def strings(path):
    import pyarrow

    piece = pyarrow.table({"a": pyarrow.array(["x" * 200_000_000])})
    with pyarrow.ipc.new_file(path, piece.schema, options=pyarrow.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(piece)


def h5ad(path):
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", shape=(LARGE, 1), dtype="f8", chunks=(10_000, 1), compression="gzip")
        file.create_group("obs")
        file.create_group("var")


def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (npz, "bomb.npz"),
        (csv, "bomb.csv.gz"),
        (jsonl, "bomb.jsonl.gz"),
        (parquet, "bomb.parquet"),
        (feather, "bomb.feather"),
        (strings, "text.feather"),
        (h5ad, "bomb.h5ad"),
    ],
)
def test_bombs(tmp_path, make, name):
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 2_000_000
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from here
    before = peak()
    with pytest.raises(DataFileError, match=rf"{name}: .*(would expand from|refused as a)"):
        read(tmp_path / name)
    assert peak() - before < 60_000_000


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npy", "npz", "parquet", "feather"])
def test_max_bytes(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write_table(path, {"a": numpy.random.default_rng(0).normal(size=5000)})
    assert len(read(path)) == 5000
    with pytest.raises(DataFileError, match=r"would take [\d,]+ bytes, and max_bytes is 10,000; raise it to read this"):
        read(path, max_bytes=10_000)


def test_data_that_pack_well_are_read(tmp_path):
    """Mostly zeros, as counts of genes are: 30 times larger unpacked, and no bomb."""
    draw = numpy.random.default_rng(0)
    X = (draw.random((2000, 500)) < 0.02) * draw.integers(1, 9, (2000, 500))
    numpy.savez_compressed(tmp_path / "a.npz", X=X)
    assert (tmp_path / "a.npz").stat().st_size * 30 < X.nbytes
    numpy.testing.assert_array_equal(read(tmp_path / "a.npz").X, X)
    write_table(tmp_path / "a.parquet", {"X": X})
    numpy.testing.assert_array_equal(read(tmp_path / "a.parquet").X, X)


def test_columns_of_few_values_are_no_bomb(tmp_path, monkeypatch):
    """A column of categories alone is packed hundreds of times; the table is not."""
    import anndata
    import pandas

    for module in (limits, cartograd.io.h5ad):
        monkeypatch.setattr(module, "FREE_EXPANSION", 1000)
    n = 60_000
    X = numpy.random.default_rng(0).normal(size=(n, 1)).astype(numpy.float32)
    write_table(tmp_path / "a.npz", {"X": X, "batch": ["A"] * n})
    assert len(read(tmp_path / "a.npz")) == n
    obs = pandas.DataFrame({"batch": pandas.Categorical(["A"] * n)}, index=numpy.arange(n).astype(str))
    anndata.AnnData(X, obs=obs).write_h5ad(tmp_path / "a.h5ad", compression="gzip")
    assert read(tmp_path / "a.h5ad").columns["batch"][-1] == "A"


def test_text_that_numpy_would_blow_up_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"column 'a' would take 4,004,000,000 bytes as text of NumPy; write \.parquet"
    ):
        write_table(tmp_path / "a.npz", {"a": ["x" * 1_000_000] + [""] * 1000})


def test_too_many_columns(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join([",".join(["1"] * 200_001)] * 2))
    with pytest.raises(DataFileError, match="200,001 columns"):
        read(tmp_path / "a.csv")


def test_an_arrow_file_whose_lengths_lie(tmp_path):
    """A packed buffer that says it is 2^60 bytes long: nothing is allocated for it."""
    write_table(tmp_path / "a.feather", {"a": numpy.zeros(10_000)})
    data = (tmp_path / "a.feather").read_bytes()
    place = data.index(struct.pack("<q", 80_000))
    lying = data[:place] + struct.pack("<q", 2**60) + data[place + 8 :]
    (tmp_path / "a.feather").write_bytes(lying)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataFileError, match="bytes"):
        read(tmp_path / "a.feather")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
