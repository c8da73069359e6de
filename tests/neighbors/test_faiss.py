"""faiss indexes behind `search`. Skipped where the [ann] extra is not installed."""

import dataclasses
import subprocess
import sys

import numpy as np
import oracle
import pytest

from cartograd.errors import OptionError, UnsupportedError
from cartograd.neighbors import FaissConfig, extras, search

needs_faiss = pytest.mark.skipif(not extras.available("faiss"), reason="faiss is not installed")


def clustered(n=4000, d=24, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, d)) * 3
    return (centres[rng.integers(0, 40, n)] + rng.normal(size=(n, d))).astype(np.float32)


@needs_faiss
@pytest.mark.parametrize("index_type", ["Flat", "IVF", "IVFPQ", "HNSW"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_recall_at_the_defaults(index_type, metric):
    X = clustered()
    config = FaissConfig(index_type=index_type)
    before = dataclasses.asdict(config)
    indices, distances = search(X, 10, metric=metric, backend=config)
    wanted, _ = oracle.neighbours(X, 10, metric)
    assert oracle.recall(indices, wanted) >= (1.0 if index_type == "Flat" else 0.95)
    apart = np.take_along_axis(oracle.all_distances(X, X, metric), indices, 1)
    np.testing.assert_allclose(distances, apart, rtol=1e-5, atol=1e-6)
    assert (indices != np.arange(len(X))[:, None]).all()
    assert dataclasses.asdict(config) == before


@needs_faiss
def test_flat_is_exact_far_from_the_origin():
    X = (clustered(1500).astype(np.float64) + 1e4).astype(np.float32)
    indices, _ = search(X, 10, backend="faiss")
    assert (indices == oracle.neighbours(X, 10)[0]).mean() >= 0.999


@needs_faiss
@pytest.mark.parametrize("index_type", ["Flat", "IVF", "HNSW"])
def test_self_is_dropped_by_id_among_duplicates(index_type):
    X = np.repeat(clustered(100), 8, axis=0)
    indices, distances = search(X, 5, backend=FaissConfig(index_type=index_type))
    assert (indices != np.arange(len(X))[:, None]).all()
    assert (distances == 0).mean() >= 0.99
    assert (indices >= 0).all()


@needs_faiss
def test_lists_with_too_few_rows_are_made_up_for():
    """One short list probed cannot hold 60 neighbours; no -1 may be left."""
    X = clustered(2000)
    indices, distances = search(X, 60, backend=FaissConfig(index_type="IVF", nlist=50, nprobe=1))
    assert (indices >= 0).all()
    assert np.isfinite(distances).all()
    assert all(len(set(row)) == 60 for row in indices.tolist())


@needs_faiss
def test_queries_and_seeds():
    X, Q = clustered(), clustered(100, seed=5)
    indices, _ = search(X, 5, backend="faiss", queries=Q)
    np.testing.assert_array_equal(indices, oracle.neighbours(X, 5, queries=Q)[0])
    config = FaissConfig(index_type="IVF")
    first, second = (search(X, 5, backend=config, random_state=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@needs_faiss
def test_settings_that_do_not_fit_the_data():
    X = clustered(200, d=24)
    with pytest.raises(
        ValueError, match=r"M=7 does not divide the 24 columns; possible are \[1, 2, 3, 4, 6, 8, 12, 24\]"
    ):
        search(X, 5, backend=FaissConfig(index_type="IVFPQ", M=7, nbits=4))
    with pytest.raises(ValueError, match="nbits=8 needs 256 rows or more to train, got 200"):
        search(X, 5, backend=FaissConfig(index_type="IVFPQ"))
    with pytest.raises(ValueError, match="nlist=500 is more than the 200 rows"):
        search(X, 5, backend=FaissConfig(index_type="IVF", nlist=500))


def test_config_cannot_be_written_to():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FaissConfig().nlist = 3


@pytest.mark.parametrize(("backend", "package"), [("faiss", "faiss"), ("nndescent", "pynndescent")])
def test_a_missing_extra_is_named(backend, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"backend '{backend}' needs .*pip install \"cartograd\[ann\]\""):
        search(clustered(50), 5, backend=backend)


TOGETHER = """
import numpy as np, torch
from cartograd.neighbors import search, FaissConfig
X = np.random.default_rng(0).normal(size=(6000, 32)).astype("f4")
answers = []
for _ in range(3):
    answers.append(search(X, 10, backend="exact")[0])
    answers.append(search(X, 10, backend="faiss")[0])
    answers.append(search(torch.from_numpy(X), 10, backend="cells", recall=0.9)[0].numpy())
    answers.append(search(X, 10, backend=FaissConfig(index_type="IVF"))[0])
print((answers[0] == answers[1]).mean(), torch.get_num_threads())
"""


@needs_faiss
def test_torch_and_faiss_in_one_process_with_default_threads():
    """Each brings an OpenMP of its own: neither order of use may hang or crash."""
    environment = {"PATH": "/usr/bin:/bin"}  # nothing that sets thread counts
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) > 0.999


def test_neither_extra_nor_scikit_learn_is_imported_before_it_is_used():
    code = """
import sys
import cartograd.neighbors
cartograd.neighbors.search([[0.0], [1.0], [3.0]], 1)
print(sorted({"faiss", "pynndescent", "numba", "sklearn", "scipy", "pandas"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("efConstruction", 10**9),
        ("efSearch", 10**9),
        ("nlist", 10**9),
        ("nprobe", 10**30),
        ("M", 10**9),
        ("nbits", 64),
        ("refine", 10**9),
        ("nbits", None),
        ("M", True),
        ("refine", 2.5),
    ],
)
def test_settings_beyond_reason_are_refused_before_any_work(name, value):
    message = rf"FaissConfig: {name} must be (at least 1|a whole number)"
    with pytest.raises((OptionError, UnsupportedError), match=message):
        FaissConfig(**{name: value})
