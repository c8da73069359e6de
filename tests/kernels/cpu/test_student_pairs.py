"""t-SNE's repulsion over all pairs by a kernel against its plain version in torch."""

import pytest
import torch

from cartograd.embedding.forces import compiled_pairs
from cartograd.embedding.forces.tiles import Pairs
from cartograd.neighbors.workers import all_cores


def expected(queries, points, own):
    w = 1 / (1 + torch.cdist(queries.double(), points.double()).square())
    if own:
        w.fill_diagonal_(0)
    squares = w.square()
    return w.sum(1), squares.sum(1, keepdim=True) * queries.double() - squares @ points.double()


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_sums_are_those_of_all_pairs(dims, own, scale):
    points = scale * torch.randn(1100, dims, generator=torch.Generator().manual_seed(dims))
    queries = points if own else scale * torch.randn(130, dims, generator=torch.Generator().manual_seed(9))
    sums, pulls = compiled_pairs.student_sums(queries, points, own)
    exact_sums, exact_pulls = expected(queries, points, own)
    torch.testing.assert_close(sums.double(), exact_sums, rtol=2e-5, atol=1e-6)
    assert float((pulls - exact_pulls).norm() / exact_pulls.norm()) < 1e-4


def test_a_query_has_the_same_bits_alone_and_at_any_thread_count():
    points = torch.randn(4500, 3, generator=torch.Generator().manual_seed(0))
    before, runs = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            with all_cores(points.device):
                runs.append(compiled_pairs.student_sums(points, points, True))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(run[0], runs[0][0]) and torch.equal(run[1], runs[0][1]) for run in runs)
    alone = compiled_pairs.student_sums(points[777:778].clone(), points, False)
    assert torch.equal(alone[0] - 1, runs[0][0][777:778])
    assert torch.equal(alone[1], runs[0][1][777:778])


def test_tiles_of_torch_agree():
    points = torch.randn(600, 2, generator=torch.Generator().manual_seed(4))
    sums = torch.empty(600)

    def piece(tile):
        sums[tile.rows] = tile.squared.reciprocal_().sum(1)

    Pairs(points, points, True, offset=1.0).each(piece)
    torch.testing.assert_close(compiled_pairs.student_sums(points, points, True)[0], sums, rtol=1e-5, atol=1e-5)
