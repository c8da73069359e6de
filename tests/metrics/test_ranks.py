import numpy
import pytest
import torch

from cartograd.metrics.ranks import counts, ranks_of
from cartograd.metrics.space import read, space_of
from cartograd.neighbors import search


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 1024), (4, 1025), (2, 40_000)])
def test_counts_equal_a_plain_sum(shape):
    draw = torch.Generator().manual_seed(1)
    values = torch.randint(50, shape, generator=draw).to(torch.float64)
    bounds = torch.randint(-1, 52, (shape[0], 6), generator=draw).to(torch.float64)
    for strictly in (True, False):
        truth = values[:, :, None] < bounds[:, None, :] if strictly else values[:, :, None] <= bounds[:, None, :]
        assert torch.equal(counts(values, bounds, strictly), truth.sum(1))


def test_all_true_does_not_run_over_a_byte():
    values = torch.zeros(2, 300_000, dtype=torch.float64)
    assert counts(values, torch.ones(2, 1, dtype=torch.float64), strictly=True).tolist() == [[300_000]] * 2


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "hamming", "sqhyperbolic"])
def test_found_neighbours_have_the_ranks_1_to_k(metric):
    X = numpy.random.default_rng(2).integers(0, 3, (1500, 4)) / 8.0
    ids, _ = search(X, 20, metric=metric, backend="exact")
    space = space_of(read(X, "X", metric, None), metric, "X")
    ranks = ranks_of(space, torch.from_numpy(ids))
    assert torch.equal(ranks, torch.arange(1, 21).expand(1500, 20))
