"""PACMAPAffinity, the pairs it draws, and the numbers they are drawn with."""

import numpy
import pytest
import torch
from scipy.stats import chisquare

from cartograd.affinity import PACMAPAffinity, far_pairs, mid_near_pairs
from cartograd.affinity.counter import integers, stream, uniform
from cartograd.affinity.pairs import distinct, outside
from cartograd.errors import OptionError, UnsupportedError
from cartograd.neighbors import Graph, search

CPU = torch.device("cpu")


def points(n=150, d=3, seed=0):
    return numpy.random.default_rng(seed).normal(size=(n, d))


class TestCounter:
    def test_is_splitmix64(self):
        """The first numbers of its reference implementation for seed 0."""
        first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
        assert uniform(0, (3,), CPU).tolist() == [(bits >> 11) * 2.0**-53 for bits in first]

    def test_even(self):
        drawn = integers(stream(3, "test"), 7, (70_000,), CPU)
        assert chisquare(torch.bincount(drawn, minlength=7).numpy()).pvalue > 1e-3

    def test_any_part_of_a_stream(self):
        whole = uniform(5, (100,), CPU)
        assert torch.equal(uniform(5, (40,), CPU, first=60), whole[60:])

    def test_streams_differ(self):
        keys = {stream(seed, what, step) for seed in range(5) for what in ("far", "near") for step in range(5)}
        assert len(keys) == 50

    def test_the_global_generator_is_left_alone(self):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        mid_near_pairs(points(), 5, 0)
        far_pairs(torch.from_numpy(search(points(), 5)[0]), 5, 0)
        assert torch.equal(torch.get_rng_state(), before)


class TestDraws:
    def test_every_subset_is_equally_likely(self):
        drawn = distinct(11, 5, 2, 100_000, CPU)
        assert bool((drawn[:, 0] != drawn[:, 1]).all())
        low, high = drawn.amin(1), drawn.amax(1)
        counts = torch.bincount(5 * low + high, minlength=25)
        subsets = [5 * a + b for a in range(5) for b in range(a + 1, 5)]
        assert int(counts[subsets].sum()) == 100_000
        assert chisquare(counts[subsets].numpy()).pvalue > 1e-3

    def test_ranks_outside_of_exclusions(self):
        excluded = torch.tensor([[3, 4, 5, 6, 12], [0, 1, 2, 3, 4]])
        ranks = torch.arange(15).expand(2, 15)
        assert outside(excluded, ranks).tolist() == [
            [0, 1, 2, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19],
            list(range(5, 20)),
        ]

    def test_far_pairs_are_far_different_and_even(self):
        neighbours = torch.from_numpy(search(points(40), 7)[0])
        drawn = torch.cat([far_pairs(neighbours, 12, seed) for seed in range(200)], 1)
        for row in range(40):
            there = set(drawn[row].tolist())
            assert there == set(range(40)) - {row} - set(neighbours[row].tolist())
        one = far_pairs(neighbours, 12, 3)
        assert all(len(set(row)) == 12 for row in one.tolist())
        free = sorted(set(range(40)) - {0} - set(neighbours[0].tolist()))
        assert chisquare(torch.bincount(drawn[0], minlength=40)[free].numpy()).pvalue > 1e-3

    def test_as_many_far_pairs_as_there_are(self):
        neighbours = torch.from_numpy(search(points(10), 7)[0])
        assert far_pairs(neighbours, 20, 0).shape == (10, 2)
        assert far_pairs(torch.from_numpy(search(points(8), 7)[0]), 20, 0).shape == (8, 0)

    def test_the_same_seed_draws_the_same(self):
        assert torch.equal(mid_near_pairs(points(), 5, 1), mid_near_pairs(points(), 5, 1))
        assert not torch.equal(mid_near_pairs(points(), 5, 1), mid_near_pairs(points(), 5, 2))

    @pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
    def test_mid_near_pairs_are_second_of_six(self, metric):
        n, X = 60, points(60)
        D = numpy.linalg.norm(X[:, None] - X[None], axis=2)
        drawn = mid_near_pairs(D if metric == "precomputed" else X, 1, 4, metric=metric)
        repeated = [mid_near_pairs(X, 1, seed)[:, 0] for seed in range(300)]
        assert bool((drawn[:, 0] == repeated[4]).all())
        rank = numpy.argsort(numpy.argsort(D, 1), 1)
        ranks = numpy.concatenate([rank[numpy.arange(n), pair.numpy()] for pair in repeated])
        # P(rank = r) of the second smallest of 6 out of 59: (r - 1) choose 1 times (59 - r) choose 4, over 59 choose 6
        from scipy.special import comb

        r = numpy.arange(1, 60)
        expected = (r - 1) * comb(59 - r, 4) / comb(59, 6) * len(ranks)
        seen = numpy.bincount(ranks, minlength=60)[1:]
        assert seen[0] == 0
        much = expected > 5
        assert chisquare(seen[much], expected[much] * seen[much].sum() / expected[much].sum()).pvalue > 1e-3

    def test_mid_near_pairs_differ_from_each_other(self):
        drawn = mid_near_pairs(points(9), 20, 0)
        assert drawn.shape == (9, 8)
        for row, pairs in enumerate(drawn.tolist()):
            assert sorted([row, *pairs]) == list(range(9))


