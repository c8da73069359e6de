"""1,000 damaged input files over all formats: our own error, or a table of finite numbers."""

import collections
import gzip

import mutation
import numpy
import pytest

from cartograd.errors import CartogradError
from cartograd.io import Table, h5ad, read, write_table

Image = pytest.importorskip("PIL.Image")

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

WAYS = [mutation.flip, mutation.overwrite, mutation.cut, mutation.splice]
FORMATS = [
    "csv",
    "tsv",
    "csv.gz",
    "jsonl",
    "npy",
    "npz",
    "parquet",
    "arrow",
    "feather",
    "h5ad",
    "png",
    "jpg",
    "unknown",
]
EACH = 82
SLOW = {"h5ad": 25}
"""12 formats x 82 files, and fewer of the one that starts a process for each: 1,009."""


def original(folder, suffix):
    """A small whole file of every format, with numbers, text and a missing value."""
    draw = numpy.random.default_rng(1)
    path = folder / f"whole.{suffix}"
    columns = {"a": draw.normal(size=30), "n": numpy.arange(30), "word": [f"w{n}" if n else None for n in range(30)]}
    if suffix in ("png", "jpg"):
        Image.fromarray(draw.integers(0, 256, (12, 10), dtype=numpy.uint8)).save(path)
    elif suffix == "h5ad":
        obs = pandas.DataFrame({"word": columns["word"]}, index=[f"c{n}" for n in range(30)])
        anndata.AnnData(draw.normal(size=(30, 3)).astype(numpy.float32), obs=obs).write_h5ad(path, compression="gzip")
    elif suffix == "npy":
        write_table(path, {"X": draw.normal(size=(30, 3))})
    elif suffix == "csv.gz":
        write_table(folder / "plain.csv", columns)
        path.write_bytes(gzip.compress((folder / "plain.csv").read_bytes()))
    elif suffix == "unknown":
        write_table(folder / "plain.csv", columns)
        (folder / "plain.csv").rename(path)
    else:
        write_table(path, columns)
    return path.read_bytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files(suffix, scratch, monkeypatch):
    monkeypatch.setattr(h5ad, "PATIENCE", 5.0)  # on some damaged files the HDF5 library never ends
    seed = FORMATS.index(suffix)
    print("seed", seed)
    draw = numpy.random.default_rng(seed)
    whole = original(scratch, suffix)
    folder = scratch / "damaged"
    folder.mkdir()
    path = folder / f"a.{suffix}"
    source = folder if suffix in ("png", "jpg") else path
    path.write_bytes(whole)
    assert isinstance(read(source, missing="mean"), Table)
    outcomes = collections.Counter()
    for number in range(SLOW.get(suffix, EACH)):
        path.write_bytes(WAYS[number % len(WAYS)](whole, draw))
        try:
            table = read(source, missing="mean")
        except CartogradError:
            outcomes["refused"] += 1
        else:
            assert numpy.isfinite(table.X).all()
            assert all(len(column) == len(table) for column in table.all_columns().values())
            outcomes["read"] += 1
    print(outcomes)
    assert outcomes["refused"] > 5
