"""An .h5ad file shows nothing of other files, and asks for no more than it holds."""

import resource

import numpy
import pytest

from cartograd.errors import DataFileError
from cartograd.io import read

h5py = pytest.importorskip("h5py")
pytest.importorskip("anndata")

TEXT = h5py.string_dtype()


def build(folder, edit):
    """A file of three rows, changed by `edit`, beside a file and some bytes that it must not show."""
    (folder / "secret.bin").write_bytes(b"SECRET00" * 64)
    with h5py.File(folder / "other.h5", "w") as other:
        other["m"] = numpy.full((3, 2), 42.0)
        other["t"] = numpy.array([b"SECRET"] * 3)
        other.create_group("uns")["c_categories"] = numpy.array([b"SECRET"])
        other.create_group("room")["X_pca"] = numpy.full((3, 2), 42.0)
        frame(other, "obs", numpy.array([b"SECRET"] * 3))
    with h5py.File(folder / "a.h5ad", "w") as file:
        file["X"] = numpy.arange(6.0).reshape(3, 2)
        frame(file, "obs", numpy.array([b"r1", b"r2", b"r3"]), c=numpy.array([1.0, 2, 3]))
        frame(file, "var", numpy.array([b"v1", b"v2"]))
        edit(file, folder)
    return folder / "a.h5ad"


def frame(file, name, index, **columns):
    group = file.create_group(name)
    group.attrs["_index"] = "_index"
    group.attrs["column-order"] = numpy.array(list(columns), dtype=TEXT)
    for column, values in {"_index": index, **columns}.items():
        group[column] = values


def link(file, path="/e", target="/t"):
    file["e"] = h5py.ExternalLink("other.h5", target)
    return path


