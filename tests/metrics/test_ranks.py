import numpy
import pytest
import torch

from cartograd.metrics.ranks import counts, ranks_of
from cartograd.metrics.space import read, space_of
from cartograd.neighbors import search


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 1024), (4, 1025), (2, 40_000)])
@pytest.mark.parametrize("bounds", [6, 70])
def test_counts_equal_a_plain_sum(shape, bounds):
    draw = torch.Generator().manual_seed(1)
    values = torch.randint(50, shape, generator=draw).to(torch.float64)
    low = torch.randint(-1, 52, (shape[0], bounds), generator=draw).to(torch.float64)
    high = low + torch.randint(3, low.shape, generator=draw)
    below, upto = counts(values, low, high)
    assert torch.equal(below, (values[:, :, None] < low[:, None, :]).sum(1))
    assert torch.equal(upto, (values[:, :, None] <= high[:, None, :]).sum(1))


def test_all_true_does_not_run_over_a_byte():
    values, bound = torch.zeros(2, 300_000, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    assert [part.tolist() for part in counts(values, bound, bound)] == [[[300_000]] * 2] * 2


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "hamming", "sqhyperbolic"])
def test_found_neighbours_have_the_ranks_1_to_k(metric):
    draw = numpy.random.default_rng(2)
    X = draw.integers(0, 3, (1500, 4)) / 8.0
    if metric == "cosine":  # of different rows with the same cosine, rounded lengths would decide
        X = draw.normal(size=(300, 4))[draw.integers(0, 300, 1500)]
    ids, _ = search(X, 20, metric=metric, backend="exact")
    space = space_of(read(X, "X", metric, None), metric, "X")
    ranks = ranks_of(space, torch.from_numpy(ids))
    assert torch.equal(ranks.cpu(), torch.arange(1, 21).expand(1500, 20))
