"""NumPy's files: what numpy wrote comes back, and headers that lie are refused before anything is allocated."""

import io
import pickle
import tracemalloc
import zipfile

import numpy
import pytest

from cartograd.errors import DataFileError, OptionError
from cartograd.io import read


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u2", "i8", "?", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, dtype, order):
    X = numpy.asarray((numpy.arange(12) % 5).reshape(4, 3), dtype=dtype, order=order)
    numpy.save(tmp_path / "a.npy", X)
    table = read(tmp_path / "a.npy")
    assert table.X.dtype == (numpy.float64 if dtype in ("f8", "i8") else numpy.float32)
    numpy.testing.assert_array_equal(table.X, X)
    assert table.feature_names == ("x0", "x1", "x2")
    assert table.ids.tolist() == [0, 1, 2, 3]


def test_images_in_an_array(tmp_path):
    pictures = numpy.arange(5 * 4 * 6, dtype=numpy.uint8).reshape(5, 4, 6)
    numpy.save(tmp_path / "a.npy", pictures)
    table = read(tmp_path / "a.npy")
    assert table.X.shape == (5, 24)
    numpy.testing.assert_array_equal(table.thumbnails, pictures)


def test_a_structured_array_is_a_table(tmp_path):
    rows = numpy.array([(1.5, "a", 2), (2.5, "b", 3)], dtype=[("x", "f8"), ("word", "U3"), ("n", "i4")])
    numpy.save(tmp_path / "a.npy", rows)
    table = read(tmp_path / "a.npy", text="word")
    assert table.feature_names == ("x", "n")
    assert table.text.tolist() == ["a", "b"]


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_npz(tmp_path, save):
    X = numpy.random.default_rng(0).normal(size=(10, 3)).astype(numpy.float32)
    save(
        tmp_path / "a.npz",
        X=X,
        y=numpy.arange(10) % 3,
        names=numpy.array(list("abcdefghij")),
        classes=numpy.array(["u", "v"]),
    )
    table = read(tmp_path / "a.npz", label="y", text="names")
    numpy.testing.assert_array_equal(table.X, X)
    assert table.label.tolist() == [n % 3 for n in range(10)]
    assert table.text.tolist() == list("abcdefghij")
    assert "classes" not in table.columns, "its length is not that of the rows"


def test_which_array_is_taken(tmp_path):
    one, other = numpy.zeros((3, 2)), numpy.ones((3, 2))
    numpy.savez(tmp_path / "a.npz", one=one, other=other)
    with pytest.raises(
        DataFileError, match=r"several matrices: 'one' \(3, 2\), 'other' \(3, 2\); choose one, key='one'"
    ):
        read(tmp_path / "a.npz")
    assert read(tmp_path / "a.npz", key="other").X.tolist() == other.tolist()
    with pytest.raises(OptionError, match="no array 'third' in it; there are 'one', 'other'"):
        read(tmp_path / "a.npz", key="third")
    numpy.savez(tmp_path / "b.npz", x=numpy.arange(3.0), y=numpy.arange(3.0) / 2)
    assert read(tmp_path / "b.npz").feature_names == ("x", "y"), "columns without a matrix are a table"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.arange(3.0), r"shape \(3,\); a table has two axes"),
        (numpy.array([[1j]]), "complex128; features must be real"),
        (numpy.array([["a"]]), "features must be real numbers"),
        (numpy.zeros((0, 3)), "there are no rows"),
        (numpy.zeros((3, 0)), "there are no features"),
    ],
)
def test_arrays_that_are_no_table(tmp_path, array, message):
    numpy.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.npy")


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, ("raise SystemExit('sprung')",))

    numpy.save(tmp_path / "a.npy", numpy.array([[Trap()]], dtype=object), allow_pickle=True)
    with pytest.raises(DataFileError, match="pickles can run code"):
        read(tmp_path / "a.npy")
    numpy.savez(tmp_path / "a.npz", X=numpy.array([[Trap()]], dtype=object))
    with pytest.raises(DataFileError, match="pickles can run code"):
        read(tmp_path / "a.npz", key="X")
    for name in ("a.pkl", "a.joblib", "a.pt"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(DataFileError, match="pickles can run code when they are opened"):
            read(tmp_path / name)


def header(shape, descr="<f8"):
    file = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue()


@pytest.mark.parametrize("shape", [(10**6, 10**6), (2**62, 2**62), (3, 2), (2, 3, 0), (-2, -3)])
def test_a_header_that_lies_allocates_nothing(tmp_path, shape):
    (tmp_path / "a.npy").write_bytes(header(shape) + b"\0" * 16)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", header(shape) + b"\0" * 16)
    tracemalloc.start()
    try:
        for name in ("a.npy", "a.npz"):
            with pytest.raises(DataFileError, match=r"by its header|gives the shape|expand from|max_bytes"):
                read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_wrong_checksum_is_seen(tmp_path):
    numpy.savez(tmp_path / "a.npz", X=numpy.arange(600.0).reshape(200, 3))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[2000] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(DataFileError, match="Bad CRC-32"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04junk", b"hello"])
def test_files_that_are_something_else(tmp_path, content):
    for name in ("a.npy", "a.npz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataFileError, match=rf"{name}: it cannot be read as"):
            read(tmp_path / name)


@pytest.mark.parametrize("order", ["<", ">"])
def test_letters_beyond_unicode_are_refused(tmp_path, order):
    numbers = numpy.array([65, 0x110000], dtype=f"{order}u4")
    numpy.savez(tmp_path / "a.npz", x=numpy.zeros((2, 3)), names=numbers.view(f"{order}U1"))
    with pytest.raises(DataFileError, match="holds a letter of number 1,114,112; Unicode ends at 1,114,111"):
        read(tmp_path / "a.npz")
