"""UMAPAffinity and the labels' part in it, against umap-learn."""

import math

import numpy
import pytest
import torch

from cartograd.affinity import LogGraph, UMAPAffinity, categorical_intersection, fuzzy_union, smooth_distances
from cartograd.affinity.supervised import far_distance
from cartograd.errors import InputError, OptionError, UnsupportedError
from cartograd.neighbors import Graph, search

theirs = pytest.importorskip("umap.umap_", reason="umap-learn is not installed")


def points(n=200, d=5, seed=0, dtype=numpy.float32):
    return numpy.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def with_duplicates():
    X = points()
    X[:25] = X[0]
    X[40:43] = X[40]
    return X


def knn_with_self(X, k):
    """As umap-learn wants it: k neighbours, the row itself first."""
    indices, distances = search(X, k - 1)
    own = numpy.arange(len(X))[:, None]
    return numpy.hstack([own, indices]), numpy.hstack([0 * distances[:, :1], distances])


def their_graph(X, k, **options):
    indices, distances = knn_with_self(X, k)
    return theirs.fuzzy_simplicial_set(X, k, None, "euclidean", knn_indices=indices, knn_dists=distances, **options)


@pytest.mark.parametrize("data", [points, with_duplicates], ids=["plain", "duplicates"])
@pytest.mark.parametrize("k", [2, 3, 15, 60])
@pytest.mark.parametrize("local_connectivity", [0.0, 0.5, 1.0, 1.7, 3.0, 100.0])
def test_equals_umap_learn(data, k, local_connectivity):
    X = data()
    graph, sigma, rho = their_graph(X, k, local_connectivity=local_connectivity)
    ours = UMAPAffinity(k, local_connectivity=local_connectivity)(X)
    our_rho, our_sigma = smooth_distances(torch.from_numpy(search(X, k - 1)[1]), local_connectivity)
    numpy.testing.assert_allclose(our_rho, rho, rtol=1e-5, atol=1e-6)
    if k > 2:  # of two, one is the row itself: any width serves, and theirs stays where it began
        settled = sigma < 1e10  # where all distances are within reach, or target and sum cannot meet, theirs runs away
        numpy.testing.assert_allclose(our_sigma[settled], sigma[settled], rtol=2e-3, atol=1e-5)
    numpy.testing.assert_allclose(ours.to_dense(), graph.toarray(), atol=1e-4)


@pytest.mark.parametrize("mix", [0.0, 0.25, 1.0])
def test_mixing_union_and_intersection(mix):
    X = points()
    graph = their_graph(X, 15, set_op_mix_ratio=mix)[0].tocsr()
    ours = UMAPAffinity(15, set_op_mix_ratio=mix)(X)
    numpy.testing.assert_allclose(ours.to_dense(), graph.toarray(), atol=1e-5)
    assert ours.n_edges == graph.nnz


def test_memberships_sum_to_log2_k():
    for dtype, tolerance in ((numpy.float32, 1e-4), (numpy.float64, 1e-8)):
        A = UMAPAffinity(15, symmetrize=False)(points(dtype=dtype))
        assert A.weights.dtype == (torch.float32 if dtype == numpy.float32 else torch.float64)
        assert A.degrees().tolist() == [14] * 200
        numpy.testing.assert_allclose(A.row_sums(), math.log2(15), atol=tolerance)
        largest = A.to_dense().amax(1)
        assert bool((largest == 1).all())


def test_symmetric_with_weights_up_to_one():
    P = UMAPAffinity(15)(with_duplicates())
    dense = P.to_dense()
    assert torch.equal(dense, dense.T)
    assert 0 < float(P.weights.min()) <= float(P.weights.max()) <= 1
    assert bool((dense.diagonal() == 0).all())


def test_given_neighbours():
    X = points()
    expected = UMAPAffinity(15)(X)
    for knn in (search(X, 14), search(X, 20), knn_with_self(X, 15), knn_with_self(X, 31)):
        given = UMAPAffinity(15)(None, knn=knn)
        assert torch.equal(given.indices, expected.indices)
        torch.testing.assert_close(given.weights, expected.weights)


