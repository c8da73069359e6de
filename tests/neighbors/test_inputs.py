"""Every kind of input gives the same neighbours, and the answer is of the kind that was given."""

import warnings

import numpy as np
import oracle
import pytest
import torch

import cartograd
from cartograd.neighbors import rows as sources
from cartograd.neighbors import search

X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
INDICES, DISTANCES = oracle.neighbours(X, 4)


def same(found, rtol=1e-5):
    np.testing.assert_array_equal(np.asarray(found[0]), INDICES)
    np.testing.assert_allclose(np.asarray(found[1]), DISTANCES, rtol=rtol)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(X),
        np.repeat(X, 2, axis=0)[::2],
        np.flip(np.flip(X, 0).copy(), 0),
        X.astype(np.float64),
        X.astype(">f4"),
        X.astype(np.longdouble),
        np.ma.MaskedArray(X),
        X.tolist(),
        tuple(map(tuple, X.tolist())),
        list(torch.from_numpy(X)),
        X.astype(object),
    ],
    ids=[
        "fortran",
        "strided",
        "reversed",
        "float64",
        "big-endian",
        "longdouble",
        "masked",
        "list",
        "tuple",
        "rows",
        "obj",
    ],
)
def test_numpy_kinds(array):
    indices, distances = search(array, 4)
    assert isinstance(indices, np.ndarray)
    assert isinstance(distances, np.ndarray)
    same((indices, distances))


def test_read_only_arrays_are_neither_warned_about_nor_written_to():
    array = X.copy()
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(search(array, 4))
        search(array, 4, backend="cells")
        search(array, 4, metric="cosine")
    np.testing.assert_array_equal(array, X)


