"""Awkward data: one `Case` each, with what an estimator should do with it. The data are made anew at every call."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from scipy import sparse
from torch.utils.data import DataLoader, TensorDataset

from cartograd import Tensor
from cartograd.errors import CartogradError, InputError, UnsupportedError

N, D = 64, 10
random = numpy.random.RandomState(0)
ORDINARY = numpy.concatenate([random.randn(N // 2, D), random.randn(N // 2, D) + 4]).astype("float32")
"""Two groups of rows, by which the maps are made that awkward rows are placed in."""


@dataclass(frozen=True)
class Refusal:
    """The class of the error, exactly, and words of its message."""

    error: type[CartogradError]
    words: str


@dataclass(frozen=True)
class Case:
    """One awkward input.

    Parameters
    ----------
    name : str
        What it is called.
    make : callable
        Makes it.
    refused : Refusal, default=None
        What a fit says; None where it works.
    placed : Refusal or bool, default=None
        What `transform` of a map of `ORDINARY` says; None for the same, True where it works all the same.
    kind, dtype : str
        What the map is: "numpy", "torch" or "tensor" (ours); "float32" or "float64".
    rows, width : int
        Its shape.
    named : bool, default=False
        Whether its columns have names.
    peers : bool, default=False
        Whether it is one of the 50 that other libraries were tried with.
    """

    name: str
    make: Callable[[], Any]
    refused: Refusal | None = None
    placed: Refusal | bool | None = None
    kind: str = "numpy"
    dtype: str = "float32"
    rows: int = N
    width: int = D
    named: bool = False
    peers: bool = False

    def refusal_of_placing(self) -> Refusal | None:
        """What `transform` of a map of `ORDINARY` says of it; None where it works."""
        if self.placed is True:
            return None
        if self.placed is None and self.refused is None and self.width != D:
            return Refusal(InputError, rf"X has {self.width} features, but \w+ is expecting {D} features")
        return self.refused if self.placed is None else self.placed


def plain() -> Any:
    """A copy of the ordinary rows."""
    return ORDINARY.copy()


def changed(at: Any, value: Any, dtype: Any = "float32") -> Callable[[], Any]:
    """Ordinary rows with something else at some place."""

    def make() -> Any:
        rows = ORDINARY.astype(dtype)
        rows[at] = value
        return rows

    return make


def frame(library: str, change: Callable[[Any, Any], Any] = lambda table, module: table) -> Callable[[], Any]:
    """Ordinary rows as a frame of pandas or polars, changed."""

    def make() -> Any:
        module = pytest.importorskip(library)
        columns = {f"c{i}": column for i, column in enumerate(ORDINARY.T.copy())}
        return change(module.DataFrame(columns), module)

    return make


def spaced(rows: Any = ORDINARY) -> Any:
    """Rows with many zeros, for sparse matrices."""
    return numpy.where(rows > 1, rows, 0)


def memory_map(writable: bool) -> Any:
    """Ordinary rows in a nameless file."""
    with tempfile.TemporaryFile() as file:
        ORDINARY.tofile(file)
        file.flush()
        return numpy.memmap(file, dtype="float32", mode="r+" if writable else "r", shape=(N, D))


def read_only() -> Any:
    """Ordinary rows that cannot be written to."""
    rows = ORDINARY.copy()
    rows.flags.writeable = False
    return rows


def wide(columns: int) -> Any:
    """Rows of so many columns."""
    return numpy.random.RandomState(1).randn(N, columns).astype("float32")


def tiny_components() -> Any:
    """Forty pairs of rows, each far from all others."""
    draw = numpy.random.RandomState(2)
    return numpy.repeat(draw.randn(40, D) * 1e4, 2, axis=0) + draw.randn(80, D) * 1e-2


def loader(rows: Any, **options: Any) -> DataLoader:
    """Rows in batches of 20, beside labels."""
    rows = torch.tensor(rows)
    return DataLoader(TensorDataset(rows, torch.arange(len(rows))), batch_size=20, **options)


def batches(*widths: int) -> Any:
    """A generator of batches of these widths."""
    return (ORDINARY[16 * i : 16 * i + 16, :width] for i, width in enumerate(widths))


def table(data: Any) -> Any:
    """The data as an array of float64; the ordinary rows for streams of them."""
    if isinstance(data, (DataLoader, Iterator)):
        return ORDINARY.astype("float64")
    if hasattr(data, "toarray"):
        return data.toarray().astype("float64")
    if hasattr(data, "detach"):
        return data.detach().to(torch.float64).numpy()
    if isinstance(data, list) and isinstance(data[0], torch.Tensor):
        return torch.stack(data).to(torch.float64).numpy()
    return numpy.asarray(data, dtype="float64")


NUMBERS = Refusal(InputError, "X must hold numbers, got dtype")
TABLE = Refusal(InputError, r"X must have two dimensions \(rows, columns\), got")
COMPLEX = Refusal(InputError, "Complex data not supported: X has dtype")
OBJECTS = Refusal(UnsupportedError, r"argument must be .* string.* number")
EMPTY = Refusal(InputError, r"X is empty: found 0 sample\(s\)")
ONE_ROW = Refusal(InputError, r"needs at least 2 rows, got 1 sample")
RANGE = Refusal(InputError, r"X holds values as large as .*, whose distances leave the range of float")


def not_finite(what: str, row: int, column: int) -> Refusal:
    """What is said of NaN and infinity."""
    return Refusal(InputError, rf"Input X contains {what}: first at row {row}, column {column}\.")


def cell(value: Any) -> Callable[[], Any]:
    """Ordinary rows as objects, one of them another."""
    return changed((3, 2), value, object)


def dropped(table: Any, module: Any) -> Any:
    table.loc[3, "c1"] = module.NA
    return table


PEERS = functools.partial(Case, peers=True)
"""The list of `peers-reliability`, section 5, in its order."""

CASES = [
    PEERS("float16", lambda: ORDINARY.astype("float16")),
    PEERS("float32", plain),
    PEERS("float64", lambda: ORDINARY.astype("float64"), dtype="float64"),
    PEERS("int64", lambda: (ORDINARY * 10).astype("int64"), dtype="float64"),
    PEERS("uint8", lambda: numpy.abs(ORDINARY * 10).astype("uint8")),
    PEERS("bool", lambda: ORDINARY.mean(0) < ORDINARY),
    PEERS("big-endian", lambda: ORDINARY.astype(">f8"), dtype="float64"),
    PEERS("complex", lambda: ORDINARY.astype("complex64"), COMPLEX),
    PEERS("object", lambda: ORDINARY.astype(object), dtype="float64"),
    PEERS("list", ORDINARY.tolist, dtype="float64"),
    PEERS("DataFrame", frame("pandas"), named=True),
    PEERS("tensor", lambda: torch.tensor(ORDINARY), kind="torch"),
    PEERS("masked array", lambda: numpy.ma.masked_array(plain())),
    PEERS("None", lambda: None, Refusal(UnsupportedError, "X is None; give an array")),
    PEERS("Fortran", lambda: numpy.asfortranarray(ORDINARY)),
    PEERS("strided", lambda: numpy.repeat(ORDINARY, 2, axis=1)[:, ::2]),
    PEERS("reversed", lambda: plain()[::-1, ::-1]),
    PEERS("read-only", read_only),
    PEERS("csr", lambda: sparse.csr_matrix(spaced())),
    PEERS("csc", lambda: sparse.csc_matrix(spaced())),
    PEERS("csr, empty rows", lambda: sparse.csr_matrix(spaced(changed(slice(8), 0)()))),
    PEERS("NaN", changed((3, 2), numpy.nan), not_finite("NaN", 3, 2)),
    PEERS("inf", changed((3, 2), numpy.inf), not_finite("infinity", 3, 2)),
    PEERS("column of NaN", changed((slice(None), 4), numpy.nan), not_finite("NaN", 0, 4)),
    PEERS("constant column", changed((slice(None), 4), 3)),
    PEERS("constant", lambda: numpy.full((N, D), 0.1), dtype="float64"),
    PEERS("zeros", lambda: numpy.zeros((N, D), "float32")),
    PEERS("half duplicates", lambda: numpy.concatenate([ORDINARY[16:48]] * 2)),
    PEERS("each row x4", lambda: numpy.repeat(ORDINARY[::4], 4, axis=0)),
    PEERS("two values", lambda: numpy.repeat(ORDINARY[[0, -1]], N // 2, axis=0)),
    PEERS("scale 1e30", lambda: ORDINARY * 1e30),
    PEERS("scale 1e-30", lambda: ORDINARY * 1e-30),
    PEERS("scale 1e300", lambda: ORDINARY.astype("float64") * 1e300, dtype="float64"),
    PEERS("offset 1e7", lambda: ORDINARY.astype("float64") + 1e7, dtype="float64"),
    PEERS("outlier 1e18", changed((5, 3), 1e18)),
    PEERS("far components", lambda: ORDINARY + numpy.repeat([0, 1e6], N // 2)[:, None].astype("float32")),
    PEERS("40 tiny components", tiny_components, rows=80, dtype="float64"),
    PEERS("n = 0", lambda: ORDINARY[:0], EMPTY),
    PEERS("n = 1", lambda: ORDINARY[:1] + 0.1, ONE_ROW, True, rows=1),
    PEERS("n = 2", lambda: ORDINARY[::32].copy(), rows=2),
    PEERS("n = 3", lambda: ORDINARY[::31].copy(), rows=3),
    PEERS("n = 10 < k", lambda: ORDINARY[::7].copy(), rows=10),
    PEERS("n = k + 1", lambda: ORDINARY[::4].copy(), rows=16),
    PEERS("d = 0", lambda: ORDINARY[:, :0], Refusal(InputError, r"X has 0 feature\(s\) \(shape=\(64, 0\)\)")),
    PEERS("d = 1", lambda: wide(1), width=1),
    PEERS("d = 2", lambda: wide(2), width=2),
    PEERS("d = 5000", lambda: wide(5000), width=5000),
    PEERS("1-D", lambda: ORDINARY[:, 0].copy(), TABLE),
    PEERS("3-D", lambda: ORDINARY[:, :, None].copy(), TABLE),
    PEERS("strings", lambda: ORDINARY.astype(str), NUMBERS),
    # other libraries' kinds of tables
    Case("polars", frame("polars"), named=True),
    Case("polars, null", frame("polars", lambda t, m: t.with_columns(c1=m.lit(None))), not_finite("NaN", 0, 1)),
    Case("polars, text", frame("polars", lambda t, m: t.with_columns(c1=m.lit("a"))), NUMBERS),
    Case("pandas, Int64", frame("pandas", lambda t, m: t.round().astype("Int64")), dtype="float64", named=True),
    Case("pandas, NA", frame("pandas", lambda t, m: dropped(t.round().astype("Int64"), m)), OBJECTS),
    Case("pandas, text", frame("pandas", lambda t, m: t.assign(c1="a")), NUMBERS),
    Case("pandas, categories", frame("pandas", lambda t, m: t.assign(c1=m.Categorical(["a", "b"] * 32))), NUMBERS),
    Case("pandas, dates", frame("pandas", lambda t, m: t.assign(c1=m.Timestamp("2020-01-01"))), OBJECTS),
    Case("pandas, Series", frame("pandas", lambda t, m: t["c1"]), TABLE),
    Case(
        "pandas, names of two kinds",
        frame("pandas", lambda t, m: t.rename(columns={"c1": 1})),
        Refusal(UnsupportedError, "Feature names are only supported if all input features have string names"),
    ),
    Case("memmap", lambda: memory_map(True)),
    Case("memmap, read-only", lambda: memory_map(False)),
    Case("DataLoader", lambda: loader(ORDINARY), kind="torch"),
    Case("DataLoader, NaN", lambda: loader(changed((50, 2), numpy.nan)()), not_finite("NaN", 50, 2)),
    Case("DataLoader, empty", lambda: DataLoader([], batch_size=4), EMPTY),
    Case("DataLoader, 1-D", lambda: DataLoader(torch.arange(9.0), batch_size=3), Refusal(InputError, "a batch of X")),
    Case("generator", lambda: batches(10, 10, 10, 10)),
    Case("generator, widths", lambda: batches(10, 9), Refusal(InputError, "9 columns where earlier ones had 10")),
    Case("generator, empty", lambda: iter(()), EMPTY),
    # other kinds of numbers, other layouts
    Case("float128", lambda: ORDINARY.astype(numpy.longdouble), dtype="float64"),
    Case("uint64", lambda: numpy.abs(ORDINARY * 10).astype("uint64"), dtype="float64"),
    Case("list of rows", lambda: list(ORDINARY.copy())),
    Case("list of tensors", lambda: list(torch.tensor(ORDINARY))),
    Case("tuple of tuples", lambda: tuple(map(tuple, ORDINARY.tolist())), dtype="float64"),
    Case("bfloat16", lambda: torch.tensor(ORDINARY).bfloat16(), kind="torch"),
    Case("int tensor", lambda: torch.tensor(ORDINARY * 10).long(), kind="torch", dtype="float64"),
    Case("tensor, turned", lambda: torch.tensor(ORDINARY.T.copy()).T, kind="torch"),
    Case("tensor with gradient", lambda: torch.tensor(ORDINARY, requires_grad=True), kind="torch"),
    Case("our Tensor", lambda: Tensor(torch.tensor(ORDINARY), requires_grad=True), kind="tensor"),
    Case("complex tensor", lambda: torch.tensor(ORDINARY).to(torch.complex64), COMPLEX),
    Case("sparse tensor", lambda: torch.tensor(spaced()).to_sparse(), Refusal(UnsupportedError, "layout torch.sparse")),
    Case("meta tensor", lambda: torch.empty(N, D, device="meta"), Refusal(UnsupportedError, "holds no values")),
    Case("coo array", lambda: sparse.coo_array(spaced())),
    Case("csr, whole numbers", lambda: sparse.csr_matrix((ORDINARY * (ORDINARY > 0)).astype(int)), dtype="float64"),
    Case("csr, NaN", lambda: sparse.csr_matrix(changed((3, 2), numpy.nan)()), not_finite("NaN", 3, 2)),
    Case("csr, complex", lambda: sparse.csr_matrix(ORDINARY.astype("complex64")), COMPLEX),
    Case("csr, nothing", lambda: sparse.csr_matrix((N, D)), dtype="float64"),
    Case("csr, scale 1e300", lambda: sparse.csr_matrix(spaced().astype("float64") * 1e300), dtype="float64"),
    Case("masked cells", lambda: numpy.ma.masked_array(plain(), ORDINARY[9, 3] == ORDINARY), not_finite("NaN", 9, 3)),
    # what is no table
    Case("-inf", changed((0, 9), -numpy.inf), not_finite("infinity", 0, 9)),
    Case("object, dict", cell({"a": 1}), OBJECTS),
    Case("object, list", lambda: numpy.array([[[1], 2.0], [3.0, 4.0]], dtype=object), OBJECTS),
    Case("object, text", cell("a"), NUMBERS),
    Case("object, None", cell(None), NUMBERS),
    Case("object, complex", cell(1j), NUMBERS),
    Case("object, huge", cell(10**400), Refusal(InputError, "whole number beyond the range of float64")),
    Case("ragged list", lambda: [[1.0, 2.0], [3.0]], Refusal(InputError, "rows may differ in length")),
    Case("empty list", list, TABLE),
    Case("number", lambda: 3.0, TABLE),
    Case("dictionary", lambda: {"a": [1.0, 2.0]}, NUMBERS),
    Case("name of a file", lambda: "cells.csv", Refusal(UnsupportedError, "X is a string; read the file first")),
    Case("bytes", lambda: numpy.array([[b"a", b"b"]] * 4), NUMBERS),
    Case("dates", lambda: numpy.array([["2020-01-01", "2020-02-01"]] * 4, dtype="datetime64[D]"), NUMBERS),
    Case("records", lambda: numpy.zeros(5, dtype=[("a", "f4"), ("b", "f4")]), NUMBERS),
    # extreme values
    Case("float32, at the end of its range", lambda: numpy.sign(ORDINARY) * numpy.float32(3e38), RANGE),
    Case("float64, at the end of its range", lambda: numpy.sign(ORDINARY).astype("float64") * 1.7e308, RANGE),
    Case("float64, close to it", lambda: ORDINARY.astype("float64") * 7e305, dtype="float64"),
    Case("float32, subnormal", lambda: (ORDINARY.astype("float64") * 1e-41).astype("float32")),
    Case("float64, subnormal", lambda: ORDINARY.astype("float64") * 1e-320, dtype="float64"),
    Case("scale 1e-300", lambda: ORDINARY.astype("float64") * 1e-300, dtype="float64"),
    Case("float32, offset 1e7", lambda: ORDINARY + numpy.float32(1e7)),
    Case("outlier 1e300", changed((5, 3), 1e300, "float64"), dtype="float64"),
]