def external(file, folder):
    """A dataset whose values are the bytes of another file."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_external(str(folder / "secret.bin").encode(), 0, 24)
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(8)
    h5py.h5d.create(file.id, b"ext", kind, h5py.h5s.create_simple((3,)), plan)
    return "/ext"


def virtual(file, folder):
    layout = h5py.VirtualLayout(shape=(3,), dtype="S6")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "t", shape=(3,))
    file.create_virtual_dataset("virtual", layout)
    return "/virtual"


def replace(file, name, value):
    del file[name]
    file[name] = value


def external_matrix(file, folder):
    replace(file, "X", h5py.ExternalLink("other.h5", "/m"))


def soft_matrix(file, folder):
    link(file, target="/m")
    replace(file, "X", h5py.SoftLink("/e"))


def soft_through_a_group(file, folder):
    link(file, target="/")
    replace(file, "X", h5py.SoftLink("/e/m"))


def soft_frame(file, folder):
    link(file, target="/obs")
    replace(file, "obs", h5py.SoftLink("/e"))


def soft_column(file, folder):
    link(file)
    replace(file, "obs/c", h5py.SoftLink("/e"))


def soft_room(file, folder):
    link(file, target="/room")
    file["obsm"] = h5py.SoftLink("/e")


def index_is_a_link(file, folder):
    file["obs"].attrs["_index"] = link(file)


def index_of_var_is_a_link(file, folder):
    file["var"].attrs["_index"] = link(file)


def index_is_external(file, folder):
    file["obs"].attrs["_index"] = external(file, folder)


def index_is_virtual(file, folder):
    file["obs"].attrs["_index"] = virtual(file, folder)


def order_is_a_link(file, folder):
    file["obs"].attrs["column-order"] = numpy.array([link(file)], dtype=TEXT)


def order_is_external(file, folder):
    file["obs"].attrs["column-order"] = numpy.array([external(file, folder)], dtype=TEXT)


def categories_by_reference(file, folder):
    external(file, folder)
    replace(file, "obs/c", numpy.zeros(3, dtype="i1"))
    file["obs/c"].attrs["categories"] = file["ext"].ref


def categories_by_name(file, folder):
    replace(file, "obs/c", numpy.zeros(3, dtype="i1"))
    file["obs/c"].attrs["categories"] = link(file)


def categories_without_a_name(file, folder):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_external(str(folder / "secret.bin").encode(), 0, 24)
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(8)
    hidden = h5py.h5d.create(file.id, None, kind, h5py.h5s.create_simple((3,)), plan)
    replace(file, "obs/c", numpy.zeros(3, dtype="i1"))
    file["obs/c"].attrs["categories"] = h5py.Dataset(hidden).ref


def categories_of_records(file, folder):
    records = numpy.array([(b"a", 0), (b"b", 0), (b"c", 0)], dtype=[("index", "S3"), ("c", "i1")])
    replace(file, "obs", records)
    file.create_group("uns")["c_categories"] = h5py.ExternalLink("other.h5", "/t")


def external_uns(file, folder):
    records = numpy.array([(b"a", 0), (b"b", 0), (b"c", 0)], dtype=[("index", "S3"), ("c", "i1")])
    replace(file, "obs", records)
    file["uns"] = h5py.ExternalLink("other.h5", "/uns")


def external_room(file, folder):
    file["obsm"] = h5py.ExternalLink("other.h5", "/room")


def a_link_that_is_not_read(file, folder):
    file.create_group("uns")["e"] = h5py.ExternalLink("other.h5", "/t")


def index_outside(file, folder):
    file["obs"].attrs["_index"] = "/var/_index"


def a_loop(file, folder):
    file["obs/z"] = h5py.SoftLink("/obs")


EDITS = [external_matrix, soft_matrix, soft_through_a_group, soft_frame, soft_column, soft_room, index_is_a_link]
EDITS += [index_of_var_is_a_link, index_is_external, index_is_virtual, order_is_a_link, order_is_external]
EDITS += [categories_by_reference, categories_by_name, categories_without_a_name, categories_of_records]
EDITS += [external_uns, external_room, a_link_that_is_not_read, index_outside, a_loop]
WORDS = (
    "cannot be read as an AnnData file|link to another file|lie in another file|not where they should be"
    "|which is not in it|within 16 others"
)


@pytest.mark.parametrize("edit", EDITS)
def test_what_leads_out_of_the_file_is_refused(tmp_path, edit):
    with pytest.raises(DataFileError, match=WORDS) as error:
        read(build(tmp_path, edit))
    assert "SECRET" not in str(error.value)
    assert "X_pca" not in str(error.value)


def test_soft_links_within_the_file_are_followed(tmp_path):
    def edit(file, folder):
        file["real"] = numpy.array([5.0, 6, 7])
        replace(file, "obs/c", h5py.SoftLink("/real"))

    assert read(build(tmp_path, edit)).columns["c"].tolist() == [5, 6, 7]


def test_references_to_categories_in_the_frame_are_followed(tmp_path):
    def edit(file, folder):
        file["obs/__categories/c"] = numpy.array([b"u", b"v"])
        replace(file, "obs/c", numpy.array([0, 1, -1], dtype="i1"))
        file["obs/c"].attrs["categories"] = file["obs/__categories/c"].ref

    assert read(build(tmp_path, edit)).columns["c"].tolist() == ["u", "v", None]


def same_text_again_and_again(file, folder):
    """Texts of any length are stored once, and named by 16 bytes each: these all name one text."""
    count = 100_000
    data = file.create_dataset("names", shape=(count,), chunks=(count,), dtype=TEXT)
    data[0] = "x" * 1_000_000
    file.flush()
    _, chunk = data.id.read_direct_chunk((0,))
    data.id.write_direct_chunk((0,), chunk[:16] * count)
    records = numpy.zeros(3, dtype=[("index", "S3"), ("c", "i1")])
    replace(file, "obs", records)
    file.create_group("uns")
    file.move("names", "uns/c_categories")


def one_long_category(file, folder):
    count = 1_000_000
    del file["X"], file["obs"]
    file.create_dataset("X", data=numpy.random.default_rng(0).random((count, 1), dtype=numpy.float32))
    replace(file, "var/_index", numpy.array([b"v1"]))
    frame(file, "obs", numpy.arange(count).astype("S8"))
    group = file.create_group("obs/c")
    group.attrs["encoding-type"] = "categorical"
    group.create_dataset("codes", data=numpy.zeros(count, dtype="i1"), compression="gzip")
    group["categories"] = numpy.array([b"x" * 100_000])
    file["obs"].attrs["column-order"] = numpy.array(["c"], dtype=TEXT)


def a_sparse_matrix_that_is_huge(file, folder):
    del file["X"]
    group = file.create_group("X")
    group.attrs["encoding-type"] = "csr_matrix"
    group.attrs["shape"] = numpy.array([3, 250_000_000])
    group["indptr"], group["indices"], group["data"] = numpy.array([0, 1, 1, 1]), numpy.array([0]), numpy.array([1.0])


def children_peak():
    """The most memory that any child of this process has held, in KiB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def assert_peak_below(gibibytes, before):
    """Of children since `before`: a larger peak of an earlier test's child hides theirs."""
    after = children_peak()
    assert after == before or after < gibibytes * 2**20


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (same_text_again_and_again, "names the same texts again and again|cannot be read as an AnnData file"),
        (a_sparse_matrix_that_is_huge, "its matrix, made dense, would expand from"),
    ],
)
def test_bombs(tmp_path, edit, words):
    path, before = build(tmp_path, edit), children_peak()
    with pytest.raises(DataFileError, match=words):
        read(path)
    assert_peak_below(1.5, before)


@pytest.mark.timeout(60)
def test_a_long_category_of_many_rows_is_held_once(tmp_path):
    path = build(tmp_path, one_long_category)
    before = children_peak()
    column = read(path).columns["c"]
    assert len(column[0]) == 100_000
    assert len({id(cell) for cell in column}) == 1
    assert_peak_below(1.5, before)