@pytest.mark.parametrize("backend", ["exact", "cells"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_the_data_are_never_written_to(backend, metric):
    if (backend, metric) == ("cells", "manhattan"):
        return
    tensor = torch.from_numpy(X.copy())
    search(tensor, 4, backend=backend, metric=metric, queries=tensor[:50])
    search(tensor, 4, backend=backend, metric=metric)
    assert np.array_equal(tensor.numpy(), X)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"])
def test_number_kinds(dtype):
    array = (X * 10).astype(dtype)
    indices, distances = search(array, 4)
    wanted, apart = oracle.neighbours(array, 4)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-6)
    assert distances.dtype == (np.float64 if dtype in ("int32", "int64", "uint64") else np.float32)


def test_large_integers_keep_their_digits():
    array = np.array([[2**40], [2**40 + 1], [2**40 + 3]])
    assert search(array, 1)[1].ravel().tolist() == [1.0, 1.0, 2.0]


def test_torch_gives_torch():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        data = torch.from_numpy(X).to(dtype).requires_grad_()
        indices, distances = search(data, 4)
        assert isinstance(indices, torch.Tensor)
        assert indices.dtype == torch.int64
        assert distances.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert not distances.requires_grad
        np.testing.assert_array_equal(indices.numpy(), oracle.neighbours(data.detach().double().numpy(), 4)[0])
    same(search(torch.from_numpy(X).T.contiguous().T, 4))


def test_a_cartograd_tensor_gives_cartograd_tensors():
    indices, distances = search(cartograd.tensor(X, requires_grad=True), 4)
    assert isinstance(indices, cartograd.Tensor)
    assert isinstance(distances, cartograd.Tensor)
    assert not distances.requires_grad
    same((indices.data, distances.data))


class Frame:
    """What a data frame looks like to us: pandas and polars both have ``to_numpy``."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def test_frames():
    same(search(Frame(X), 4))


def test_real_frames():
    for library in ("pandas", "polars"):
        try:
            module = __import__(library)
        except ImportError:
            continue
        same(search(module.DataFrame({str(i): X[:, i] for i in range(6)}), 4))


@pytest.mark.parametrize("backend", ["exact", "cells"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_memmap(tmp_path, backend, dtype):
    data = (np.random.default_rng(1).normal(size=(2000, 8)) * 20 + 128).astype(dtype)
    np.save(tmp_path / "rows.npy", data)
    indices, distances = search(np.load(tmp_path / "rows.npy", mmap_mode="r"), 5, backend=backend)
    plain = search(data, 5, backend=backend)
    np.testing.assert_array_equal(indices, plain[0])
    np.testing.assert_array_equal(distances, plain[1])


@pytest.mark.cpu
@pytest.mark.parametrize("backend", ["exact", "cells"])
def test_memmap_is_read_in_blocks(tmp_path, backend, monkeypatch):
    """No piece that is read is more than a small part of the file."""
    rng = np.random.default_rng(1)
    data = (rng.normal(size=(30, 256))[rng.integers(0, 30, 20_000)] * 5 + rng.normal(size=(20_000, 256))).astype("f4")
    np.save(tmp_path / "rows.npy", data)
    pieces = []
    real = sources.FileRows._convert
    monkeypatch.setattr(
        sources.FileRows, "_convert", lambda self, piece: pieces.append(piece.size) or real(self, piece)
    )
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    search(mapped, 5, backend=backend, queries=data[:2000], recall=0.8)
    assert sum(pieces) >= data.size
    assert max(pieces) <= data.size / 4


@pytest.mark.parametrize("backend", ["exact", "cells"])
def test_a_data_loader_is_read_once(backend):
    class Counted(torch.utils.data.IterableDataset):
        passes = 0

        def __iter__(self):
            Counted.passes += 1
            return iter(torch.from_numpy(X))

    loader = torch.utils.data.DataLoader(Counted(), batch_size=32)
    indices, distances = search(loader, 4, backend=backend)
    assert Counted.passes == 1
    assert isinstance(indices, torch.Tensor)
    plain = search(torch.from_numpy(X), 4, backend=backend)
    assert torch.equal(indices, plain[0])
    assert torch.equal(distances, plain[1])


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_a_data_loader_with_labels(form):
    def pack(items):
        batch = torch.stack(items)
        return (batch, torch.zeros(len(batch))) if form == "tuple" else {"x": batch, "y": torch.zeros(len(batch))}

    same(search(torch.utils.data.DataLoader(torch.from_numpy(X), batch_size=64, collate_fn=pack), 4))


def test_a_shuffling_loader_is_answered_in_the_order_it_gave():
    generator = torch.Generator().manual_seed(3)
    given = []

    def remember(items):
        given.extend(items)
        return torch.stack(items)

    loader = torch.utils.data.DataLoader(
        torch.from_numpy(X), batch_size=50, shuffle=True, generator=generator, collate_fn=remember
    )
    indices, _ = search(loader, 4)
    np.testing.assert_array_equal(indices.numpy(), oracle.neighbours(torch.stack(given).numpy(), 4)[0])


def test_queries_of_another_kind_decide_the_kind_of_the_answer():
    indices, distances = search(X, 4, queries=torch.from_numpy(X[:10]), exclude_self=True)
    assert isinstance(indices, torch.Tensor)
    np.testing.assert_array_equal(indices.numpy(), INDICES[:10])
    assert distances.shape == (10, 4)


def test_one_column_and_one_query():
    column = np.arange(10.0)[:, None]
    assert search(column, 1, queries=[[3.2]])[0].tolist() == [[3]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_neighbours():
    data = torch.from_numpy(np.random.default_rng(2).normal(size=(6000, 20)).astype(np.float32))
    for metric in ("euclidean", "cosine", "manhattan"):
        here, there = search(data, 10, metric=metric), search(data.cuda(), 10, metric=metric)
        assert there[0].is_cuda
        assert torch.equal(here[0], there[0].cpu())
        torch.testing.assert_close(here[1], there[1].cpu())
    here, there = search(data, 10, backend="cells"), search(data.cuda(), 10, backend="cells")
    assert (here[0] == there[0].cpu()).float().mean() > 0.999
    assert torch.equal(search(data.cuda(), 10, backend="cells")[0], there[0])
    assert isinstance(search(data.numpy(), 10, device="cuda")[0], np.ndarray)
