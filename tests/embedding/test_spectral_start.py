"""The spectral start: graphs in one piece and in several, weights of any kind, the same bits with any threads."""

import numpy as np
import pytest
import torch
from scipy.sparse import diags_array
from scipy.sparse.linalg import eigsh

from cartograd.affinity import UMAPAffinity
from cartograd.embedding.spectral_start import spectral_coordinates
from cartograd.neighbors import Graph
from cartograd.neighbors.rows import TensorRows


def points(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(5, 6))[rng.integers(0, 5, n)] * 2 + rng.normal(size=(n, 6))).astype(np.float32)


def two_pieces(n=900):
    X = np.random.default_rng(1).normal(size=(n, 6)).astype(np.float32)
    X[n // 2 :] += 1000
    return X, UMAPAffinity(n_neighbors=8)(torch.from_numpy(X))


@pytest.mark.slow  # for its import
def test_as_smooth_as_that_of_umap_learn():
    """Not the same: on these points its iteration passes over the smoothest function of all."""
    umap = pytest.importorskip("umap.spectral")
    graph = UMAPAffinity(n_neighbors=12)(torch.from_numpy(points()))
    W = graph.to(dtype=torch.float64).to_scipy()
    scale = diags_array(1 / np.sqrt(np.asarray(W.sum(axis=1)).ravel()))
    A = scale @ W @ scale

    def roughness(vectors):
        vectors = np.linalg.qr(vectors)[0]
        return np.linalg.eigvalsh(np.eye(2) - vectors.T @ (A @ vectors))

    ours = roughness(spectral_coordinates(graph, 2, None, 0).numpy())
    assert (ours <= roughness(umap.spectral_layout(None, W, 2, np.random.RandomState(0))) * 1.001).all()
    np.testing.assert_allclose(ours, 1 - eigsh(A, 3, which="LA", v0=np.ones(len(points())))[0][1::-1], rtol=1e-3)


def test_one_sided_weights_are_made_symmetric():
    graph = UMAPAffinity(n_neighbors=12, symmetrize=False)(torch.from_numpy(points()))
    torch.testing.assert_close(
        spectral_coordinates(graph, 2, None, 0), spectral_coordinates(graph.symmetrise("mean"), 2, None, 0)
    )


def test_pieces_side_by_side():
    _, graph = two_pieces()
    assert graph.connected_components()[0] == 2
    places = spectral_coordinates(graph, 2, None, 0)
    assert bool(torch.isfinite(places).all())
    assert float(places[:450, 0].min()) > float(places[450:, 0].max())


def test_pieces_are_joined_where_the_rows_are_known():
    X, graph = two_pieces()
    first = spectral_coordinates(graph, 2, TensorRows(torch.from_numpy(X)), 0)[:, 0]
    assert bool((torch.sign(first[:450]) == torch.sign(first[0])).all())
    assert bool((torch.sign(first[450:]) == -torch.sign(first[0])).all())


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_rows(n):
    rows, columns = torch.triu_indices(n, n, 1)
    graph = Graph.from_edges(rows, columns, torch.ones(len(rows)), n)
    places = spectral_coordinates(graph, 2, None, 0)
    assert places.shape == (n, 2)
    assert bool(torch.isfinite(places).all())


def test_rows_without_weight():
    graph = UMAPAffinity(n_neighbors=5)(torch.from_numpy(points(200)))
    weights = torch.where((graph.rows() == 7) | (graph.indices == 7), 0.0, graph.weights)
    places = spectral_coordinates(graph.with_weights(weights), 2, TensorRows(torch.from_numpy(points(200))), 0)
    assert bool(torch.isfinite(places).all())


def test_same_bits_at_any_thread_count():
    graph = UMAPAffinity(n_neighbors=12)(torch.from_numpy(points(3000)))
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(spectral_coordinates(graph, 2, None, 0))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