def test_given_neighbours_where_equal_rows_pushed_a_row_out():
    X = with_duplicates()
    indices, distances = knn_with_self(X, 10)
    indices[0] = numpy.arange(1, 11)  # all at distance 0, row 0 itself is not there
    distances[0] = 0
    P = UMAPAffinity(10)(None, knn=(indices, distances))
    assert not bool((P.to_dense().diagonal() != 0).any())


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("sparsity", [True, False])
def test_log_and_dense(symmetrize, sparsity):
    affinity = UMAPAffinity(5, symmetrize=symmetrize, sparsity=sparsity)
    P, log_P = affinity(points()), affinity(points(), log=True)
    assert isinstance(P, Graph if sparsity else torch.Tensor)
    assert isinstance(log_P, LogGraph if sparsity else torch.Tensor)
    P, log_P = (P.to_dense(), log_P.to_dense()) if sparsity else (P, log_P)
    torch.testing.assert_close(log_P.exp(), P)


def test_constant_data():
    P = UMAPAffinity(5)(numpy.ones((20, 3)))
    assert bool((P.weights == 1).all())
    assert P.n_edges >= 80


def test_two_rows():
    assert UMAPAffinity(2)(points(2)).to_dense().tolist() == [[0, 1], [1, 0]]


class TestSupervised:
    @pytest.mark.parametrize(("far", "unknown"), [(5.0, 1.0), (2.5, 0.5), (1e12, 1.0)])
    def test_equals_umap_learn(self, far, unknown):
        X = points()
        labels = numpy.random.default_rng(1).integers(-1, 3, len(X))
        graph = theirs.discrete_metric_simplicial_set_intersection(
            their_graph(X, 15)[0], labels, far_dist=far, unknown_dist=unknown
        )
        ours = categorical_intersection(UMAPAffinity(15)(X), labels, far_dist=far, unknown_dist=unknown)
        numpy.testing.assert_allclose(ours.to_dense(), graph.toarray(), atol=1e-4)

    def test_all_unknown_changes_nothing_but_the_scale(self):
        P = UMAPAffinity(15)(points())
        same = categorical_intersection(P, [-1] * 200)
        torch.testing.assert_close(same.to_dense(), fuzzy_union(P).to_dense(), atol=1e-6, rtol=1e-5)

    def test_weights_of_the_target(self):
        assert (far_distance(0.5), far_distance(0.0), far_distance(1.0)) == (5.0, 2.5, 1e12)
        with pytest.raises(OptionError, match=r"target_weight must be at least 0 and at most 1 and finite, got 1.5"):
            far_distance(1.5)

    def test_labels(self):
        P = UMAPAffinity(15)(points())
        with pytest.raises(InputError, match=r"one for each of the 200 rows, got shape \(3,\)"):
            categorical_intersection(P, [0, 1, 2])
        with pytest.raises(InputError, match=r"whole numbers .* got 0.5 at row 1"):
            categorical_intersection(P, [0.0, 0.5] + [1.0] * 198)


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"n_neighbors": 1}, OptionError, "n_neighbors must be at least 2, got 1"),
            ({"n_neighbors": 5.0}, UnsupportedError, "n_neighbors must be a whole number, got 5.0 of type float"),
            ({"local_connectivity": -1}, OptionError, "local_connectivity must be at least 0 and finite, got -1"),
            ({"set_op_mix_ratio": 2}, OptionError, "set_op_mix_ratio must be at least 0 and at most 1"),
            ({"metric": "sine"}, OptionError, "unknown metric 'sine'"),
        ],
    )
    def test_parameters(self, options, error, message):
        with pytest.raises(error, match=message):
            UMAPAffinity(**options)

    def test_too_many_neighbours(self):
        with pytest.raises(OptionError, match=r"n_neighbors=30 is too large for 20 rows .* use n_neighbors <= 20"):
            UMAPAffinity()(points(20))
        assert UMAPAffinity(20)(points(20)).n_edges == 20 * 19
        with pytest.raises(OptionError, match=r"needs 14 neighbours other than the row itself, and knn has 5"):
            UMAPAffinity(15)(None, knn=search(points(), 5))
