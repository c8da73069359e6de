"""Distances and angles: every p, points that coincide, the fast way, second derivatives."""

import math

import pytest
import torch
import torch.nn.functional as F
from parity import agree, randn

import cartograd

MODES = ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary"]


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, math.inf])
def test_cdist(p):
    for needs in ([True, True], [True, False], [False, True]):
        agree(lambda a, b: torch.cdist(a, b, p=p), randn(3, 2), randn(4, 2, seed=1), needs=needs)
    agree(lambda a, b: torch.cdist(a, b, p), randn(2, 1, 3, 2), randn(5, 4, 2, seed=1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [3, 40])
def test_cdist_computed_either_way(mode, count):
    agree(lambda a, b: torch.cdist(a, b, compute_mode=mode), randn(count, 3), randn(4, 3, seed=1))


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
@pytest.mark.parametrize("count", [3, 40])
def test_points_that_coincide_have_gradient_zero(p, count):
    points = torch.ones(count, 2, dtype=torch.float64)
    assert (agree(lambda a, b: torch.cdist(a, b, p=p), points, points)[0] == 0).all()
    assert (agree(lambda a: torch.pdist(a, p=p), points)[0] == 0).all()


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_recorded_gradients_are_the_same_and_finite_at_zero(p):
    x = cartograd.tensor(randn(4, 2), requires_grad=True)
    for distances in (torch.cdist(x, x, p=p), torch.pdist(torch.cat([x, x]), p=p)):
        total = (distances * distances).sum() + distances.sum()
        (plain,) = cartograd.grad(total, x, retain_graph=True)
        (recorded,) = cartograd.grad(total, x, create_graph=True)
        torch.testing.assert_close(recorded.data, plain.data)
        (second,) = cartograd.grad(recorded.pow(2).sum(), x, allow_unused=True)
        assert second is None or second.data.isfinite().all()


def test_cdist_of_no_points():
    agree(lambda a, b: torch.cdist(a, b), torch.zeros(0, 2, dtype=torch.float64), randn(3, 2))
    agree(
        lambda a, b: torch.cdist(a, b), torch.zeros(2, 0, dtype=torch.float64), torch.zeros(3, 0, dtype=torch.float64)
    )


def test_bad_arguments():
    x = cartograd.tensor(randn(3, 2), requires_grad=True)
    with pytest.raises(ValueError, match="compute_mode"):
        torch.cdist(x, x, compute_mode="fast")
    with pytest.raises(RuntimeError):
        torch.cdist(x, x, p=-1)
    with pytest.raises(RuntimeError):
        torch.cdist(x, cartograd.tensor(randn(3, 3)))


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_distances_row_by_row(p):
    agree(lambda a, b: F.pairwise_distance(a, b, p=p), randn(3, 2), randn(3, 2, seed=1))
    agree(lambda a, b: F.pairwise_distance(a, b, p, 0.1, True), randn(3, 2), randn(2, seed=1))
    agree(lambda a, b: torch.dist(a, b, p), randn(3, 2), randn(2, seed=1))
    agree(lambda a: F.pdist(a, p), randn(4, 2))
    agree(torch.nn.PairwiseDistance(p), randn(3, 2), randn(3, 2, seed=1))


@pytest.mark.parametrize("needs", [[True, True], [True, False], [False, True]])
def test_cosine_similarity(needs):
    agree(lambda a, b: F.cosine_similarity(a, b), randn(3, 2), randn(3, 2, seed=1), needs=needs)
    agree(lambda a, b: F.cosine_similarity(a, b, dim=-1), randn(3, 1, 4), randn(2, 4, seed=1), needs=needs)
    agree(lambda a, b: F.cosine_similarity(a, b, dim=0), randn(3), randn(3, seed=1), needs=needs)


def test_cosine_similarity_of_short_vectors():
    short = torch.tensor([[0.0, 0.0], [1e-9, 0.0], [1.0, 2.0]], dtype=torch.float64)
    agree(lambda a, b: F.cosine_similarity(a, b, eps=1e-3), short, randn(3, 2))
    agree(lambda a, b: F.cosine_similarity(a, b, eps=1e-3), short, short.flip(0))


def test_cosine_similarity_keeps_the_dtype():
    gradients = agree(F.cosine_similarity, randn(3, 2, dtype=torch.float32), randn(3, 2, seed=1, dtype=torch.float32))
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


def test_normalize():
    agree(lambda x: F.normalize(x), randn(3, 2))
    agree(lambda x: F.normalize(x, p=1, dim=0, eps=0.5), torch.tensor([[0.0, 3.0], [0.1, -4.0]], dtype=torch.float64))
    unit = cartograd.tensor(randn(2, 3), requires_grad=True)
    assert cartograd.gradgradcheck(lambda x: F.normalize(x), unit)


def test_pdist_of_a_transpose():
    agree(lambda x: torch.pdist(x.T), randn(3, 5))
    agree(lambda x: torch.pdist(x[:, ::2], p=3), randn(5, 4))
