"""Exact search against float64, scikit-learn and the awkward cases: ties, duplicates, offsets, odd sizes."""

import numpy as np
import oracle
import pytest
import torch
from neighbor_cases import METRICS, data_for
from sklearn.neighbors import NearestNeighbors

from cartograd.neighbors import exact, search, tiles


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tile", [64, 4096])
def test_equals_the_definition(metric, dtype, tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_ROWS", tile)
    X = data_for(metric).astype(dtype)
    indices, distances = search(X, 10, metric=metric, backend="exact")
    wanted, apart = oracle.neighbours(X, 10, metric)
    assert indices.dtype == np.int64
    assert distances.dtype == dtype
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=2e-6, atol=1e-7 if metric != "angular" else 2e-6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("tile", [64, 4096])
def test_queries_against_a_set(metric, tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_ROWS", tile)
    X, Q = data_for(metric), data_for(metric, n=77, seed=1)
    indices, distances = search(X, 5, metric=metric, backend="exact", queries=Q)
    wanted, apart = oracle.neighbours(X, 5, metric, Q)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan", "cosine", "hamming", "jaccard"])
def test_equals_scikit_learn(metric):
    X = data_for(metric).astype(np.float64)
    theirs = NearestNeighbors(n_neighbors=7, algorithm="brute", metric=metric)
    theirs.fit(X != 0 if metric == "jaccard" else X)
    apart, _ = theirs.kneighbors()
    _, distances = search(X, 7, metric=metric, backend="exact")
    np.testing.assert_allclose(distances, apart, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_the_origin(shift, dtype):
    X = (np.random.default_rng(2).normal(size=(1500, 20)) + shift).astype(dtype)
    indices, distances = search(X, 15, backend="exact")
    wanted, apart = oracle.neighbours(X, 15)
    assert (indices == wanted).mean() >= 0.999
    np.testing.assert_allclose(distances, apart, rtol=1e-6, atol=1e-9)
    assert (distances >= 0).all()


def test_two_tight_clusters_far_apart():
    """Rounding of a float32 product (about 1e1 here) is far above the distances (about 1e-2)."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 5)) * 1e-2
    X[::2] += 4096.0
    X = X.astype(np.float32)
    indices, distances = search(X, 5, backend="exact")
    wanted, apart = oracle.neighbours(X, 5)
    assert (indices == wanted).mean() >= 0.999
    np.testing.assert_allclose(distances, apart, rtol=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "hamming"])
@pytest.mark.parametrize("tile", [64, 4096])
def test_ties_are_broken_by_index_on_a_lattice(metric, tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_ROWS", tile)
    side = np.arange(6)
    X = np.stack(np.meshgrid(side, side, side), axis=-1).reshape(-1, 3)
    X = X[np.random.default_rng(0).permutation(len(X))]
    for dtype in (np.float32, np.float64, np.int64, np.uint8):
        indices, _ = search(X.astype(dtype), 9, metric=metric, backend="exact")
        np.testing.assert_array_equal(indices, oracle.neighbours(X, 9, metric)[0])


@pytest.mark.parametrize("copies", [2, 4, 40])
@pytest.mark.parametrize("tile", [64, 4096])
def test_self_is_left_out_by_id_among_duplicates(copies, tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_ROWS", tile)
    X = np.repeat(np.random.default_rng(4).normal(size=(20, 8)).astype(np.float32), copies, axis=0) + np.float32(100)
    indices, distances = search(X, 5, backend="exact")
    wanted, apart = oracle.neighbours(X, 5)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-6)
    assert (distances[:, : min(5, copies - 1)] == 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_constant_data(metric):
    X = np.full((30, 4), 0.3, dtype=np.float32)
    indices, distances = search(X, 4, metric=metric, backend="exact")
    assert (distances == 0).all()
    assert indices[0].tolist() == [1, 2, 3, 4]
    assert indices[2].tolist() == [0, 1, 3, 4]
    assert indices[29].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_very_few_rows(n):
    X = np.arange(n, dtype=np.float64)[:, None] ** 2
    indices, distances = search(X, n - 1, backend="exact")
    wanted, apart = oracle.neighbours(X, n - 1)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(distances, apart)


def test_self_may_be_included():
    X = np.random.default_rng(5).normal(size=(50, 3))
    indices, distances = search(X, 50, backend="exact", exclude_self=False)
    assert indices[:, 0].tolist() == list(range(50))
    assert (distances[:, 0] == 0).all()
    np.testing.assert_array_equal(np.sort(indices, axis=1), np.tile(np.arange(50), (50, 1)))


def test_self_may_be_left_out_of_queries():
    X = np.random.default_rng(6).normal(size=(50, 3))
    indices, _ = search(X, 4, backend="exact", queries=X[:20], exclude_self=True)
    np.testing.assert_array_equal(indices, search(X, 4, backend="exact")[0][:20])


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e18])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_extreme_scales(scale, metric):
    X = np.random.default_rng(7).normal(size=(200, 5)).astype(np.float32)
    indices, distances = search(X * np.float32(scale), 5, metric=metric, backend="exact")
    wanted, apart = oracle.neighbours(X * np.float32(scale), 5, metric)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_allclose(distances, apart, rtol=1e-5)


def test_extreme_scales_of_float64():
    X = np.random.default_rng(8).normal(size=(200, 5))
    indices, distances = search(X * 1e300, 5, backend="exact")
    np.testing.assert_array_equal(indices, oracle.neighbours(X, 5)[0])
    np.testing.assert_allclose(distances, oracle.neighbours(X, 5)[1] * 1e300, rtol=1e-9)


def test_one_huge_outlier():
    X = np.random.default_rng(9).normal(size=(120, 5)).astype(np.float32)
    X[17] = 1e18
    indices, _ = search(X, 5, backend="exact")
    np.testing.assert_array_equal(np.delete(indices, 17, 0), np.delete(oracle.neighbours(X, 5)[0], 17, 0))


def test_rows_of_zeros_have_no_direction():
    X = np.eye(4, dtype=np.float32)
    X[3] = 0
    X = np.concatenate([X, np.zeros((1, 4), np.float32), [[1, 1, 0, 0]]]).astype(np.float32)
    indices, distances = search(X, 5, metric="cosine", backend="exact")
    assert indices[3].tolist() == [4, 0, 1, 2, 5]
    np.testing.assert_allclose(distances[3], [0, 1, 1, 1, 1])
    np.testing.assert_allclose(distances[0], [1 - 0.5**0.5, 1, 1, 1, 1], rtol=1e-6)
    _, apart = search(X, 5, metric="angular", backend="exact")
    np.testing.assert_allclose(apart[0], [0.25, 0.5, 0.5, 0.5, 0.5], rtol=1e-6)


def test_opposite_rows_are_farthest():
    X = np.array([[1.0, 0.0], [2.0, 1e-9], [-3.0, 0.0]])
    _, cosine = search(X, 2, metric="cosine", backend="exact")
    _, angular = search(X, 2, metric="angular", backend="exact")
    np.testing.assert_allclose(cosine[0], [1.25e-19, 2.0], rtol=1e-6)
    np.testing.assert_allclose(angular[0], [5e-10 / np.pi, 1.0], rtol=1e-6)


def test_the_user_setting_of_product_precision_does_not_matter():
    X = np.random.default_rng(10).normal(size=(600, 64)).astype(np.float32)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        indices, _ = search(X, 10, backend="exact")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(indices, oracle.neighbours(X, 10)[0])


def test_same_bits_at_any_thread_count():
    X = np.random.default_rng(11).normal(size=(2500, 12)).astype(np.float32)
    X[:200] = np.round(X[:200])
    threads = torch.get_num_threads()
    try:
        answers = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            answers.append(search(X, 10, backend="exact"))
    finally:
        torch.set_num_threads(threads)
    for indices, distances in answers[1:]:
        np.testing.assert_array_equal(indices, answers[0][0])
        np.testing.assert_array_equal(distances, answers[0][1])


@pytest.mark.cpu
def test_no_matrix_of_all_pairs_is_made(monkeypatch):
    """Every tile is at most TILE_ROWS on a side."""
    monkeypatch.setattr(tiles, "TILE_ROWS", 128)
    seen = []
    real = tiles.Tiles.scores

    def scores(self, a, b):
        seen.append(real(self, a, b))
        return seen[-1]

    monkeypatch.setattr(tiles.Tiles, "scores", scores)
    search(np.random.default_rng(12).normal(size=(1000, 3)), 4, backend="exact")
    assert len(seen) == 8 * 9 // 2
    assert max(tile.numel() for tile in seen) <= 128 * 128


def test_doubtful_rows_are_few_on_ordinary_data():
    """The careful second search is for odd rows; ordinary data must not need it."""
    X = torch.randn(3000, 30, generator=torch.Generator().manual_seed(0))
    from cartograd.neighbors.distances import METRICS as TABLE
    from cartograd.neighbors.rows import TensorRows

    *_, doubtful = exact.search_fast(TensorRows(X), 15, TABLE["euclidean"], None, torch.arange(3000), False)
    assert len(doubtful) <= 3
