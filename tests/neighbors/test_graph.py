"""Graphs in compressed rows against scipy's sparse matrices."""

import re

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse import csgraph

import cartograd
from cartograd.neighbors import Graph, search


def random_matrix(n=40, density=0.1, seed=0):
    return sparse.csr_array(sparse.random(n, n, density, random_state=seed, dtype=np.float64))


def same(graph, matrix):
    matrix = sparse.csr_array(matrix)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    ours = graph.to_scipy()
    np.testing.assert_array_equal(ours.indptr, matrix.indptr)
    np.testing.assert_array_equal(ours.indices, matrix.indices)
    np.testing.assert_allclose(ours.data, matrix.data, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_algebra_equals_scipy(seed):
    P = random_matrix(seed=seed)
    graph = Graph.from_scipy(P)
    same(graph, P)
    same(graph.transpose(), P.T)
    same(graph.symmetrise(), (P + P.T) / 2)
    same(graph.symmetrise("sum"), P + P.T)
    same(graph.symmetrise("union"), P + P.T - P.multiply(P.T))
    same(graph.symmetrise("max"), P.maximum(P.T))
    np.testing.assert_allclose(graph.row_sums(), P.sum(axis=1))
    np.testing.assert_array_equal(graph.degrees(), np.diff(P.indptr))
    np.testing.assert_array_equal(graph.to_dense(), P.toarray())
    same(graph.normalise("total"), P / P.sum())
    sums = P.sum(axis=1)
    same(graph.normalise(), sparse.diags_array(1 / np.where(sums > 0, sums, 1)) @ P)
    order = np.random.default_rng(seed).permutation(40)
    same(graph.permute(order), P[order][:, order])
    same(graph.subset(order[:11]), P[order[:11]][:, order[:11]])


def test_from_knn():
    X = np.random.default_rng(0).normal(size=(30, 3))
    indices, distances = search(X, 4)
    graph = Graph.from_knn(indices, distances)
    assert graph.n == 30
    assert graph.n_edges == 120
    assert graph.degrees().tolist() == [4] * 30
    wanted = np.zeros((30, 30))
    np.put_along_axis(wanted, indices, distances, axis=1)
    np.testing.assert_array_equal(graph.to_dense().numpy(), wanted)
    assert repr(graph) == "Graph(n=30, n_edges=120, dtype=torch.float64, device=cpu)"


def test_holes_are_no_edges_and_degrees_are_real():
    graph = Graph.from_knn([[1, -1], [0, 2], [-1, -1]], torch.ones(3, 2))
    assert graph.degrees().tolist() == [1, 2, 0]
    assert graph.indices.tolist() == [1, 0, 2]
    assert graph.row_sums().tolist() == [1.0, 2.0, 0.0]
    assert graph.normalise().row_sums().tolist() == [1.0, 1.0, 0.0]


def test_edges_given_twice_are_added():
    graph = Graph.from_edges([2, 0, 2, 2], [1, 1, 1, 0], [0.5, 1.0, 0.25, 4.0], 3)
    assert graph.to_dense().tolist() == [[0, 1, 0], [0, 0, 0], [4, 0.75, 0]]


def test_symmetry_is_exact_in_float32():
    rng = np.random.default_rng(1)
    graph = Graph.from_knn(search(rng.normal(size=(200, 5)), 9)[0], rng.random((200, 9)).astype(np.float32))
    for mode in ("mean", "union", "max", "sum"):
        dense = graph.symmetrise(mode).to_dense()
        assert torch.equal(dense, dense.T)
    hub = graph.symmetrise("sum").degrees()
    assert int(hub.max()) > 9
    assert int(hub.sum()) == graph.symmetrise("sum").n_edges


def test_keys_do_not_overflow_32_bits():
    n = 100_000
    graph = Graph.from_edges([n - 1, 0], [n - 2, n - 1], [1.0, 2.0], n).symmetrise("sum")
    assert graph.rows().tolist() == [0, n - 2, n - 1, n - 1]
    assert graph.indices.tolist() == [n - 1, n - 1, 0, n - 2]
    assert graph.weights.tolist() == [2.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize("seed", range(5))
def test_components_equal_scipy(seed):
    P = random_matrix(n=120, density=0.007, seed=seed)
    count, labels = Graph.from_scipy(P).connected_components()
    wanted, theirs = csgraph.connected_components(P, directed=False)
    assert count == wanted
    assert count > 5
    np.testing.assert_array_equal(labels.numpy(), theirs)


def test_components_of_a_long_path():
    n = 5000
    order = np.random.default_rng(0).permutation(n)
    graph = Graph.from_edges(order[:-1], order[1:], np.ones(n - 1), n)
    assert graph.connected_components()[0] == 1
    cut = Graph.from_edges(order[:2000], order[1:2001], np.ones(2000), n)
    assert cut.connected_components()[0] == n - 2000


@pytest.mark.parametrize("groups", [2, 7, 40])
def test_components_are_joined_by_near_points(groups):
    rng = np.random.default_rng(groups)
    centres = rng.normal(size=(groups, 3)) * 1000
    X = np.repeat(centres, 12, axis=0) + rng.normal(size=(12 * groups, 3))
    indices, distances = search(X, 4)
    graph = Graph.from_knn(indices, distances).symmetrise("max")
    assert graph.connected_components()[0] == groups
    joined = graph.join_components(X)
    assert joined.connected_components()[0] == 1
    added = joined.n_edges - graph.n_edges
    assert 2 * (groups - 1) <= added <= 2 * groups
    dense = joined.to_dense()
    assert torch.equal(dense, dense.T)
    assert float(joined.weights.min()) == float(graph.weights.min())
    if groups == 2:
        apart = np.linalg.norm(X[:12, None] - X[None, 12:], axis=-1)
        a, b = np.unravel_index(apart.argmin(), apart.shape)
        assert float(graph.join_components(X, weight=0.125).to_dense()[a, b + 12]) == 0.125


def test_a_connected_graph_is_left_alone():
    graph = Graph.from_edges([0, 1], [1, 2], [1.0, 1.0], 3)
    assert graph.join_components(np.zeros((3, 2))) is graph


def test_single_rows_are_joined_too():
    X = np.arange(9.0)[:, None] ** 2
    graph = Graph.from_edges([], [], [], 9) if False else Graph.from_edges(
        torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), torch.zeros(0), 9
    )  # fmt: skip
    joined = graph.join_components(X)
    assert joined.connected_components()[0] == 1
    assert joined.to_dense()[0, 1] == 1.0


def test_to_and_with_weights():
    graph = Graph.from_edges([0, 1], [1, 0], [1.0, 2.0], 2)
    assert graph.to(dtype=torch.float64).weights.dtype == torch.float64
    assert graph.with_weights(torch.tensor([3.0, 4.0])).to_dense().tolist() == [[0, 3], [4, 0]]


def refused(kind, message, call):
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call()
    assert isinstance(caught.value, cartograd.errors.CartogradError)


def test_bad_graphs_are_refused():
    one = torch.ones(2)
    refused(
        ValueError,
        "column index 3 is out of range for a graph of 3 rows",
        lambda: Graph.from_knn([[1], [3], [0]], torch.ones(3, 1)),
    )
    refused(
        ValueError,
        "column index -2 is out of range for a graph of 2 rows",
        lambda: Graph.from_knn([[1], [-2]], torch.ones(2, 1)),
    )
    refused(ValueError, "row index 5 is out of range", lambda: Graph.from_edges([5], [0], [1.0], 3))
    refused(
        ValueError, "finite and not negative, got -1 at edge 1", lambda: Graph.from_knn([[1], [0]], [[1.0], [-1.0]])
    )
    refused(
        ValueError, "finite and not negative, got nan at edge 0", lambda: Graph.from_knn([[1], [0]], [[np.nan], [1.0]])
    )
    refused(
        ValueError, "must both be (n, k), got (2, 1) and (2, 2)", lambda: Graph.from_knn([[1], [0]], torch.ones(2, 2))
    )
    refused(TypeError, "column indices must be whole numbers", lambda: Graph.from_knn([[1.0], [0.0]], torch.ones(2, 1)))
    refused(
        ValueError, "2 indices and 1 weights", lambda: Graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), one[:1])
    )
    refused(ValueError, "indptr must begin with 0", lambda: Graph(torch.tensor([0, 1, 3]), torch.tensor([1, 0]), one))
    refused(
        TypeError,
        "indptr and indices must be int64",
        lambda: Graph(torch.tensor([0, 2], dtype=torch.int32), torch.tensor([0, 0]), one),
    )
    refused(TypeError, "three one-dimensional torch tensors", lambda: Graph([0, 2], [0, 0], [1.0, 1.0]))
    refused(
        ValueError,
        "a graph needs a square matrix, got shape (2, 3)",
        lambda: Graph.from_scipy(sparse.csr_array((2, 3))),
    )
    graph = Graph.from_edges([0], [1], [1.0], 3)
    refused(ValueError, "unknown mode 'min': known are mean, union, max, sum", lambda: graph.symmetrise("min"))
    far = Graph.from_edges([0], [1], [3.0], 3)
    refused(ValueError, "mode 'union' takes weights of at most 1, got 3", lambda: far.symmetrise("union"))
    refused(ValueError, "by must be 'row' or 'total', got 'column'", lambda: graph.normalise("column"))
    refused(ValueError, "points has 2 rows, but the graph has 3", lambda: graph.join_components(np.zeros((2, 2))))
    refused(ValueError, "must be distinct", lambda: graph.subset([0, 0]))
    refused(ValueError, "has 3 entries, got 2", lambda: graph.permute([0, 1]))
    refused(ValueError, "three vectors of one length", lambda: Graph.from_edges([0, 1], [1], [1.0], 3))