class TestAffinity:
    def test_by_hand(self):
        X = points(200)
        D = numpy.linalg.norm(X[:, None] - X[None], axis=2)
        near = numpy.argsort(D, 1, kind="stable")[:, 1:61]
        sigma = numpy.take_along_axis(D, near, 1)[:, 3:6].mean(1)
        scaled = numpy.take_along_axis(D, near, 1) ** 2 / (sigma[:, None] * sigma[near])
        expected = numpy.take_along_axis(near, numpy.argsort(scaled, 1)[:, :10], 1)
        indices, distances = PACMAPAffinity()(X), PACMAPAffinity().neighbours(X)[1]
        assert indices.indices.view(200, 10).tolist() == numpy.sort(expected, 1).tolist()
        numpy.testing.assert_allclose(distances, numpy.sort(scaled, 1)[:, :10], rtol=1e-9)
        assert bool((indices.weights == 1).all())

    @pytest.mark.parametrize("n", [2, 3, 5, 7, 30])
    def test_small_data(self, n):
        k = min(10, n - 1)
        P = PACMAPAffinity(n_neighbors=k)(points(n))
        assert P.degrees().tolist() == [k] * n

    def test_equal_rows(self):
        indices, scaled = PACMAPAffinity(5).neighbours(numpy.ones((20, 2)))
        assert bool(torch.isfinite(scaled).all())
        assert all(len(set(row)) == 5 for row in indices.tolist())

    def test_squared_distances_mean_the_same(self):
        one, two = (PACMAPAffinity(metric=metric)(points()) for metric in ("euclidean", "sqeuclidean"))
        assert torch.equal(one.indices, two.indices)

    def test_given_neighbours_dense_and_log(self):
        expected = PACMAPAffinity()(points())
        given = PACMAPAffinity()(None, knn=search(points(), 60))
        assert isinstance(given, Graph)
        assert torch.equal(given.indices, expected.indices)
        dense = PACMAPAffinity(sparsity=False)(points(), log=True)
        assert torch.equal(dense.exp(), expected.to_dense().to(dense.dtype))

    def test_errors(self):
        with pytest.raises(OptionError, match="n_neighbors must be at least 1, got 0"):
            PACMAPAffinity(0)
        with pytest.raises(UnsupportedError, match="n_neighbors must be a whole number"):
            PACMAPAffinity("ten")
        with pytest.raises(OptionError, match=r"n_neighbors=10 is too large for 10 rows .*: use n_neighbors <= 9"):
            PACMAPAffinity()(points(10))
        with pytest.raises(OptionError, match="n_neighbors=10, and knn has 4 for each row"):
            PACMAPAffinity()(None, knn=search(points(), 4))
